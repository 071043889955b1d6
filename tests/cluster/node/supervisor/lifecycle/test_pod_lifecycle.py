"""Probes, hooks, sidecars and deadlines under real supervisors: as root and as an ordinary user, in both sandboxes."""

import json
import os
import secrets
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.supervised_pods import SupervisedPod, container
from trainwright.cluster.node.supervisor.files import read_json
from trainwright.cluster.node.supervisor.pod_events import read_events

pytestmark = pytest.mark.thorough("root-overlay", "root-plain", "ordinary-plain", sample=22)

SLEEP = "trap 'exit 0' TERM; while :; do sleep 0.01; done"


def sleep_after(command: str) -> str:
    """The same; the command shows that SIGTERM is handled from now on."""
    return SLEEP.replace("while", f"{command}; while")


def shared(runner: Any) -> dict[str, Any]:
    return {"mounts": [{"source": str(runner.shared), "target": str(runner.shared), "readOnly": False}]}


def probe(handler: dict[str, Any], **fields: Any) -> dict[str, Any]:
    usual = {"delay": 0, "period": 0.05, "timeout": 5, "success": 1, "failure": 1}
    return {"handler": handler, **usual, **fields}


def shell(script: str) -> dict[str, Any]:
    return {"exec": ["/bin/sh", "-c", script]}


def events(pod: SupervisedPod, reason: str) -> list[str]:
    return [event["message"] for event in read_events(str(pod.directory)) if event["reason"] == reason]


def is_ready(pod: SupervisedPod, name: str = "main") -> bool:
    return bool(pod.container(name).get("ready"))


def test_readiness_follows_an_exec_probe(runner: Any) -> None:
    flag = runner.shared / "flag"
    readiness = probe(shell(f"test -e {flag} || {{ echo no flag; exit 1; }}"))
    with runner.run(container(SLEEP, probes={"readiness": readiness}, **shared(runner))) as pod:
        pod.until(
            lambda pod: (
                events(pod, "Unhealthy") == ["Readiness probe failed: no flag\n"] or len(events(pod, "Unhealthy")) > 1
            )
        )
        assert set(events(pod, "Unhealthy")) == {"Readiness probe failed: no flag\n"}
        assert pod.container()["started"]
        assert not is_ready(pod)
        flag.touch()
        pod.until(is_ready)
        flag.unlink()
        pod.until(lambda pod: not is_ready(pod))
        assert pod.container()["restarts"] == 0


def test_an_exec_probe_runs_in_the_container(runner: Any) -> None:
    file = Path(f"/tmp/here-{secrets.token_hex(4)}")
    script = f"touch {file}; " + SLEEP
    checks = f'[ "$OWN" = 1 ] && [ "$PWD" = /usr ] && test -e {file}'
    subject = container(script, env={"OWN": "1"}, cwd="/usr", probes={"readiness": probe(shell(checks))})
    with runner.run(subject) as pod:
        pod.until(is_ready)
    if runner.sandbox.level == "plain":
        file.unlink()


def test_a_failed_liveness_probe_restarts_the_container_regardless_of_its_exit_code(runner: Any) -> None:
    flag = runner.shared / "flag"
    liveness = probe(shell(f"test ! -e {flag}"), failure=2)
    script = sleep_after(f"touch {flag}").replace("exit", f"rm {flag}; exit")
    with runner.run(
        container(script, probes={"liveness": liveness}, **shared(runner)), restartPolicy="OnFailure"
    ) as pod:
        pod.until(lambda pod: pod.container()["restarts"] >= 1)
        assert pod.container()["last"]["terminated"]["exitCode"] == 0
        assert events(pod, "Killing")[0] == "Container main failed liveness probe, will be restarted"
        assert events(pod, "Unhealthy")[:2] == ["Liveness probe failed: "] * 2


def test_a_failed_liveness_probe_ends_a_pod_that_never_restarts(runner: Any) -> None:
    liveness = probe(shell("exit 1"), grace=600)
    with runner.run(container("trap '' TERM; sleep 600", probes={"liveness": liveness}), grace=0.1) as pod:
        pod.wait()
    assert pod.container()["state"]["terminated"]["exitCode"] in {137, 143}  # perhaps before its trap is set
    assert events(pod, "Killing") == ["Stopping container main"]


def test_a_failed_probe_has_a_grace_period_of_its_own(runner: Any) -> None:
    liveness = probe(shell("exit 1"), grace=0)
    subject = container("trap '' TERM; sleep 600", probes={"liveness": liveness})
    with runner.run(subject, container(SLEEP, name="other"), grace=600) as pod:
        pod.until(lambda pod: "terminated" in pod.container()["state"])
        assert pod.container()["state"]["terminated"]["exitCode"] in {137, 143}
        assert events(pod, "Killing") == ["Container main failed liveness probe"]
        assert "running" in pod.container("other")["state"]


