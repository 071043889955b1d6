"""Ports in use: read from the kernel's tables, tried for real."""

import os
import socket

from trainwright.cluster.node.node_status import format_ports
from trainwright.cluster.node.supervisor.ports import (
    parse_listening_ports,
    port_conflict,
    read_listening_ports,
    read_reserved_ports,
    reserve_port,
)

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:5BA0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1 0 100 0 0 10 0
   1: 0100007F:0016 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000     0        0 4243 1 0 20 4 0 10 -1
   2: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 4244 1 0 100
"""


def test_only_sockets_that_listen_count() -> None:
    assert parse_listening_ports(TABLE) == {23456: "4242", 8080: "4244"}


def test_a_listener_is_found_and_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert port in read_listening_ports()
        why = port_conflict(port)
    assert why is not None
    assert why.startswith(f"port {port} is taken by process {os.getpid()} (")
    assert port_conflict(port) is None


def test_a_port_is_reserved_once_on_the_machine_until_the_reservation_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # no other test has it
    first = reserve_port(port)
    assert first is not None
    assert reserve_port(port) is None
    assert port in read_reserved_ports()
    first.close()
    assert port not in read_reserved_ports()
    second = reserve_port(port)
    assert second is not None
    second.close()


def test_ports_are_reported_in_order() -> None:
    assert format_ports({8080, 22, 443}) == "22,443,8080"
