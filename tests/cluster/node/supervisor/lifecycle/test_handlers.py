"""The short-lived processes that run the checks of probes and hooks."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from trainwright.cluster.node.supervisor.lifecycle import network_handlers
from trainwright.cluster.node.supervisor.lifecycle.handlers import fork_check
from trainwright.cluster.node.supervisor.pod_json import HttpJson


def close_next(server: socket.socket) -> None:
    server.accept()[0].close()


def test_a_check_whose_peer_closes_the_connection_fails_and_is_not_killed() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server, ThreadPoolExecutor() as threads:
        http: HttpJson = {
            "scheme": "http",
            "host": "127.0.0.1",
            "port": server.getsockname()[1],
            "path": "/",
            "userAgent": "test",
            "headers": [["X-Long", "a" * 4_000_000]],  # it is still being sent when the connection is gone
        }
        reader, writer = os.pipe()
        closed = threads.submit(close_next, server)
        child = fork_check(lambda: network_handlers.check({"http": http}, 5.0), writer)
        os.close(writer)
        with open(reader, encoding="utf-8") as output:  # noqa: PTH123 - a descriptor
            text = output.read()
        closed.result()

    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == network_handlers.EXIT_FAILURE
    assert text
