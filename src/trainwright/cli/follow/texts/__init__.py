"""What `run` and `logs` tell the user about a job. Pure."""
