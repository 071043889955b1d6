"""Kubernetes' own vocabulary as plain values, shared by everything else in the house.

An object is the dictionary that its JSON says; the modules here read such dictionaries and never do I/O.
"""

from typing import Any

import msgspec

Object = dict[str, Any]
"""A Kubernetes object, or a part of one, exactly as it travels."""


def copied(obj: Object) -> Object:
    """A copy that shares nothing; several times quicker than copy.deepcopy."""
    copy: Object = msgspec.json.decode(msgspec.json.encode(obj))
    return copy
