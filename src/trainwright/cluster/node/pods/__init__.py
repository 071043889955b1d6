"""One pod on this node: from its spec to a runtime configuration, and from its processes to a status."""
