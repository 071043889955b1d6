"""Logs, exec, attach and port-forward: requests whose data flows between a client and a pod."""
