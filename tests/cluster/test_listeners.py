import os
import socket
from pathlib import Path

from trainwright.cluster.listeners import port_holder


def test_the_process_that_listens_on_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        name = Path("/proc/self/comm").read_text().strip()
        assert port_holder(port) == f"{name} (pid {os.getpid()})"
    assert port_holder(port) is None


def test_a_port_that_is_bound_but_not_listened_on_has_no_holder() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert port_holder(bound.getsockname()[1]) is None
