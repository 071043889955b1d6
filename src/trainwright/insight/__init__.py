"""What logs and pod statuses show about a training job: progress, metrics, the cause of a failure. Pure functions."""
