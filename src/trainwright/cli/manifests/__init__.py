"""Manifests on their way from files to the cluster: `reader`, then `validation`, then `apply`."""
