"""Follows jobs until they finish: `follower` watches the cluster, `job_state` keeps the state, `messages` has the
texts."""