def test_other_probes_wait_for_the_startup_probe(runner: Any) -> None:
    flag = runner.shared / "flag"
    probes = {
        "startup": probe(shell(f"test -e {flag}"), failure=10_000),
        "readiness": probe(shell("true")),
        "liveness": probe(shell(f"test -e {flag}")),
    }
    with runner.run(container(SLEEP, probes=probes, **shared(runner)), restartPolicy="Always") as pod:
        pod.until(lambda pod: len(events(pod, "Unhealthy")) > 2)
        assert set(events(pod, "Unhealthy")) == {"Startup probe failed: "}
        assert (pod.container()["started"], is_ready(pod)) == (False, False)
        flag.touch()
        pod.until(is_ready)
        assert pod.container()["started"]
        assert pod.container()["restarts"] == 0


def test_a_failed_startup_probe_restarts_the_container(runner: Any) -> None:
    startup = probe(shell("false"), failure=2)
    with runner.run(container(SLEEP, probes={"startup": startup}), restartPolicy="Always") as pod:
        pod.until(lambda pod: pod.container()["restarts"] == 1)
        assert events(pod, "Killing")[0] == "Container main failed startup probe, will be restarted"


def test_a_probe_command_that_takes_too_long_is_killed_and_fails(runner: Any) -> None:
    readiness = probe({"exec": ["sleep", "600"]}, timeout=0.1)
    with runner.run(container(SLEEP, probes={"readiness": readiness})) as pod:
        pod.until(lambda pod: events(pod, "Unhealthy"))
        message = 'Readiness probe failed: command timed out: "sleep 600" timed out after 0.1s'
        assert events(pod, "Unhealthy")[0] == message


def test_a_probe_command_that_cannot_be_run_is_an_error_and_no_failure(runner: Any) -> None:
    liveness = probe({"exec": ["no-such-program"]})
    with runner.run(container(SLEEP, probes={"liveness": liveness}), restartPolicy="Always") as pod:
        pod.until(lambda pod: len(events(pod, "Unhealthy")) >= 2)
        error = 'exec: "no-such-program": executable file not found in $PATH'
        assert set(events(pod, "Unhealthy")) == {f"Liveness probe errored and resulted in unknown state: {error}"}
        assert pod.container()["restarts"] == 0


def test_readiness_follows_a_tcp_probe(runner: Any) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        readiness = probe({"tcp": {"host": "127.0.0.1", "port": port}})
        with runner.run(container(SLEEP, probes={"readiness": readiness})) as pod:
            pod.until(lambda pod: events(pod, "Unhealthy"))
            refused = f"Readiness probe failed: dial tcp 127.0.0.1:{port}: connect: connection refused"
            assert events(pod, "Unhealthy")[0] == refused
            listener.listen()
            pod.until(is_ready)


def test_a_container_is_running_after_its_post_start_hook_and_the_next_one_starts_then(runner: Any) -> None:
    flag = runner.shared / "flag"
    hook = shell(f"touch {runner.shared}/began; while test ! -e {flag}; do sleep 0.01; done")
    first = container(SLEEP, name="first", hooks={"postStart": hook}, **shared(runner))
    with runner.run(first, container(SLEEP, name="second")) as pod:
        pod.until(lambda _: (runner.shared / "began").exists())
        assert not pod.state["containers"], "nothing is running yet"
        flag.touch()
        pod.until(lambda pod: "running" in pod.container("second")["state"])
        assert "running" in pod.container("first")["state"]


def test_a_failed_post_start_hook_kills_the_container(runner: Any) -> None:
    with runner.run(container(SLEEP, hooks={"postStart": shell("exit 3")})) as pod:
        pod.wait()
    assert events(pod, "FailedPostStartHook") == ["PostStartHook failed"]
    assert events(pod, "Killing") == ["FailedPostStartHook"]


def test_the_pre_stop_hook_runs_before_sigterm(runner: Any) -> None:
    script = f"trap 'echo term; cat {runner.shared}/hook; exit 0' TERM; echo up; while :; do sleep 0.01; done"
    hook = shell(f"sleep 0.1; echo from the hook > {runner.shared}/hook")
    with runner.run(container(script, hooks={"preStop": hook}, **shared(runner))) as pod:
        pod.until(lambda pod: pod.output() == ["up"])
        pod.stop()
        pod.wait()
    assert pod.output() == ["up", "term", "from the hook"]
    assert not events(pod, "FailedPreStopHook")


@pytest.mark.parametrize("hook", [shell("exit 1"), {"sleep": 600}, {"error": "invalid port number: 0"}])
def test_a_failed_pre_stop_hook_is_an_event_and_the_container_ends(runner: Any, hook: dict[str, Any]) -> None:
    with runner.run(container(sleep_after("echo up"), hooks={"preStop": hook}), grace=1) as pod:
        pod.until(lambda pod: pod.output() == ["up"])
        pod.stop()
        pod.wait()
    assert pod.container()["state"]["terminated"]["exitCode"] == 0
    assert events(pod, "FailedPreStopHook") == ["PreStopHook failed"]


