"""Labels of namespaces that choose a level of the Pod Security Standards."""

POD_SECURITY_PREFIX = "pod-security.kubernetes.io/"
ENFORCE = f"{POD_SECURITY_PREFIX}enforce"
PRIVILEGED = "privileged"
"""The level that allows everything; also that of namespaces without a label."""
