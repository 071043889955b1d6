"""What the API server tells about its own state: health checks and metrics."""
