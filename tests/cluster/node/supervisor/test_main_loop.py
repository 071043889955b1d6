"""Real supervisors with real processes: as root and as an ordinary user, in both sandboxes."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.supervised_pods import SupervisedPod, container, processes_with, supervised_again
from trainwright.cluster.node.pods.pod_directory import PodDirectory
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.files import read_json, write_json
from trainwright.cluster.node.supervisor.pod_process import EXIT_ALREADY_SUPERVISED

pytestmark = pytest.mark.thorough("root-overlay", "root-plain", "ordinary-plain", sample=33)


def until_gone(marker: str) -> None:
    deadline = time.monotonic() + 10
    while left := processes_with(marker):
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


@pytest.fixture
def marker() -> str:
    """An argument of `sleep` by which a test finds its own processes."""
    return f"{1000 + os.getpid()}.{time.monotonic_ns()}"


def terminated(pod: SupervisedPod, name: str = "main") -> dict[str, Any]:
    ended: dict[str, Any] = pod.container(name)["state"]["terminated"]
    return ended


def test_a_container_that_succeeds_completes_the_pod(runner: Any) -> None:
    with runner.run(container("echo out; echo err >&2; printf 'no end'")) as pod:
        state = pod.wait()
    ended = terminated(pod)
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    assert ended["startedAt"] <= ended["finishedAt"]
    assert state["sandbox"] == runner.sandbox.level
    lines = (pod.directory / "logs/main/0.log").read_text().splitlines()
    assert sorted(line.split(" ", 1)[1] for line in lines) == ["stderr F err", "stdout F out", "stdout P no end"]
    assert all(len(line.split(" ")[0]) == len("2026-11-15T04:05:06.123456789Z") for line in lines)


@pytest.mark.parametrize(("script", "code", "number"), [("exit 7", 7, None), ("kill -9 $$", 137, signal.SIGKILL)])
def test_exit_code_and_signal_of_a_container_are_recorded(
    runner: Any, script: str, code: int, number: int | None
) -> None:
    with runner.run(container(script)) as pod:
        pod.wait()
    ended = terminated(pod)
    assert (ended["exitCode"], ended.get("signal"), ended["reason"]) == (code, number, "Error")


def test_a_missing_program_is_named(runner: Any) -> None:
    with runner.run({**container(""), "argv": ["no-such-program"]}) as pod:
        pod.wait()
    ended = terminated(pod)
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert ended["message"] == 'exec: "no-such-program": executable file not found in $PATH'


def test_an_argument_with_a_zero_byte_is_a_start_error(runner: Any) -> None:
    with runner.run({**container(""), "argv": ["echo", "a\0b"]}) as pod:
        pod.wait()
    ended = terminated(pod)
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (128, "StartError", "embedded null byte")


def test_a_notification_that_a_busy_agent_refused_is_repeated(runner: Any) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as agent:
        agent.bind(str(runner.node / "agent.sock"))
        (runner.node / "agent.sock").chmod(0o777)
        fill(runner.node / "agent.sock")
        with runner.run(container("sleep 60")) as pod:
            pod.until(lambda pod: "running" in pod.container()["state"])
            words: list[bytes] = []

            def heard(_: SupervisedPod) -> bool:
                with suppress(BlockingIOError):
                    while True:
                        words.append(agent.recv(256))
                return b"uid" in words

            pod.until(heard)


def fill(path: Path) -> None:
    """Others speak until no more words fit in."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as others, suppress(BlockingIOError):
        while True:
            others.sendto(b"others", str(path))


def test_only_the_given_environment_reaches_the_program(runner: Any) -> None:
    with runner.run(container("env", env={"A": "1"})) as pod:
        pod.wait()
    names = {line.partition("=")[0] for line in pod.output()}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "A"}


def test_init_containers_run_one_after_the_other_before_the_rest(runner: Any) -> None:
    order = runner.shared / "order"
    inits = [container(f"sleep 0.05; echo {name} >> {order}", name=name) for name in ("first", "second")]
    mounts = [{"source": str(runner.shared), "target": str(runner.shared), "readOnly": False}]
    for one in inits:
        one["mounts"] = mounts
    with runner.run(container(f"echo main >> {order}", mounts=mounts), initContainers=inits) as pod:
        pod.wait()
    assert order.read_text().split() == ["first", "second", "main"]


