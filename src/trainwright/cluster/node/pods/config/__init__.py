"""From the spec of a pod to the runtime config of its supervisor. Pure."""
