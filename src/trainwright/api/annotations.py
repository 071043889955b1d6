"""Annotations of jobs on every cluster. They are public: docs/reference/jobs.md lists them."""

RESTART_SCOPE = "trainwright.dev/restart-scope"
"""Whether a failed pod is replaced alone (`pod`) or with all others of the job (`group`)."""

DEAD_NODE_SECONDS = "trainwright.dev/dead-node-seconds"
"""How many seconds a node may be deleted or not Ready before its pods are replaced, or `off`."""

PROGRAM = "trainwright.dev/program"
"""The digests of the program's files when `run` created the job: `{"train.py": "0f3a…"}`."""
