"""What commands read of the pods of a job directly from the node's directory."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.records.pod_records import (
    LogLine,
    PodRecord,
    RunLog,
    pod_records,
    read_pod_record,
    whole_lines,
)
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.containers.cri_log import LogFile
from trainwright.cluster.node.supervisor.files import write_json
from trainwright.cluster.node.supervisor.pod_json import ContainerStatus
from trainwright.objects.kinds.container_runs import ContainerRun

START = 1794715506
"""2026-11-15T04:05:06Z"""


def stamp(fraction: str) -> str:
    return f"2026-11-15T04:05:06.{fraction}000Z"


def line(text: str, *, tag: str = "F", stream: str = "stdout") -> bytes:
    return f"{stamp('250000')} {stream} {tag} {text}\n".encode()


def ended(status: ContainerStatus, code: int, at: str) -> ContainerStatus:
    state = container_status.terminated(
        exit_code=code, reason="Error" if code else "Completed", started_at=stamp("100000"), finished_at=stamp(at)
    )
    return container_status.with_finished_run(status, state)


class Pod:
    """A pod's directory as node and supervisor write it."""

    def __init__(self, node: Path, uid: str = "u1", *, owner: str | None = "job", **config: Any) -> None:
        self.node, self.uid = node, uid
        self.directory = node / "pods" / uid
        (self.directory / "logs/main").mkdir(parents=True)
        defaults = {
            "uid": uid,
            "name": f"pod-{uid}",
            "namespace": "default",
            "labels": {"app": "digits"},
            "owner": {"kind": "PyTorchJob", "name": "digits", "uid": owner} if owner else None,
            "initContainers": [],
            "containers": [{"name": "main", "argv": ["true"]}],
        }
        write_json(str(self.directory / "pod.json"), {**defaults, **config})

    def set_state(self, *containers: ContainerStatus, inits: tuple[ContainerStatus, ...] = ()) -> None:
        write_json(str(self.directory / "state.json"), {"initContainers": inits, "containers": containers})

    def log(self, run: int = 0, limit: int = 1 << 20) -> LogFile:
        return LogFile(str(self.directory / f"logs/main/{run}.log"), limit=limit)

    def write(self, *lines: bytes, run: int = 0) -> None:
        log = self.log(run)
        log.write(b"".join(lines))
        log.close()

    def move(self) -> None:
        """As the node does when the Pod object has been deleted."""
        target = self.node / "removed" / self.uid
        target.parent.mkdir(exist_ok=True)
        self.directory.rename(target)
        self.directory = target

    @property
    def record(self) -> PodRecord:
        (found,) = pod_records(self.node, "job")
        return found


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def texts(lines: list[LogLine]) -> list[str]:
    return [one.text for one in lines]


def test_a_variable_that_is_not_text_does_not_hide_the_pod(tmp_path: Path) -> None:
    container = {"name": "main", "argv": ["true"], "env": {"KEY": "a\udcff"}}
    assert Pod(tmp_path, containers=[container]).record.name == "pod-u1"


def test_records_keep_neither_variables_nor_arguments_in_memory(tmp_path: Path) -> None:
    """They may be megabytes, and secret."""
    container = {"name": "main", "cwd": "/work", "argv": ["true"], "env": {"KEY": "secret"}}
    kept = read_pod_record(Pod(tmp_path, containers=[container]).directory)
    assert kept is not None
    assert [dict(container) for container in kept["containers"]] == [{"name": "main", "cwd": "/work"}]


def test_only_pods_of_the_owner_are_listed_by_name_and_creation(tmp_path: Path) -> None:
    Pod(tmp_path, "other", owner="another job")
    Pod(tmp_path, "alone", owner=None)
    Pod(tmp_path, "u3", name="b", createdAt="2026-11-15T04:05:06Z")
    Pod(tmp_path, "u2", name="b", createdAt="2026-11-15T04:05:07Z").move()
    Pod(tmp_path, "u1", name="c")
    (tmp_path / "pods/half").mkdir()

    found = pod_records(tmp_path, "job")

    assert [(one.uid, one.removed) for one in found] == [("u3", False), ("u2", True), ("u1", False)]
    assert found[0].labels == {"app": "digits"}
    assert pod_records(tmp_path / "nothing", "job") == []


