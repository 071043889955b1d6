"""Reading logs as the kubelet would: options, runs of a container, following to the end."""

import asyncio
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.records.container_logs import ContainerLogs
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.containers.cri_log import MAX_ROTATED_FILES, LogFile, rotated_names
from trainwright.cluster.node.supervisor.files import write_json
from trainwright.cluster.node.supervisor.pod_json import ContainerState
from trainwright.objects.kinds.pod_subresources import LogOptions, LogUnavailable

POD = {"metadata": {"name": "p1", "namespace": "default", "uid": "u"}}
RUNNING = container_status.running("2026-11-15T04:05:06Z")
ENDED = container_status.terminated(exit_code=0, reason="Completed", started_at="t", finished_at="t")


class Container:
    """A container's files as a supervisor writes them."""

    def __init__(self, node: Path) -> None:
        self.directory = node / "pods" / "u"
        (self.directory / "logs/main").mkdir(parents=True)

    def set_state(self, state: ContainerState, *, restarts: int = 0, last: ContainerState | None = None) -> None:
        status = {"name": "main", "restarts": restarts, "state": state, "last": last or {}}
        write_json(str(self.directory / "state.json"), {"initContainers": [], "containers": [status]})

    def write(self, *lines: str, run: int = 0) -> None:
        with (self.directory / f"logs/main/{run}.log").open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def open_log(self, limit: int, run: int = 0) -> LogFile:
        """For rotation at `limit` bytes."""
        return LogFile(str(self.directory / f"logs/main/{run}.log"), limit=limit)

    def stored_lines(self) -> int:
        path = str(self.directory / "logs/main/0.log")
        files = [Path(name) for name in (path, *rotated_names(path)) if Path(name).exists()]
        return sum(file.read_bytes().count(b"\n") for file in files)


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


def line(second: int, text: str, tag: str = "F") -> str:
    return f"2026-11-15T04:05:{second:02d}.000000000Z stdout {tag} {text}"


async def read(container: Container, **options: Any) -> str:
    logs = ContainerLogs(container.directory.parents[1])
    pieces = [piece async for piece in logs.read(POD, "main", LogOptions(**options))]
    return b"".join(pieces).decode()


async def test_everything_is_read(container: Container) -> None:
    container.set_state(ENDED)
    container.write(line(1, "one"), line(2, "tw", "P"), line(3, "o"), line(4, "end", "P"))
    assert await read(container) == "one\ntwo\nend"


async def test_options_choose_what_is_read(container: Container) -> None:
    container.set_state(RUNNING)
    container.write(*(line(second, f"text {second}") for second in range(1, 6)))
    assert await read(container, tail_lines=2) == "text 4\ntext 5\n"
    assert await read(container, tail_lines=0) == ""
    assert await read(container, tail_lines=99, limit_bytes=9) == "text 1\nte"
    since = datetime(2026, 11, 15, 4, 5, 4, tzinfo=UTC)
    assert await read(container, since=since) == "text 4\ntext 5\n"
    assert await read(container, tail_lines=1, timestamps=True) == "2026-11-15T04:05:05.000000000Z text 5\n"


@pytest.mark.parametrize(
    ("options", "lines"),
    [({"tail_lines": 100_000}, 100_000), ({"since": datetime(2027, 1, 1, tzinfo=UTC)}, 0)],
)
async def test_other_tasks_run_while_a_long_log_is_searched(
    container: Container, options: dict[str, Any], lines: int
) -> None:
    container.set_state(ENDED)
    container.write(*[line(1, "x")] * 100_500)
    loop, turns = asyncio.get_running_loop(), []

    async def other_task() -> None:
        while True:
            turns.append(loop.time())
            await asyncio.sleep(0)

    task = asyncio.create_task(other_task())
    output = await read(container, **options)
    task.cancel()
    assert output.count("\n") == lines
    assert len(turns) > 50


async def test_following_reads_until_the_container_has_ended(container: Container) -> None:
    container.set_state(RUNNING)
    container.write(line(1, "one"))
    reading = asyncio.create_task(read(container, follow=True))
    await asyncio.sleep(0)
    container.write(line(2, "two"))
    await asyncio.sleep(0.06)
    assert not reading.done()
    container.write(line(3, "three"))
    container.set_state(ENDED)
    assert await reading == "one\ntwo\nthree\n"


