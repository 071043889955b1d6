"""Connections that notice when the other side is gone without a word: a machine that lost power, a network that split.

Silence on a watch may mean that nothing happens; the kernel's own questions tell the two apart within half a minute.
"""

import socket

DEAD_SECONDS = 30
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 15, 5, 3


def watch_over(connection: socket.socket) -> None:
    """Ends the connection if the other side is silent for half a minute: to probes, or to what was sent."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_SECONDS * 1000)
