"""The embedded cluster: an API server, controllers and a node in one process, for one machine.

It is a cluster like any other: what runs on it, our operator included, reaches it through the Kubernetes API alone.
"""