async def test_following_ends_when_the_container_was_started_again(container: Container) -> None:
    container.set_state(RUNNING)
    container.write(line(1, "one"))
    reading = asyncio.create_task(read(container, follow=True))
    await asyncio.sleep(0)
    container.write(line(1, "again"), run=1)
    container.set_state(RUNNING, restarts=1, last=ENDED)
    assert await reading == "one\n"
    assert await read(container) == "again\n"
    assert await read(container, previous=True) == "one\n"


async def test_in_back_off_the_last_run_is_both_the_current_and_the_previous(container: Container) -> None:
    container.write(line(1, "crash"), run=1)
    container.set_state(container_status.waiting("CrashLoopBackOff"), restarts=1, last=ENDED)
    assert await read(container) == await read(container, previous=True) == "crash\n"


async def test_a_missing_log_is_refused_in_the_kubelets_words(container: Container) -> None:
    with pytest.raises(LogUnavailable, match='container "main" in pod "p1" is waiting to start: ContainerCreating'):
        await read(container)
    container.set_state(container_status.waiting("PodInitializing"))
    with pytest.raises(LogUnavailable, match='container "main" in pod "p1" is waiting to start: PodInitializing'):
        await read(container)
    container.set_state(RUNNING)
    with pytest.raises(LogUnavailable, match='previous terminated container "main" in pod "p1" not found'):
        await read(container, previous=True)


