"""Manifests from files to the cluster: read, validate, apply."""
