"""The embedded cluster: an API server, controllers and a node in one process, for one machine.

Every client, the operator included, uses it through the Kubernetes API alone. Commands start it with `embedded`.
"""
