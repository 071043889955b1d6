"""Kubernetes' own vocabulary as plain values, shared by all packages.

An object is the dictionary of its JSON. The modules here read such dictionaries and never do I/O.
"""

from typing import Any

import msgspec

Object = dict[str, Any]
"""A Kubernetes object, or a part of one, as decoded from JSON."""


def copied(obj: Object) -> Object:
    """A deep copy; several times faster than copy.deepcopy."""
    copy: Object = msgspec.json.decode(msgspec.json.encode(obj))
    return copy
