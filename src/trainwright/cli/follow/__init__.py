"""Follows jobs until they finish: `follower` watches the cluster, `logs` reads and prints the logs, `job_state` keeps
the state, and pure modules make lines of it: `status_line`, `messages`."""
