"""Addresses for pods."""

import itertools
import os
import socket

import pytest

_numbers = itertools.count(os.getpid() * 100)


@pytest.fixture
def address() -> str:
    """Of a pod. Each test has another one: connections that have ended keep a port for a minute."""
    number = next(_numbers) % 15_000
    return f"127.210.{64 + number // 250}.{1 + number % 250}"


@pytest.fixture
def free_port() -> int:
    """One of the machine, for tests that listen there too."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
