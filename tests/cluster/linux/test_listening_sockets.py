"""Listening sockets: read from the kernel's tables, found for real."""

import os
import socket

import pytest

from trainwright.cluster.linux.listening_sockets import (
    Listener,
    find_holder,
    open_sockets,
    parse_listeners,
    read_listeners,
)

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:5BA0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1 0 100 0 0 10 0
   1: 0100007F:0016 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000     0        0 4243 1 0 20 4 0 10 -1
   2: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 0:0 00:0 0 1000 0 4244 1 0 100
   3: 0000000000000000FFFF00000A40067F:1776 00000000000000000000000000000000:0000 0A 0:0 00:0 0 1000 0 4245 1 0 100
   4: 00000000000000000000000001000000:1776 00000000000000000000000000000000:0000 0A 0:0 00:0 0 1000 0 4246 1 0 100
"""


def test_only_sockets_that_listen_count_and_mapped_addresses_are_ipv4() -> None:
    assert parse_listeners(TABLE) == [
        Listener("127.0.0.1", 23456, "4242", 0),
        Listener("::", 8080, "4244", 1000),
        Listener("127.6.64.10", 6006, "4245", 1000),
        Listener("::1", 6006, "4246", 1000),
    ]


@pytest.mark.parametrize(
    ("family", "address", "shown"),
    [
        (socket.AF_INET, "127.1.2.3", "127.1.2.3"),
        (socket.AF_INET6, "::ffff:127.1.2.3", "127.1.2.3"),
    ],
)
def test_a_listener_is_found_with_its_process(family: socket.AddressFamily, address: str, shown: str) -> None:
    mapped = family is socket.AF_INET6
    with socket.create_server((address, 0), family=family, dualstack_ipv6=mapped) as server:
        (found,) = [one for one in read_listeners() if one.port == server.getsockname()[1] and one.address == shown]
        holder = find_holder(found.inode)

        assert found.uid == os.getuid()
        assert found.inode in open_sockets(os.getpid())
        assert holder is not None
        assert (holder.pid, bool(holder.name), bool(holder.command)) == (os.getpid(), True, True)
    assert find_holder(found.inode) is None
