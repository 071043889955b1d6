"""The controllers of Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs."""
