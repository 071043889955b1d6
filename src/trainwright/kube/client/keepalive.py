"""TCP keepalive, which both clients use: it detects a dead server within half a minute.

A silent watch may mean that nothing happens. Without keepalive it looks the same as a lost machine or network.
"""

import socket

DEAD_SECONDS = 30
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 15, 5, 3


def enable_keepalive(connection: socket.socket) -> None:
    """The kernel closes the connection if probes or data are not acknowledged for half a minute."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_SECONDS * 1000)
