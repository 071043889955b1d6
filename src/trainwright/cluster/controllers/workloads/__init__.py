"""The controllers of Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and CronJobs."""
