"""The children of a job as manifests: pods, their init containers, and Services."""
