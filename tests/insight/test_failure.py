"""Which of several failed ranks failed first, and its probable cause."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.insight.failure import Failure, failures_of, first_failure, probable_cause, relevant_lines, signal_name
from trainwright.objects.pods import Pod, read_pod


def pod(name: str = "job-worker-0", *, phase: str = "Failed", **status: Any) -> Pod:
    annotations = {"node.trainwright.dev/python": "/opt/env/bin/python"}
    return read_pod({"metadata": {"name": name, "annotations": annotations}, "status": {"phase": phase, **status}})


def terminated(code: int, *, at: str = "2026-11-15T10:00:00Z", reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}


def failed(rank: str, *, at: int = 0, code: int = 1, lines: tuple[str, ...] = (), reason: str = "Error") -> Failure:
    return Failure(rank, f"job-{rank}", "pytorch", code, reason, "", f"2026-11-15T10:00:{at:02}Z", lines)


LOST = ("RuntimeError: [/gloo/pair.cc:123] Connection closed by peer [127.0.0.1]:4242",)


def test_a_failed_container_is_reported_with_its_python() -> None:
    status = {"name": "pytorch", "state": terminated(3)}
    assert failures_of(pod(containerStatuses=[status]), "worker-0", ["last line"]) == [
        Failure(
            rank="worker-0",
            pod="job-worker-0",
            container="pytorch",
            exit_code=3,
            reason="Error",
            finished_at="2026-11-15T10:00:00Z",
            last_lines=("last line",),
            python="/opt/env/bin/python",
        )
    ]


def test_the_previous_run_of_a_restarted_container_counts() -> None:
    status = {"name": "pytorch", "state": {"running": {}}, "lastState": terminated(137), "restartCount": 1}
    assert [
        failure.exit_code for failure in failures_of(pod(phase="Running", containerStatuses=[status]), "worker-0", [])
    ] == [137]


def test_a_completed_container_is_not_a_failure() -> None:
    status = {"name": "pytorch", "state": terminated(0, reason="Completed")}
    assert failures_of(pod(phase="Succeeded", containerStatuses=[status]), "worker-0", []) == []


def test_a_failed_init_container_counts() -> None:
    status = {"name": "wait", "state": terminated(2)}
    [failure] = failures_of(pod(initContainerStatuses=[status]), "worker-0", [])
    assert (failure.container, failure.exit_code) == ("wait", 2)


def test_a_pod_that_failed_without_a_container_has_its_own_reason() -> None:
    [failure] = failures_of(pod(reason="Evicted", message="The node was low on memory"), "worker-0", [])
    assert (failure.reason, failure.message) == ("Evicted", "The node was low on memory")
    assert failure.description == "Evicted (exit code 1)"


def test_the_earliest_failure_is_the_first() -> None:
    first = first_failure([failed("master-0", at=5), failed("worker-1", at=2), failed("worker-0", at=9)])
    assert first is not None
    assert first.rank == "worker-1"


def test_a_rank_that_reports_a_lost_peer_is_not_the_first() -> None:
    first = first_failure([failed("master-0", at=1, lines=LOST), failed("worker-1", at=2, code=3)])
    assert first is not None
    assert first.rank == "worker-1"


def test_a_killed_rank_is_the_first_even_if_it_reported_a_lost_peer() -> None:
    first = first_failure([failed("master-0", at=1, lines=LOST), failed("worker-1", at=1, code=137, lines=LOST)])
    assert first is not None
    assert first.rank == "worker-1"


JAX_SHUTDOWN = (
    (
        "F1115 19:41:36.078568    8978 client.h:80] Terminating process because the JAX distributed service detected "
        "fatal errors. This most likely indicates that another task died; see the other task logs for more details."
    ),
    "RPC: /xla.coordination.CoordinationService/PollForError [googleapis.com/tensorflow.CoordinationServiceError='']",
    "*** Check failure stack trace: ***",
    "    @     0x7f155d040634  absl::lts_20260107::log_internal::LogMessage::SendToLog()",
)
TRACEBACK = ("Traceback (most recent call last):", '  File "train.py", line 16, in <module>', "    main()")
XGBOOST_RETRY = (
    "UserWarning: [19:42:52] WARNING: /src/collective/socket.cc:143: Failed to connect to:127.0.0.1:9999 Error:",
    "- [socket.h:348|19:42:52]: Socket error. Connection refused",
)
PADDLE_KILLED = (
    "LAUNCH ERROR 2026-11-15 19:49:51,646 Container failed !!!",
    "Container rank 0 status failed cmd ['/opt/env/bin/python', '-u', 'train.py'] code -9 log log/workerlog.0",
    "LAUNCH INFO 2026-11-15 19:49:51,646 Exit code -9",
)
LOST_PEERS = {
    "jax": JAX_SHUTDOWN,
    "jax with gloo": (
        *TRACEBACK,
        (
            "ValueError: UNKNOWN: Gloo AllGather failed: [external/gloo/gloo/transport/tcp/pair.cc:538] Read error "
            "[127.0.0.1]:14262: Connection reset by peer"
        ),
        *JAX_SHUTDOWN,
    ),
    "tensorflow collectives": (
        *TRACEBACK,
        "tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error:",
        "",
        "Detected at node CollectiveReduceV2 defined at (most recent call last):",
        '  File "train.py", line 16, in <module>',
        "",
        "Collective ops is aborted by: Error reported from /job:worker/task:1: The following tasks are unhealthy",
        "/job:worker/replica:0/task:1",
    ),
    "tensorflow parameter server": (
        *TRACEBACK,
        "tensorflow.python.framework.errors_impl.UnavailableError: Socket closed",
        "Additional GRPC error information from remote target /job:ps/replica:0/task:0:",
    ),
    "xgboost": (
        *TRACEBACK,
        "xgboost.core.XGBoostError: [19:43:11] /workspace/src/collective/result.cc:83: [histogram.h:197|19:43:11]:",
        "",
        "- [allreduce.cc:135|19:43:11]: Ring Allreduce failed.",
        "- [loop.cc:101|19:43:11]: Encountered EOF. The other end is likely closed.",
        "- [socket.h:348|19:43:11]: Socket error. Broken pipe",
        "Stack trace:",
        "  [bt] (0) /site-packages/xgboost/lib/libxgboost.so(+0x11031e) [0x7fabe611031e]",
    ),
    "paddle": (
        *TRACEBACK,
        "RuntimeError: [/paddle/third_party/gloo/gloo/transport/tcp/pair.cc:584] TIMEOUT self_rank = 0 pair_rank = 1",
        "LAUNCH INFO 2026-11-15 19:49:54,549 Exit code 1",
    ),
    "torch": (*(f"[rank0]: {line}" for line in TRACEBACK), "[rank0]: torch.distributed.DistNetworkError: recv failed"),
}


@pytest.mark.parametrize("lines", LOST_PEERS.values(), ids=LOST_PEERS.keys())
@pytest.mark.parametrize("code", [1, 134])
def test_a_rank_of_any_framework_that_reports_a_lost_peer_is_not_the_first(code: int, lines: tuple[str, ...]) -> None:
    first = first_failure([failed("chief-0", at=1, code=code, lines=lines), failed("worker-1", at=2, code=3)])
    assert first is not None
    assert first.rank == "worker-1"


@pytest.mark.parametrize("further", [JAX_SHUTDOWN, LOST], ids=["jax", "gloo"])
def test_a_rank_with_an_exception_of_its_own_is_the_first_although_its_framework_reports_a_lost_peer(
    further: tuple[str, ...],
) -> None:
    boom = (*XGBOOST_RETRY, *TRACEBACK, "ValueError: boom")
    own = (*boom, "During handling of the above exception, another exception occurred:", "", *TRACEBACK, *further)
    for lines in (own, (*boom, *JAX_SHUTDOWN)):
        first = first_failure(
            [failed("worker-0", code=134, lines=JAX_SHUTDOWN), failed("worker-1", code=134, lines=lines)]
        )
        assert first is not None
        assert first.rank == "worker-1"


def test_an_exception_that_the_program_has_handled_before_is_not_the_cause() -> None:
    handled = (*TRACEBACK, "ValueError: handled", "continuing with the defaults", *TRACEBACK)
    first = first_failure([failed("worker-0", lines=(*handled, *LOST)), failed("worker-1", at=1, code=3)])
    assert first is not None
    assert first.rank == "worker-1"


def test_a_much_later_failure_is_not_the_cause() -> None:
    first = first_failure([failed("master-0", at=1, lines=LOST), failed("worker-1", at=59, code=3)])
    assert first is not None
    assert first.rank == "master-0"


def test_without_failures_none_is_the_first() -> None:
    assert first_failure([]) is None


@given(
    st.lists(
        st.builds(
            Failure,
            rank=st.sampled_from(["master-0", "worker-0", "worker-1"]),
            pod=st.text(),
            container=st.text(),
            exit_code=st.integers(-10, 300),
            reason=st.text(),
            finished_at=st.sampled_from(["", "soon", "2026-11-15T10:00:00Z", "2026-11-15T10:00:01Z"]),
            last_lines=st.lists(st.text()).map(tuple),
        ),
        min_size=1,
    )
)
def test_one_of_the_failures_is_always_the_first_and_can_be_explained(failures: list[Failure]) -> None:
    first = first_failure(failures)
    assert first in failures
    assert first.description
    assert probable_cause(first) != ""


@pytest.mark.parametrize(
    ("failure", "description"),
    [
        (failed("r", code=1), "exit code 1"),
        (failed("r", code=137), "exit code 137 (SIGKILL)"),
        (failed("r", code=139), "exit code 139 (SIGSEGV)"),
        (failed("r", code=137, reason="OOMKilled"), "OOMKilled (exit code 137)"),
        (failed("r", code=255), "exit code 255"),
    ],
)
def test_the_description_has_exit_code_and_signal(failure: Failure, description: str) -> None:
    assert failure.description == description


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (failed("r", reason="OOMKilled", code=137), "resources.limits.memory"),
        (failed("r", lines=("ModuleNotFoundError: No module named 'torch'",)), "module torch is not installed"),
        (failed("r", lines=("/usr/bin/python3: No module named torch.distributed",)), "module torch.distributed"),
        (failed("r", code=2, lines=("python: can't open file '/x/trian.py': [Errno 2] No such file",)), "/x/trian.py"),
        (failed("r", lines=("Train Epoch: 1 [0/10 (0%)] loss=nan",)), "learning rate"),
        (failed("r", lines=("OSError: [Errno 98] Address already in use",)), "uses its port"),
        (failed("r", code=134, lines=JAX_SHUTDOWN), "see the logs of the other pods"),
        (failed("r", code=134, lines=("*** stack smashing detected ***",)), "native code"),
        (failed("r", code=247, lines=PADDLE_KILLED), "killed"),
        (failed("r", code=127), "`command`"),
        (failed("r", code=126), "executable"),
        (failed("r", code=137), "killed"),
        (failed("r", code=139), "native code"),
    ],
)
def test_well_known_causes_name_the_fix(failure: Failure, words: str) -> None:
    assert words in (probable_cause(failure) or "")


def test_a_missing_module_is_reported_with_the_python() -> None:
    status = {"name": "pytorch", "state": terminated(1)}
    [failure] = failures_of(
        pod(containerStatuses=[status]), "worker-0", ["ModuleNotFoundError: No module named 'torch'"]
    )
    assert "/opt/env/bin/python" in (probable_cause(failure) or "")


def test_an_unknown_cause_is_not_guessed() -> None:
    assert probable_cause(failed("r", lines=("ValueError: bad",))) is None


def test_an_exception_before_the_abort_of_the_process_is_no_crash() -> None:
    assert probable_cause(failed("r", code=134, lines=(*TRACEBACK, "ValueError: boom", *JAX_SHUTDOWN))) is None


def test_signals_have_names_and_other_codes_have_none() -> None:
    assert signal_name(143) == "SIGTERM"
    assert signal_name(1) is None
    assert signal_name(254) is None


def test_a_traceback_is_shown_from_its_beginning() -> None:
    traceback = ["Traceback (most recent call last):", '  File "train.py", line 3', "    boom()", "ValueError: boom"]
    assert relevant_lines([*[f"line {n}" for n in range(50)], *traceback], limit=3) == traceback


def test_native_stack_frames_are_not_shown() -> None:
    assert relevant_lines([*TRACEBACK, "ValueError: boom", *JAX_SHUTDOWN]) == [
        *TRACEBACK,
        "ValueError: boom",
        *JAX_SHUTDOWN[:2],
    ]
    assert relevant_lines(["before", *LOST_PEERS["xgboost"][-1:]]) == ["before"]


def test_without_a_traceback_the_last_lines_are_shown() -> None:
    assert relevant_lines(["a", "", "b", "  ", "c\n"], limit=2) == ["b", "c"]
