"""The controllers of the embedded cluster: scheduler, garbage collector, namespaces, service accounts, volumes.

They are clients of the API, as in kube-controller-manager. Decisions are pure functions.
"""