def test_every_run_has_its_exact_times(pod: Pod) -> None:
    status = ended(container_status.new_status("main", initialized=True), 1, "200000")
    status = ended({**status, "restarts": 1}, 137, "300000")
    pod.set_state({**status, "restarts": 2, "state": container_status.running(stamp("400000"))})

    first, second, third = pod.record.runs

    assert first == ContainerRun(
        namespace="default",
        pod="pod-u1",
        pod_uid="u1",
        owner_uid="job",
        exact=True,
        container="main",
        init=False,
        number=0,
        started_at=START + 0.1,
        finished_at=START + 0.2,
        exit_code=1,
        reason="Error",
    )
    assert (second.number, second.exit_code, second.finished_at) == (1, 137, START + 0.3)
    assert (third.number, third.exit_code, third.started_at, third.finished_at) == (2, None, START + 0.4, None)


@pytest.mark.parametrize(("missing", "named"), [({"missingImage": True}, "team/trainer:1.0"), ({}, "")])
def test_a_run_without_its_image_names_it(tmp_path: Path, missing: dict[str, bool], named: str) -> None:
    pod = Pod(tmp_path, initContainers=[{"name": "init", "image": "team/trainer:1.0", **missing}])
    init = ended(container_status.new_status("init", initialized=True), 1, "200000")
    pod.set_state(container_status.new_status("main", initialized=False), inits=(init,))
    assert [run.missing_image for run in pod.record.runs] == [named]


@pytest.mark.parametrize(
    ("request_", "at", "stopped"),
    [
        ({"grace": 30.0, "reason": "", "message": ""}, START, True),
        ({"grace": 30.0, "reason": "", "message": ""}, START + 1, False),
        ({"grace": 30.0, "reason": "DeadlineExceeded", "message": "late"}, START, False),
    ],
    ids=["before it ended", "afterwards", "by its deadline"],
)
def test_a_run_knows_whether_its_pod_was_asked_to_end(
    pod: Pod, request_: dict[str, Any], at: int, stopped: bool
) -> None:
    pod.set_state(ended(container_status.new_status("main", initialized=True), 1, "500000"))
    file = pod.directory / "stop.json"
    write_json(str(file), request_)
    os.utime(file, (at, at))
    [run] = pod.record.runs
    assert run.stopped is stopped


def test_init_containers_come_first(tmp_path: Path) -> None:
    pod = Pod(tmp_path, initContainers=[{"name": "init"}])
    init = ended(container_status.new_status("init", initialized=True), 0, "200000")
    pod.set_state(ended(container_status.new_status("main", initialized=False), 0, "300000"), inits=(init,))
    assert [(run.container, run.init) for run in pod.record.runs] == [("init", True), ("main", False)]


def test_a_run_that_is_not_recorded_yet_is_found_by_its_log(pod: Pod) -> None:
    pod.write(line("first words"))
    (run,) = pod.record.runs
    assert (run.number, run.started_at) == (0, None)
    assert texts(RunLog(pod.node, run).read_new()) == ["first words"]


def test_runs_of_a_pod_of_an_earlier_version_are_read(pod: Pod) -> None:
    status = ended(container_status.new_status("main", initialized=True), 1, "200000")
    again = ended({**status, "restarts": 4, "last": status["state"]}, 0, "300000")
    del again["runs"]
    pod.set_state(again)
    assert [(run.number, run.exit_code) for run in pod.record.runs] == [(3, 1), (4, 0)]


def test_lines_have_time_stream_and_text(pod: Pod) -> None:
    pod.write(line("one"), line("tw", tag="P", stream="stderr"), line("o", stream="stderr"))
    log = RunLog(pod.node, pod.record.runs[0])
    assert log.read_new() == [
        LogLine(START + 0.25, "stdout", "one", partial=False),
        LogLine(START + 0.25, "stderr", "tw", partial=True),
        LogLine(START + 0.25, "stderr", "o", partial=False),
    ]
    assert log.read_new() == []
    log.close()


def test_a_character_that_is_split_between_partial_lines_is_whole(pod: Pod) -> None:
    first, second = line("", tag="P"), line("")
    text = "é".encode()
    pod.write(first[:-1] + text[:1] + b"\n", second[:-1] + text[1:] + b"\n", first[:-1] + text[:1] + b"\n", second)
    assert texts(RunLog(pod.node, pod.record.runs[0]).read_new()) == ["", "é", "", "�"]


def test_a_record_is_returned_when_it_is_complete(pod: Pod) -> None:
    log = pod.log()
    log.write(line("one") + line("two")[:20])
    reader = RunLog(pod.node, pod.record.runs[0])
    assert texts(reader.read_new()) == ["one"]
    log.write(line("two")[20:])
    assert texts(reader.read_new()) == ["two"]


