"""What the API server reports about its own state: metrics."""
