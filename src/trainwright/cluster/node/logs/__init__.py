"""Container logs in the CRI format: written by supervisors, read for the API server."""
