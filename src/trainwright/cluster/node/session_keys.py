"""The keys with which this node opens sessions in its pods.

A supervisor cannot see who connects to its socket: processes of other pods and the agent look alike from inside. It has
the key in memory, and the agent derives it from a secret outside of the node's directory.
"""

import hashlib
import hmac


def session_key(secret: bytes, uid: str) -> str:
    """That of one pod; empty without a secret, as for a supervisor without an agent."""
    return hmac.new(secret, uid.encode(), hashlib.sha256).hexdigest() if secret else ""
