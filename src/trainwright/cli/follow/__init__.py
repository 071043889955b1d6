"""Follows jobs until they finish: `follower` watches the cluster, `logs` reads and prints the logs, `state` keeps what
is known about a job, and `texts` makes lines of it."""