def encoded(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


async def test_rotated_files_are_one_log(container: Container) -> None:
    container.set_state(RUNNING, restarts=1, last=ENDED)
    for run in (0, 1):
        log = container.open_log(1, run)
        log.write(encoded(*(line(second, f"{run}.{second}") for second in range(1, 4)), line(4, f"{run}.", "P")))
        log.write(encoded(line(5, "4")))
        log.close()
    assert await read(container) == "1.1\n1.2\n1.3\n1.4\n"
    assert await read(container, previous=True) == "0.1\n0.2\n0.3\n0.4\n"
    assert await read(container, tail_lines=2) == "1.3\n1.4\n"
    assert await read(container, tail_lines=1) == "1.4\n"
    assert await read(container, limit_bytes=6) == "1.1\n1."
    since = datetime(2026, 11, 15, 4, 5, 3, tzinfo=UTC)
    stamped = "2026-11-15T04:05:03.000000000Z 1.3\n2026-11-15T04:05:04.000000000Z 1.4\n"
    assert await read(container, since=since, timestamps=True) == stamped


async def test_a_log_is_read_after_an_interrupted_rotation(container: Container) -> None:
    container.set_state(ENDED)
    log = container.open_log(1)
    log.write(encoded(line(1, "one"), line(2, "two")))
    log.close()
    (container.directory / "logs/main/0.log").rename(container.directory / "logs/main/0.log.2")
    (container.directory / "logs/main/0.log.1").rename(container.directory / "logs/main/0.log.3")
    assert await read(container) == "one\ntwo\n"


async def test_a_follower_continues_in_the_next_file(container: Container) -> None:
    container.set_state(RUNNING)
    log = container.open_log(1)
    log.write(encoded(line(0, "0")))
    reading = ContainerLogs(container.directory.parents[1]).read(POD, "main", LogOptions(follow=True))
    seen = await anext(reading)
    for first in range(1, 40, MAX_ROTATED_FILES):  # so many files are kept while it does not look
        batch = range(first, first + MAX_ROTATED_FILES)
        log.write(encoded(*(line(1, str(number)) for number in batch)))
        for _ in batch:
            seen += await anext(reading)
    container.set_state(ENDED)
    assert [piece async for piece in reading] == []
    assert seen.decode().split() == [str(number) for number in range(41)]
    log.close()


@pytest.mark.parametrize("rotated", [False, True])
async def test_a_follower_reads_the_end_of_a_log_that_is_moved(container: Container, *, rotated: bool) -> None:
    container.set_state(RUNNING)
    log = container.open_log(1 if rotated else 1 << 20)
    log.write(encoded(line(1, "one")))
    node = container.directory.parents[1]
    reading = ContainerLogs(node).read(POD, "main", LogOptions(follow=True))
    seen = await anext(reading)

    log.write(encoded(line(2, "two"), line(3, "three")))
    log.close()
    container.set_state(ENDED)
    (node / "removed").mkdir()
    container.directory.rename(node / "removed/u")

    assert seen + b"".join([piece async for piece in reading]) == b"one\ntwo\nthree\n"


@pytest.mark.parametrize("timestamps", [False, True])
async def test_a_progress_bar_is_followed_as_a_line_every_two_seconds(
    container: Container, *, timestamps: bool
) -> None:
    """kubectl prints whole lines only."""

    def stamped(second: int, text: str) -> str:
        return f"2026-11-15T04:05:{second:02d}.000000000Z {text}" if timestamps else text

    container.set_state(RUNNING)
    container.write(line(0, "step 0"))
    container.write(*(line(1 + number // 5, f"\r{number}%", "P") for number in range(22)))
    options = LogOptions(follow=True, timestamps=timestamps)
    reading = ContainerLogs(container.directory.parents[1]).read(POD, "main", options)
    seen = await anext(reading)
    assert seen.decode() == stamped(0, "step 0\n") + stamped(1, "10%\n") + stamped(3, "20%\n")
    container.write(line(6, "\r100%"), line(6, "end"))
    container.set_state(ENDED)
    rest = b"".join([piece async for piece in reading])
    assert rest.decode() == stamped(5, "\r21%\r100%\n") + stamped(6, "end\n")


async def test_an_unfinished_line_is_followed_at_once(container: Container) -> None:
    container.set_state(RUNNING)
    container.write(line(1, "loading", "P"))
    reading = ContainerLogs(container.directory.parents[1]).read(POD, "main", LogOptions(follow=True))
    assert await anext(reading) == b"loading"
    container.write(line(9, "..", "P"))
    assert await anext(reading) == b".."
    await reading.aclose()


async def test_a_tail_counts_a_progress_bar_as_one_line(container: Container) -> None:
    container.set_state(RUNNING)
    bar = [line(2, f"\r{percent}%", "P").replace("stdout", "stderr") for percent in range(10, 60, 10)]
    container.write(line(1, "one"), *bar[:2], line(3, "two"), *bar[2:])
    assert await read(container, tail_lines=1) == "\r30%\r40%\r50%"
    assert await read(container, tail_lines=2) == "two\n\r10%\r20%\r30%\r40%\r50%"
    assert await read(container, tail_lines=3) == "one\ntwo\n\r10%\r20%\r30%\r40%\r50%"
    since = datetime(2026, 11, 15, 4, 5, 3, tzinfo=UTC)
    assert await read(container, since=since, timestamps=True) == "2026-11-15T04:05:03.000000000Z two\n"


async def test_a_follower_that_keeps_up_with_a_busy_writer_sees_every_line_once(container: Container) -> None:
    container.set_state(RUNNING)
    total, limit = 60_000, 200_000
    room = threading.Semaphore(limit // 100)  # lines that the writer may be ahead, less than the files that are kept
    log = container.open_log(limit // MAX_ROTATED_FILES)

    def write() -> None:
        for first in range(0, total, 100):
            for _ in range(100):
                assert room.acquire(timeout=10)
            log.write(encoded(*(line(1, f"{number:050}") for number in range(first, first + 100))))
        container.set_state(ENDED)

    writing = asyncio.create_task(asyncio.to_thread(write))
    seen = b""
    async for piece in ContainerLogs(container.directory.parents[1]).read(POD, "main", LogOptions(follow=True)):
        seen += piece
        room.release(max(1, piece.count(b"\n")))
    await writing
    log.close()
    assert seen.decode().split() == [f"{number:050}" for number in range(total)]
    assert (container.directory / f"logs/main/0.log.{MAX_ROTATED_FILES}").exists()


@given(
    lines=st.lists(st.tuples(st.sampled_from("PF"), st.sampled_from(["", "x", "y" * 30_000])), max_size=12),
    wanted=st.integers(1, 6),
    limit=st.sampled_from([50, 100, 40_000, 1_000_000]),
)
def test_a_tail_is_the_end_of_the_whole(
    lines: list[tuple[str, str]], wanted: int, limit: int, tmp_path_factory: Any
) -> None:
    container = Container(tmp_path_factory.mktemp("tail"))
    container.set_state(ENDED)
    log = container.open_log(limit=limit)
    log.write(encoded(*(line(1, content, tag) for tag, content in lines)))
    log.close()
    kept = lines[len(lines) - container.stored_lines() :]

    whole = asyncio.run(read(container))
    tail = asyncio.run(read(container, tail_lines=wanted))

    assert tail == "".join(whole.splitlines(keepends=True)[-wanted:]) or _ends_in_empty_line(kept)
    assert whole.endswith(tail)
    assert whole.removesuffix(tail)[-1:] in ("", "\n")


def _ends_in_empty_line(lines: list[tuple[str, str]]) -> bool:
    """Partial lines without text at the end count as a line, but have no output."""
    open_text = ""
    for tag, content in lines:
        open_text = open_text + content if tag == "P" else ""
    return bool(lines) and lines[-1][0] == "P" and not open_text