def test_a_failing_init_container_ends_a_pod_that_is_never_restarted(runner: Any) -> None:
    with runner.run(container("echo never"), initContainers=[container("exit 3", name="init")]) as pod:
        pod.wait()
    assert terminated(pod, "init")["exitCode"] == 3
    assert pod.container()["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert pod.output() == []


def test_on_failure_restarts_until_success(runner: Any) -> None:
    counter = runner.shared / "count"
    mounts = [{"source": str(runner.shared), "target": str(runner.shared), "readOnly": False}]
    script = f"echo x >> {counter}; test $(wc -l < {counter}) -ge 3 || exit 5"
    with runner.run(container(script, mounts=mounts), restartPolicy="OnFailure") as pod:
        pod.wait()
    record = pod.container()
    assert record["restarts"] == 2
    assert record["last"]["terminated"]["exitCode"] == 5
    assert record["state"]["terminated"]["exitCode"] == 0
    assert [(run["number"], run["exitCode"]) for run in record["runs"]] == [(0, 5), (1, 5), (2, 0)]
    assert sorted(path.name for path in (pod.directory / "logs/main").iterdir()) == ["0.log", "1.log", "2.log"]


def test_a_log_keeps_its_end_in_a_few_files(runner: Any) -> None:
    counter = runner.shared / "count"
    mounts = [{"source": str(runner.shared), "target": str(runner.shared), "readOnly": False}]
    script = f"seq 1 5000; echo x >> {counter}; test $(wc -l < {counter}) -ge 3 || exit 5"
    with runner.run(container(script, mounts=mounts), restartPolicy="OnFailure", logLimit=10_000) as pod:
        pod.wait()
    files = list((pod.directory / "logs/main").iterdir())
    names = [f"{run}.log{suffix}" for run in range(3) for suffix in ("", ".1", ".2", ".3", ".4", ".dropped")]
    assert sorted(path.name for path in files) == names
    assert all(path.stat().st_size < 10_100 for path in files)
    kept = "".join((pod.directory / f"logs/main/2.log{suffix}").read_text() for suffix in (".4", ".3", ".2", ".1", ""))
    numbers = [int(line.split(" ")[3]) for line in kept.splitlines()]
    assert numbers == list(range(numbers[0], 5001))


def test_a_progress_bar_is_in_the_log_while_it_runs(runner: Any) -> None:
    script = "printf '\\r 10%%' >&2; read -r _ < fifo; printf '\\r100%%\\n' >&2"
    mounts = [{"source": str(runner.shared), "target": str(runner.shared), "readOnly": False}]
    os.mkfifo(runner.shared / "fifo")
    runner.user.own(runner.shared / "fifo")
    with runner.run(container(script, mounts=mounts, cwd=str(runner.shared))) as pod:
        path = pod.directory / "logs/main/0.log"
        pod.until(lambda _: path.exists() and path.read_bytes().endswith(b" stderr P \r 10%\n"))
        (runner.shared / "fifo").write_text("go on\n")
        pod.wait()
    assert path.read_bytes().endswith(b" stderr F \r100%\n")


def test_a_container_that_fails_again_and_again_waits_in_back_off(runner: Any) -> None:
    backoff = {"initial": 300.0, "limit": 300.0, "reset": 600.0}
    with runner.run(container("exit 1"), restartPolicy="Always", backoff=backoff) as pod:
        pod.until(lambda pod: "waiting" in (pod.state["containers"] or [{"state": {}}])[0]["state"])
        record = pod.container()
        assert record["restarts"] == 1  # the first restart comes at once
        assert record["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert record["state"]["waiting"]["message"] == (
            "back-off 5m0s restarting failed container=main pod=pod_default(uid)"
        )
        assert record["last"]["terminated"]["exitCode"] == 1
        pod.stop()
        pod.wait()
    assert terminated(pod)["exitCode"] == 1


def test_stopping_forwards_the_signal_and_waits_for_the_program(runner: Any) -> None:
    script = "trap 'echo saved; exit 4' TERM; echo ready; while :; do sleep 0.01; done"
    with runner.run(container(script)) as pod:
        pod.until(lambda pod: "ready" in pod.output())
        pod.stop()
        pod.wait()
    assert terminated(pod)["exitCode"] == 4
    assert pod.output() == ["ready", "saved"]


def test_a_program_that_ignores_the_signal_is_killed_after_the_grace_period(runner: Any) -> None:
    with runner.run(container("trap '' TERM; echo ready; while :; do sleep 0.01; done"), grace=0.2) as pod:
        pod.until(lambda pod: "ready" in pod.output())
        started = time.monotonic()
        pod.stop()
        pod.wait()
    assert time.monotonic() - started >= 0.2
    assert terminated(pod)["exitCode"] == 137
    assert terminated(pod)["reason"] == "Error"


def test_a_second_stop_can_shorten_the_grace_period(runner: Any) -> None:
    with runner.run(container("trap '' TERM; echo ready; while :; do sleep 0.01; done"), grace=600) as pod:
        pod.until(lambda pod: "ready" in pod.output())
        pod.stop()
        write_json(str(pod.directory / "stop.json"), {"grace": 0})
        pod.stop()
        pod.wait()
    assert terminated(pod)["exitCode"] == 137


def test_a_pod_that_is_stopped_before_its_start_never_starts(runner: Any) -> None:
    with runner.run(container("echo never; exec sleep 600"), files={"stop.json": {"grace": 0}}) as pod:
        pod.wait()
    assert terminated(pod)["exitCode"] == 137
    assert pod.output() == []


@pytest.mark.parametrize("code", [0, 1])
def test_a_pod_that_is_shut_down_with_the_cluster_starts_again_by_its_policy(runner: Any, code: int) -> None:
    saves = f"trap 'echo saved; exit {code}' TERM; echo started; while :; do sleep 0.01; done"
    subject = container(f'test -e /proc/self && [ "$AGAIN" ] && exit 0; {saves}')
    with runner.run(subject, restartPolicy="OnFailure") as pod:
        pod.until(lambda pod: pod.output() == ["started"])
        supervisor = PodDirectory(pod.directory).find_supervisor()
        assert supervisor is not None
        assert PodDirectory(pod.directory).request_shutdown() == 10
        supervisor.signal(signal.SIGTERM)
        assert pod.process.wait(timeout=10) == 0
        supervisor.close()
    assert pod.output() == ["started", "saved"]
    assert not pod.state["finished"]
    ended = terminated(pod)
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
    assert ended["message"] == f"The cluster was stopped; the program ended with exit code {code}"
    config = read_json(str(pod.directory / "pod.json"))
    config["containers"][0]["env"]["AGAIN"] = "1"
    with supervised_again(runner.user, pod.directory, config) as pod:
        pod.wait()
    assert terminated(pod)["exitCode"] == 0
    assert [run["exitCode"] for run in pod.container()["runs"]] == [137, 0]
    assert (pod.container()["restarts"], pod.container()["disruptions"]) == (1, 1)


def test_a_program_that_fails_when_a_shutdown_has_been_requested_is_stopped_with_the_cluster(runner: Any) -> None:
    """Its peer got the signal a moment earlier."""
    mounts = [{"source": str(runner.shared), "target": str(runner.shared), "readOnly": False}]
    script = f"while test ! -e {runner.shared}/lost; do sleep 0.01; done; exit 1"
    with runner.run(container(script, mounts=mounts), restartPolicy="OnFailure") as pod:
        pod.until(lambda pod: "running" in pod.container()["state"])
        PodDirectory(pod.directory).request_shutdown()
        (runner.shared / "lost").touch()
        assert pod.process.wait(timeout=10) == 0
    assert pod.container()["disrupted"]
    assert not pod.state["finished"]


def test_the_shutdown_of_an_earlier_supervisor_does_not_stop_the_pod(runner: Any) -> None:
    earlier = {"stop.json": {"grace": 1, "shutdown": {"pid": 1, "startTicks": 1, "bootId": "earlier"}}}
    with runner.run(container("echo ran"), files=earlier) as pod:
        pod.wait()
    assert pod.output() == ["ran"]


def test_orphans_are_reaped_and_end_with_the_container(runner: Any, marker: str) -> None:
    mounts = [{"source": str(runner.shared), "target": str(runner.shared), "readOnly": False}]
    wait = f"while test ! -e {runner.shared}/flag; do sleep 0.01; done"
    script = f"(sleep {marker} &); (setsid sleep {marker} &); (true &); {wait}; echo done"
    with runner.run(container(script, mounts=mounts)) as pod:
        pod.until(lambda pod: len(processes_with(marker)) >= 2)
        (runner.shared / "flag").touch()
        pod.wait()
    until_gone(marker)
    assert pod.output() == ["done"]


def test_processes_of_an_ended_container_are_killed_while_another_runs(runner: Any, marker: str) -> None:
    mounts = [{"source": str(runner.shared), "target": str(runner.shared), "readOnly": False}]
    script = f"(sleep {marker} &); while test ! -e {runner.shared}/flag; do sleep 0.01; done"
    short = container(script, name="short", mounts=mounts)
    with runner.run(short, container("trap 'exit 0' TERM; while :; do sleep 0.01; done", name="long")) as pod:
        pod.until(lambda pod: processes_with(marker) and "running" in pod.container("long")["state"])
        (runner.shared / "flag").touch()
        pod.until(lambda pod: "terminated" in pod.container("short")["state"])
        until_gone(marker)
        assert "running" in pod.container("long")["state"]


def test_a_pod_dies_with_its_supervisor(runner: Any, marker: str) -> None:
    with runner.run(container(f"exec sleep {marker}")) as pod:
        pod.until(lambda pod: processes_with(marker) and pod.state["containers"])
        pod.kill()
        until_gone(marker)


def test_a_pod_ends_when_its_directory_is_removed(runner: Any, marker: str) -> None:
    script = f"sleep {marker} & while test ! -e {runner.shared}/flag; do sleep 0.01; done"
    mounts = [{"source": str(runner.shared), "target": str(runner.shared), "readOnly": False}]
    with runner.run(container(script, mounts=mounts), container("exec sleep 600", name="other")) as pod:
        pod.until(lambda pod: processes_with(marker) and pod.state["containers"])
        pod.directory.rename(runner.shared / "moved")
        (runner.shared / "flag").touch()
        assert pod.process.wait(10) is not None
        until_gone(marker)


def test_a_pod_whose_supervisor_was_killed_is_restarted_by_its_policy(runner: Any, marker: str) -> None:
    with runner.run(container(f"exec sleep {marker}"), restartPolicy="OnFailure") as pod:
        pod.until(lambda pod: pod.state["containers"])
        pod.kill()
        until_gone(marker)
    lost = container_status.without_supervisor(pod.state, "OnFailure", container_status.timestamp(time.time_ns()))
    assert not lost["finished"]
    write_json(str(pod.directory / "state.json"), lost)
    runner.user.own(pod.directory / "state.json")
    with supervised_again(runner.user, pod.directory) as again:
        again.until(lambda pod: "running" in pod.container()["state"])
        record = again.container()
    assert record["restarts"] == 1
    assert record["last"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert record["last"]["terminated"]["exitCode"] == 137


def test_one_pod_has_one_supervisor(runner: Any) -> None:
    with runner.run(container("exec sleep 600")) as pod:
        pod.until(lambda pod: pod.state["containers"])
        with supervised_again(runner.user, pod.directory) as second:
            assert second.process.wait(10) == EXIT_ALREADY_SUPERVISED
        assert "running" in pod.container()["state"]


def test_the_agent_is_notified_of_every_change(runner: Any) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(runner.node / "agent.sock"))
        runner.user.own(runner.node / "agent.sock")
        agent.settimeout(10)
        with runner.run(container("sleep 0.05")) as pod:
            assert agent.recv(100) == b"uid"
            assert "running" in pod.container()["state"] or pod.state["finished"]
            assert agent.recv(100) == b"uid"
            pod.wait()


def test_a_supervisor_is_small(runner: Any) -> None:
    with runner.run(container("exec sleep 600")) as pod:
        pod.until(lambda pod: pod.state["containers"])
        pid = read_json(str(pod.directory / "supervisor.json"))["pid"]
        modules = Path(f"/proc/{pid}/maps").read_text()
        memory = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line)
    assert int(memory.split()[1]) < 16 * 1024
    assert "_asyncio" not in modules
    assert "msgspec" not in modules


def test_the_supervisor_needs_nothing_but_the_standard_library() -> None:
    program = (
        "import sys; sys.path.append(sys.argv[1]); import trainwright.cluster.node.supervisor.main_loop; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names))"
    )
    source = str(Path(container_status.__file__).parents[5])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, source], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['__main__', 'trainwright']"
