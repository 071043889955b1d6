"""The open files of the cluster process: each pod needs some, and so does each connection.

The usual soft limit of 1,024 is for programs that use `select`; this one raises its own to the hard limit. Pods get the
limit with which the cluster was started.
"""

import resource
from functools import cache

_MOST = 1 << 20
_MAX_PODS = 1000
_PER_POD = 3
"""A descriptor of its supervisor, and those of a followed log or a session."""
_RESERVED = 512
"""For the store, the connections of controllers and clients, and forwarded Services."""


@cache
def raise_limit() -> int:
    """Raises the limit of this process once; returns the one before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft


def most_pods() -> int:
    """How many pods this process can serve."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MAX_PODS
    return max(1, min(_MAX_PODS, (soft - _RESERVED) // _PER_POD))
