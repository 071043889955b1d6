"""What the API server reports about its own state: health checks and metrics."""
