"""The controllers of Deployments, ReplicaSets and Jobs. The modules named `…_plan` decide and do no I/O."""
