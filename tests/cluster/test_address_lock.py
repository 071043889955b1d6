"""Which range of addresses a cluster gets, and what keeps others away."""

import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cluster.addresses import locked_addresses
from tests.support.waiting import wait_until
from trainwright.cluster.address_lock import AddressLock, candidates, lock_addresses, lock_range, marked_ranges
from trainwright.cluster.address_range import NUMBERS, AddressRange
from trainwright.cluster.datadir import ClusterError, DataDir

RANGES = st.builds(AddressRange, st.sampled_from(NUMBERS))
ALL = {AddressRange(number) for number in NUMBERS}


@given(st.integers(0, 2**64), st.none() | RANGES)
def test_every_range_is_tried_once_and_the_preferred_one_first(start: int, preferred: AddressRange | None) -> None:
    found = list(candidates(start, preferred))
    assert len(found) == len(ALL)
    assert set(found) == ALL
    assert preferred in {None, found[0]}


@given(st.lists(st.tuples(RANGES, st.sampled_from(["own", "other", "ownx"]))), st.lists(st.text()))
def test_ranges_with_marks_of_other_clusters_are_taken(marks: list[tuple[AddressRange, str]], junk: list[str]) -> None:
    names = [f"trainwright-addresses-127.{addresses.number}-{owner}-1f" for addresses, owner in marks]
    locks = [f"trainwright-addresses-127.{addresses.number}" for addresses, _ in marks]
    found = marked_ranges([*names, *locks, *junk], "own")
    assert found == {addresses for addresses, owner in marks if owner != "own"}


@given(st.text("0123456789-. 127", max_size=12))
def test_any_name_of_a_socket_can_be_read(rest: str) -> None:
    assert len(marked_ranges([f"trainwright-addresses-127.{rest}"], "own")) <= 1


def try_lock(cluster: str, *ranges: AddressRange) -> AddressRange | None:
    try:
        lock = lock_range(cluster, ranges)
    except ClusterError:
        return None
    lock.release()
    return lock.addresses


@contextmanager
def survivor(lock: AddressLock) -> Iterator[None]:
    """A process with the mark, as a supervisor."""
    program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, pass_fds=[lock.mark]) as process:
        lock.release()
        yield
        process.communicate()


def test_locked_range_is_taken_until_it_is_released() -> None:
    with locked_addresses() as lock:
        assert try_lock("other", lock.addresses) is None
        assert try_lock("other", lock.addresses, AddressRange(lock.addresses.number % 254 + 1)) != lock.addresses
    assert try_lock("other", lock.addresses) == lock.addresses


def test_pods_that_outlive_the_cluster_keep_its_range_for_it_alone() -> None:
    cluster = secrets.token_hex(8)
    lock = lock_range(cluster, candidates(secrets.randbits(16), None))
    with survivor(lock):
        assert try_lock("other", lock.addresses) is None
        again = lock_range(cluster, [lock.addresses])  # which gives further supervisors a mark of their own
        with survivor(again):
            assert try_lock("other", lock.addresses) is None
    wait_until(lambda: try_lock("other", lock.addresses) == lock.addresses)


def test_stranger_who_has_the_name_of_the_lock_is_avoided() -> None:
    """Also in another kind of socket, or with a name that is no text."""
    with locked_addresses() as lock:
        number = lock.addresses.number
    with socket.socket(socket.AF_UNIX) as squatter, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as odd:
        squatter.bind(f"\0trainwright-addresses-127.{number}")
        odd.bind(b"\0trainwright-addresses-127.\xff\n\n\0 " + secrets.token_bytes(4))
        assert try_lock("own", lock.addresses) is None


def test_range_is_remembered_and_preferred(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    data.create()
    first = lock_addresses(data)
    assert data.remembered_addresses() == first.addresses
    first.release()
    second = lock_addresses(data)
    second.release()
    assert second.addresses == first.addresses

    with locked_addresses() as other:
        data.remember_addresses(other.addresses)
        third = lock_addresses(data)
        third.release()
        assert third.addresses != other.addresses
        assert data.remembered_addresses() == third.addresses


@pytest.mark.parametrize("content", ["", "127.0.0.0/16", "127.300.0.0/16", "junk\0", "127.7"])
def test_damaged_file_is_replaced(tmp_path: Path, content: str) -> None:
    data = DataDir(tmp_path)
    data.create()
    (tmp_path / "addresses").write_text(content)
    lock = lock_addresses(data)
    lock.release()
    assert data.remembered_addresses() == lock.addresses