@pytest.mark.parametrize("rotated", [False, True])
def test_every_line_is_returned_once_over_rotation_and_removal(pod: Pod, *, rotated: bool) -> None:
    log = pod.log(limit=100 if rotated else 1 << 20)
    log.write(line("1"))
    reader = RunLog(pod.node, pod.record.runs[0])
    assert texts(reader.read_new()) == ["1"]
    log.write(b"".join(line(str(number)) for number in range(2, 6)))
    assert texts(reader.read_new()) == ["2", "3", "4", "5"]
    log.write(line("6"))

    pod.move()

    assert texts(reader.read_new()) == ["6"]
    assert texts(RunLog(pod.node, pod.record.runs[0]).read_new()) == ["1", "2", "3", "4", "5", "6"]
    assert reader.read_new() == []


def test_what_was_open_is_read_after_the_log_has_been_deleted(pod: Pod) -> None:
    log = pod.log()
    log.write(line("1"))
    reader = RunLog(pod.node, pod.record.runs[0])
    assert texts(reader.read_new()) == ["1"]
    log.write(line("2"))
    (pod.directory / "logs/main/0.log").unlink()
    assert texts(reader.read_new()) == ["2"]
    assert reader.read_new() == []


def test_lines_that_were_rotated_away_before_they_were_read_are_announced(pod: Pod) -> None:
    log = pod.log(limit=100)
    log.write(line("1"))
    reader = RunLog(pod.node, pod.record.runs[0])
    assert texts(reader.read_new()) == ["1"]

    log.write(b"".join(line(str(number)) for number in range(2, 31)))

    gap = "[a part of the log is missing here: it was rotated away before it was read]"
    shown = texts(reader.read_new())
    first, kept = shown[: shown.index(gap)], shown[shown.index(gap) + 1 :]
    numbers = [str(number) for number in range(2, 31)]
    assert (first, kept) == (numbers[: len(first)], numbers[-len(kept) :])
    dropped = sum(len(line(str(number))) for number in range(1, 31 - len(kept)))
    beginning = f"[the first {dropped} bytes of the log are missing: they were rotated away]"
    assert texts(RunLog(pod.node, pod.record.runs[0]).read_new()) == [beginning, *kept]
    log.write(line("31"))
    assert texts(reader.read_new()) == ["31"]


def test_a_tail_does_not_announce_the_beginning_that_was_rotated_away(pod: Pod) -> None:
    log = pod.log(limit=100)
    log.write(b"".join(line(str(number)) for number in range(20)))
    reader = RunLog(pod.node, pod.record.runs[0])
    reader.skip_to_tail(len(line("19")) * 2)
    assert texts(reader.read_new()) == ["18", "19"]


@pytest.mark.parametrize("size", [0, 1, 60, 61, 500, 100_000])
def test_the_tail_of_a_log_is_read_from_the_beginning_of_a_record_over_rotated_files(tmp_path: Path, size: int) -> None:
    pod = Pod(tmp_path)
    records = [line(f"line {number}") for number in range(50)]
    log = pod.log(limit=1000)
    for record in records:
        log.write(record)
    log.close()
    run_log = RunLog(pod.node, pod.record.runs[0])

    run_log.skip_to_tail(size)
    texts = [one.text for one in run_log.read_new()]
    run_log.close()

    kept = [record for number, record in enumerate(records) if sum(map(len, records[number:])) <= size]
    assert texts == [f"line {number}" for number in range(50 - len(kept), 50)]


def test_parts_of_a_line_are_joined_by_stream() -> None:
    pieces = [
        LogLine(1.0, "stdout", "epoch 1 ", True),
        LogLine(1.1, "stderr", "warning", False),
        LogLine(1.2, "stdout", "loss 0.5", False),
        LogLine(1.3, "stdout", "unfinished", True),
    ]
    lines = [(line.text, line.at) for line in whole_lines(pieces)]
    assert lines == [("warning", 1.1), ("epoch 1 loss 0.5", 1.0), ("unfinished", 1.3)]


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text(max_size=5), st.booleans())))
def test_no_text_is_lost_and_no_line_is_made_up(pieces: list[tuple[str, str, bool]]) -> None:
    lines = list(whole_lines(LogLine(0.0, stream, text, partial) for stream, text, partial in pieces))
    assert sorted("".join(line.text for line in lines)) == sorted("".join(text for _, text, _ in pieces))
    assert len(lines) >= sum(not partial for _, _, partial in pieces)