def test_a_pod_with_a_sidecar_completes_without_it(runner: Any) -> None:
    log = runner.shared / "log"
    script = "trap 'echo NAME ends >> LOG; exit 7' TERM; echo NAME >> LOG; while :; do sleep 0.01; done"
    sidecars = [
        container(script.replace("NAME", name).replace("LOG", str(log)), name=name, sidecar=True, **shared(runner))
        for name in ("first", "second")
    ]
    for sidecar in sidecars:
        sidecar["probes"] = {"startup": probe(shell(f"grep {sidecar['name']} {log}"), failure=10_000)}
    setup = container(f"echo setup >> {log}", name="setup", **shared(runner))
    main = container(f"echo main >> {log}", **shared(runner))
    with runner.run(main, initContainers=[sidecars[0], setup, sidecars[1]]) as pod:
        state = pod.wait()
    assert log.read_text().split("\n")[:-1] == [
        *("first", "setup", "second", "main"),
        *("second ends", "first ends"),
    ]
    assert pod.container("first")["state"]["terminated"]["exitCode"] == 7
    assert pod.container()["state"]["terminated"]["exitCode"] == 0
    assert state["reason"] == ""
    assert events(pod, "Killing") == ["Stopping container first", "Stopping container second"]


def test_a_sidecar_restarts_in_a_pod_that_never_restarts(runner: Any) -> None:
    sidecar = container("exit 1", name="sidecar", sidecar=True)
    flag = runner.shared / "flag"
    main = container(f"while test ! -e {flag}; do sleep 0.01; done", **shared(runner))
    with runner.run(main, initContainers=[{**sidecar, "argv": ["/bin/sh", "-c", "sleep 0.05; exit 1"]}]) as pod:
        pod.until(lambda pod: pod.container("sidecar")["restarts"] >= 2 and "running" in pod.container()["state"])
        flag.touch()
        pod.wait()
    assert pod.container()["restarts"] == 0
    assert "terminated" in pod.container("sidecar")["state"]


def test_a_failed_init_container_ends_the_sidecars_before_it(runner: Any) -> None:
    flag = runner.shared / "flag"
    sidecar = container(sleep_after(f"touch {flag}"), name="sidecar", sidecar=True, **shared(runner))
    setup = container(f"while test ! -e {flag}; do sleep 0.01; done; exit 3", name="setup", **shared(runner))
    with runner.run(container("true"), initContainers=[sidecar, setup]) as pod:
        pod.wait()
    assert pod.container("sidecar")["state"]["terminated"]["exitCode"] == 0
    assert "waiting" in pod.container()["state"]


def change_config(pod: SupervisedPod, **fields: Any) -> None:
    """As the agent does when the pod's spec has changed."""
    config = read_json(str(pod.directory / "pod.json"))
    (pod.directory / "pod.json").write_text(json.dumps({**config, **fields}))
    os.kill(read_json(str(pod.directory / "supervisor.json"))["pid"], signal.SIGHUP)


def test_a_pod_ends_at_its_deadline(runner: Any) -> None:
    with runner.run(container(SLEEP), deadlineAt=None, restartPolicy="Always") as pod:
        pod.until(lambda pod: "running" in pod.container()["state"])
        change_config(pod, deadlineAt=time.time() + 0.1)
        state = pod.wait()
    text = "Pod was active on the node longer than the specified deadline"
    assert (state["reason"], state["message"]) == ("DeadlineExceeded", text)
    assert pod.container()["state"]["terminated"]["exitCode"] in {0, 143}  # perhaps before its trap is set
    assert events(pod, "DeadlineExceeded") == [text]


def test_a_changed_image_restarts_the_container_regardless_of_the_restart_policy(runner: Any) -> None:
    with runner.run(container(SLEEP, image="one"), deadlineAt=None) as pod:
        pod.until(lambda pod: "running" in pod.container()["state"])
        main = read_json(str(pod.directory / "pod.json"))["containers"][0]
        change_config(pod, containers=[{**main, "image": "two"}])
        pod.until(lambda pod: pod.container()["restarts"] == 1 and "running" in pod.container()["state"])
        assert events(pod, "Killing") == ["Container main definition changed, will be restarted"]


def test_the_termination_message_of_a_container_is_in_its_status(runner: Any) -> None:
    file = runner.node / "pods" / "uid" / "message"
    settings = {"file": str(file), "policy": "FallbackToLogsOnError"}
    mounts = [{"source": str(file), "target": "/var/message", "readOnly": False}]
    target = "/var/message" if runner.sandbox.level == "overlay" else str(file)
    once = runner.shared / "once"
    script = f"test -e {once} && echo the end && exit 1; touch {once}; echo why > {target}; exit 2"
    subject = container(script, terminationMessage=settings, mounts=[*mounts, *shared(runner)["mounts"]])
    with runner.run(subject, restartPolicy="OnFailure", files={"message": ""}) as pod:
        pod.until(lambda pod: len(pod.container().get("runs", [])) >= 2)
        assert [run["message"] for run in pod.container()["runs"][:2]] == ["why\n", "the end\n"]
