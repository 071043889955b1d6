"""Which of several failed ranks failed first, why, and which ranks only followed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.insight.first_failing_rank import Diagnosis, first_failure
from trainwright.insight.process_end import Cause
from trainwright.objects.kinds.container_runs import ContainerRun, Line

NOW = 1_800_000_000.0
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
NATIVE_FRAMES = [f"frame #{number}: c10::detail() + 0x9d (0x7f in libc10.so)" for number in range(60)]
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
LOST = (*TRACEBACK, "RuntimeError: [/gloo/pair.cc:123] Connection closed by peer [127.0.0.1]:4242")
TIMED_OUT = (*TRACEBACK, "RuntimeError: [/gloo/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation")
UNREACHABLE = (*TRACEBACK, "torch.distributed.DistNetworkError: The client socket has timed out after 6000ms")
BOOM = (*TRACEBACK, "ValueError: boom")


def run(
    rank: str,
    *texts: str,
    code: int | None = 1,
    at: float = 0.0,
    written: float | None = None,
    exact: bool = True,
    reason: str = "Error",
    number: int = 0,
    python: str = "",
    directory: str = "",
    missing_image: str = "",
) -> ContainerRun:
    """A run that ended `at` seconds; its lines were written 0.2 s earlier, unless `exact` is False."""
    time = at - 0.2 if written is None else written
    return ContainerRun(
        rank=rank,
        pod=f"job-{rank}",
        container="pytorch",
        number=number,
        exit_code=code,
        reason=reason,
        finished_at=None if code is None else NOW + (at if exact else int(at)),
        exact=exact,
        lines=tuple(Line(text, NOW + time if exact else None) for text in texts),
        python=python,
        directory=directory,
        missing_image=missing_image,
    )


def named(*runs: ContainerRun) -> Diagnosis:
    found = first_failure(runs)
    assert found is not None
    return found


def test_a_job_without_a_failed_run_has_no_diagnosis() -> None:
    assert first_failure([]) is None
    assert first_failure([run("master-0", code=None), run("worker-0", code=0)]) is None


def test_the_earliest_failure_is_the_first() -> None:
    found = named(run("master-0", code=5, at=5.0), run("worker-1", *BOOM, at=4.99), run("worker-0", *LOST, at=5.1))
    assert (found.rank, found.cause, found.summary) == ("worker-1", Cause.EXCEPTION, "ValueError: boom")
    assert found.followers == ("master-0", "worker-0")
    assert found.headline == "worker-1 failed first: ValueError: boom"
    assert found.evidence == BOOM
    assert found.certain


def test_a_rank_that_lost_its_peer_only_followed_even_if_it_ended_first() -> None:
    found = named(run("master-0", *LOST, at=1.0), run("worker-1", *BOOM, at=4.0))
    assert (found.rank, found.followers) == ("worker-1", ("master-0",))


def test_the_traceback_decides_and_not_the_end_of_the_process() -> None:
    slow = run("worker-1", *BOOM, at=9.0, written=0.5)
    found = named(run("master-0", "aborting", at=1.0), run("worker-0", at=1.1), slow)
    assert found.rank == "worker-1"


def test_a_rank_that_still_runs_its_shutdown_hooks_is_the_first() -> None:
    found = named(run("master-0", *TIMED_OUT, at=6.0), run("worker-1", *BOOM, code=None, written=0.1))
    assert (found.rank, found.cause) == ("worker-1", Cause.EXCEPTION)


def test_a_rank_that_clean_up_ended_during_its_shutdown_hooks_is_the_first() -> None:
    found = named(run("master-0", *TIMED_OUT, at=6.0), run("worker-1", *BOOM, code=143, at=7.0, written=0.1))
    assert (found.rank, found.summary) == ("worker-1", "ValueError: boom")


@pytest.mark.parametrize("code", [143, 137])
def test_ranks_that_clean_up_ended_only_followed(code: int) -> None:
    found = named(run("master-0", code=code, at=40.0), run("worker-0", *BOOM, at=1.0))
    assert (found.rank, found.followers) == ("worker-0", ("master-0",))
    lost = named(run("master-0", code=code, at=40.0), run("worker-0", *LOST, at=1.0))
    assert lost.rank is None


@pytest.mark.parametrize(("code", "cause"), [(143, Cause.TERMINATED), (137, Cause.KILLED)])
def test_a_rank_that_a_signal_ended_before_any_other_is_the_first(code: int, cause: Cause) -> None:
    found = named(run("master-0", *LOST, at=1.1), run("worker-1", code=code, at=1.0), run("worker-0", *LOST, at=1.2))
    assert (found.rank, found.cause) == ("worker-1", cause)


def test_the_rank_that_ended_with_exit_code_0_before_its_peers_lost_it_is_the_first() -> None:
    found = named(run("worker-1", code=0, at=1.0), run("master-0", *LOST, at=1.4), run("worker-0", *LOST, at=1.5))
    assert (found.rank, found.cause, found.exit_code) == ("worker-1", Cause.EARLY_EXIT, 0)


@pytest.mark.parametrize("code", [None, 143])
def test_the_only_rank_that_does_not_wait_is_the_one_that_others_waited_for(code: int | None) -> None:
    found = named(
        run("master-0", *TIMED_OUT, at=6.0), run("worker-0", *LOST, at=6.1), run("worker-1", code=code, at=6.5)
    )
    assert (found.rank, found.cause) == ("worker-1", Cause.TIMEOUT)
    assert "master-0 waited for it in vain" in found.summary


def test_of_several_ranks_that_others_waited_for_none_is_named() -> None:
    found = named(run("master-0", *TIMED_OUT, at=6.0), run("worker-0", code=None), run("worker-1", code=None))
    assert (found.rank, found.cause, found.certain) == (None, Cause.TIMEOUT, False)


def test_the_only_rank_that_does_not_find_its_peers_is_the_first() -> None:
    found = named(
        run("master-0", *TIMED_OUT, at=6.0), run("worker-0", code=143, at=6.4), run("worker-1", *UNREACHABLE, at=6.1)
    )
    assert (found.rank, found.cause) == ("worker-1", Cause.UNREACHABLE_PEER)


def test_if_no_rank_finds_the_master_the_master_is_missing() -> None:
    found = named(
        run("worker-0", *UNREACHABLE, at=6.0), run("worker-1", *UNREACHABLE, at=6.1), run("master-0", code=None)
    )
    assert (found.rank, found.cause) == ("master-0", Cause.TIMEOUT)


def test_ranks_that_fail_alike_by_themselves_did_not_follow() -> None:
    missing = (*TRACEBACK, "ModuleNotFoundError: No module named 'flash'")
    found = named(run("master-0", *missing, at=1.1), run("worker-0", *missing, at=1.0), run("worker-1", *LOST, at=1.3))
    assert (found.rank, found.alike, found.followers) == ("worker-0", ("master-0",), ("worker-1",))


def test_whole_seconds_do_not_decide_between_two_different_causes() -> None:
    found = named(
        run("master-0", *BOOM, exact=False, at=1), run("worker-0", *TRACEBACK, "KeyError: 'x'", exact=False, at=1)
    )
    assert (found.rank, found.certain) == (None, False)
    assert "ValueError: boom" in found.summary
    assert "KeyError: 'x'" in found.summary


def test_exit_code_1_of_a_rank_whose_log_was_not_read_does_not_show_that_it_failed_by_itself() -> None:
    found = named(run("master-0", exact=False, at=1), run("worker-0", code=None, exact=False))
    assert (found.rank, found.certain) == (None, False)
    assert found.summary == "master-0 ended first, with exit code 1; its log was not read"
    assert named(run("master-0", code=3, exact=False, at=1), run("worker-0", code=None, exact=False)).rank == "master-0"
    assert named(run("master-0", exact=False, at=1)).rank == "master-0"


def test_a_rank_whose_log_was_not_read_may_wait_too() -> None:
    found = named(run("master-0", *TIMED_OUT, exact=False, at=6), run("worker-0", code=None, exact=False))
    assert (found.rank, found.cause) == (None, Cause.TIMEOUT)


def test_sigterm_in_the_second_of_another_failure_is_clean_up() -> None:
    found = named(run("master-0", code=143, exact=False, at=6), run("worker-0", *BOOM, exact=False, at=6))
    assert (found.rank, found.followers) == ("worker-0", ("master-0",))


def test_with_whole_seconds_an_exception_is_preferred_to_a_mere_exit_code() -> None:
    found = named(run("master-0", exact=False, at=1), run("worker-0", *BOOM, exact=False, at=1))
    assert found.rank == "worker-0"


@pytest.mark.parametrize("lines", LOST_PEERS.values(), ids=LOST_PEERS.keys())
@pytest.mark.parametrize("code", [1, 134])
def test_a_rank_of_any_framework_that_lost_its_peer_only_followed(code: int, lines: tuple[str, ...]) -> None:
    found = named(run("chief-0", *lines, code=code, at=1), run("worker-1", code=3, at=2))
    assert (found.rank, found.followers) == ("worker-1", ("chief-0",))


@pytest.mark.parametrize("further", [JAX_SHUTDOWN, LOST], ids=["jax", "gloo"])
def test_a_rank_with_an_exception_of_its_own_is_first_although_its_framework_reports_a_lost_peer(
    further: tuple[str, ...],
) -> None:
    boom = (*XGBOOST_RETRY, *BOOM)
    own = (*boom, "During handling of the above exception, another exception occurred:", "", *TRACEBACK, *further)
    for lines in (own, (*boom, *JAX_SHUTDOWN)):
        found = named(run("worker-0", *JAX_SHUTDOWN, code=134), run("worker-1", *lines, code=134))
        assert found.rank == "worker-1"


def test_an_exception_that_hides_a_lost_peer_only_followed() -> None:
    hidden = (*LOST, "", "The above exception was the direct cause of the following exception:", "", *TRACEBACK)
    found = named(run("master-0", *hidden, "RuntimeError: aborted", at=1), run("worker-1", code=3, at=2))
    assert found.rank == "worker-1"


def test_an_exception_after_which_the_program_went_on_is_not_the_cause() -> None:
    found = named(run("worker-0", *BOOM, "retrying", "Train Epoch: 2 [64/640 (10%)] loss=0.5", code=3, exact=False))
    assert (found.cause, found.summary) == (Cause.EXIT_CODE, "exit code 3")


def test_the_last_failure_after_a_restart_is_explained() -> None:
    first = (run("worker-0", code=137, at=1.0), run("master-0", *LOST, at=1.2))
    second = (run("worker-0", *LOST, at=60.3, number=1), run("master-0", *BOOM, at=60.0, number=1))
    found = named(*first, *second)
    assert (found.rank, found.summary) == ("master-0", "ValueError: boom")


def test_an_init_container_that_a_restart_of_the_group_ended_is_not_the_cause() -> None:
    ended = ContainerRun(
        rank="worker-1", pod="job", container="init-pytorch", init=True, exit_code=143, finished_at=NOW
    )
    found = named(ended, run("worker-0", *BOOM, at=5.0), run("worker-1", code=143, at=6.0))
    assert (found.rank, found.followers) == ("worker-0", ("worker-1",))


def test_pods_that_were_replaced_before_are_not_the_first() -> None:
    replaced = (run("worker-0", code=143, at=1.0), run("worker-1", code=143, at=1.1))
    runs = (run("master-0", *BOOM, at=4.0), run("worker-0", *LOST, at=4.2), run("worker-1", code=None))
    found = named(*replaced, *runs)
    assert (found.rank, found.followers) == ("master-0", ("worker-0",))


def test_a_failure_long_before_the_last_one_is_another_incident() -> None:
    found = named(run("worker-0", code=137, at=1.0), run("master-0", *BOOM, at=100.0), run("worker-1", *LOST, at=100.2))
    assert found.rank == "master-0"


def test_a_signal_long_after_an_earlier_failure_and_before_the_end_of_the_job_is_the_first() -> None:
    found = first_failure(
        [run("worker-0", *BOOM, at=1.0), run("master-0", code=143, at=100.0)], job_failed_at=NOW + 101
    )
    assert found is not None
    assert (found.rank, found.cause) == ("master-0", Cause.TERMINATED)


def test_signals_after_the_end_of_the_job_are_clean_up() -> None:
    assert first_failure([run("master-0", code=143, at=5.0)], job_failed_at=NOW + 4) is None


def test_peers_that_fail_again_while_the_first_rank_restarts_do_not_hide_it() -> None:
    runs = (run("worker-0", code=137, at=1.0), run("master-0", *LOST, at=1.2), run("master-0", *LOST, at=3.0, number=1))
    assert named(*runs).rank == "worker-0"


TABLE = """\
E1115 10:00:00.000000 812 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1) local_rank: 1 \
(pid: 814) of binary: /opt/env/bin/python
Traceback (most recent call last):
  File "/opt/env/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/opt/env/lib/python3.11/site-packages/torch/distributed/run.py", line 936, in main
    run(args)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-15_10:00:00
  host      : job-worker-0
  rank      : 2 (local_rank: 0)
  exitcode  : 1 (pid: 813)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-15_10:00:00
  host      : job-worker-0
  rank      : 3 (local_rank: 1)
  exitcode  : CODE (pid: 814)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================"""


def test_the_programs_own_exception_is_quoted_and_not_the_table_of_torchrun() -> None:
    lost = [f"[rank2]: {line}" for line in LOST]
    own = [f"[rank3]: {line}" for line in BOOM]
    found = named(run("worker-0", *own, *lost, *TABLE.replace("CODE", "1").splitlines()))
    assert (found.rank, found.process, found.summary) == ("worker-0", "local rank 1", "ValueError: boom")
    assert found.headline == "worker-0 (local rank 1) failed first: ValueError: boom"


def test_lines_of_several_processes_may_be_mixed() -> None:
    mixed = [
        f"[rank{rank}]: {line}"
        for pair in zip(LOST, BOOM, strict=True)
        for rank, line in zip((2, 3), pair, strict=True)
    ]
    found = named(run("worker-0", *mixed, *TABLE.replace("CODE", "1").splitlines()))
    assert (found.process, found.summary) == ("local rank 1", "ValueError: boom")


def test_an_exception_before_the_process_knows_its_rank_is_that_of_the_silent_process() -> None:
    lost = [f"[rank2]: {line}" for line in LOST]
    found = named(run("worker-0", *BOOM, *lost, *TABLE.replace("CODE", "1").splitlines()))
    assert (found.process, found.summary) == ("local rank 1", "ValueError: boom")


def test_a_process_of_torchrun_that_a_signal_ended_has_its_signal() -> None:
    lost = [f"[rank2]: {line}" for line in LOST]
    found = named(run("worker-0", *lost, *TABLE.replace("CODE", "-9").splitlines()))
    assert (found.cause, found.exit_code, found.process) == (Cause.KILLED, 137, "local rank 1")


def test_torchrun_that_was_ended_with_its_processes_only_followed() -> None:
    launcher = TABLE.splitlines()[1:6]
    ended = run("master-0", *launcher, "SignalException: Process 12 got signal: 15", at=3.0)
    found = named(ended, run("worker-0", *BOOM, at=1.0))
    assert (found.rank, found.followers) == ("worker-0", ("master-0",))


lines = st.lists(
    st.sampled_from(
        [*LOST, *TIMED_OUT, *UNREACHABLE, *BOOM, *TABLE.splitlines(), *JAX_SHUTDOWN, "[rank1]: x", "", "ok"]
    )
    | st.text(max_size=20),
    max_size=30,
)
RANKS = ["master-0", "worker-0", "worker-1"]
any_run = st.builds(
    ContainerRun,
    rank=st.sampled_from(RANKS),
    pod=st.just("pod"),
    container=st.sampled_from(["", "pytorch"]),
    number=st.integers(0, 3),
    exit_code=st.none() | st.sampled_from([0, 1, 2, 3, 126, 127, 134, 137, 139, 143, 255, -1, 300]),
    reason=st.sampled_from(["", "Error", "OOMKilled", "Evicted", "Odd"]),
    finished_at=st.none() | st.floats(NOW, NOW + 100),
    exact=st.booleans(),
    lines=lines.map(lambda texts: tuple(Line(text) for text in texts)),
)


@given(st.lists(any_run, max_size=6))
def test_any_runs_have_a_diagnosis_of_one_of_their_ranks(runs: list[ContainerRun]) -> None:
    found = first_failure(runs)
    if found is None:
        return
    assert found.rank is None or found.rank in {one.rank for one in runs}
    assert found.summary
    assert "\n" not in found.summary
    assert found.rank not in found.followers
    assert found.rank is not None or found.cause


@given(
    culprit=st.sampled_from(RANKS),
    end=st.sampled_from([(1, BOOM), (3, ()), (139, ()), (134, ("terminate called",)), (127, ("sh: x: not found",))]),
    delays=st.tuples(st.floats(0.3, 5), st.floats(0.3, 5)),
    late=st.floats(0, 5),
    order=st.permutations([0, 1, 2]),
    cleaned=st.sampled_from([None, 143, 137]),
)
def test_the_rank_that_fails_by_itself_is_first_whatever_its_peers_do(
    culprit: str,
    end: tuple[int, tuple[str, ...]],
    delays: tuple[float, float],
    late: float,
    order: list[int],
    cleaned: int | None,
) -> None:
    """`late`: how long the process needs to end after its traceback; `cleaned`: clean-up ends the last peer."""
    code, texts = end
    own = run(culprit, *texts, code=code, at=1.0 + (late if texts is BOOM else 0), written=1.0)
    one, other = (rank for rank in RANKS if rank != culprit)
    peers = [run(one, *LOST, at=1.0 + delays[0]), run(other, *LOST, at=1.0 + delays[1])]
    if cleaned:
        peers[1] = run(other, code=cleaned, at=max(peers[0].finished_at or 0, own.finished_at or 0) - NOW + delays[1])
    runs = [own, *peers]
    found = named(*(runs[number] for number in order))
    assert found.rank == culprit
    assert set(found.followers) == {one, other}


@pytest.mark.parametrize(
    ("texts", "code", "cause", "words"),
    [
        (("ModuleNotFoundError: No module named 'torch'",), 1, Cause.MISSING_MODULE, "/opt/python"),
        (("FileNotFoundError: [Errno 2] No such file or directory: 'a.csv'",), 1, Cause.MISSING_FILE, "a.csv"),
        (("FileNotFoundError: a.csv",), 1, Cause.MISSING_FILE, "paths start in the working directory of the job"),
        (("OSError: [Errno 28] No space left on device",), 1, Cause.DISK_FULL, "free space"),
        (("PermissionError: [Errno 13] Permission denied: '/data'",), 1, Cause.PERMISSION_DENIED, "/data"),
        (("_pickle.UnpicklingError: invalid load key, 'x'.",), 1, Cause.CHECKPOINT, "invalid load key"),
        (
            ("torch.OutOfMemoryError: CUDA out of memory. Tried",),
            1,
            Cause.OUT_OF_MEMORY,
            "batch size",
        ),
        (("RuntimeError: Found no NVIDIA driver on your system.",), 1, Cause.NO_GPU, "resources.limits"),
        (("RuntimeError: Distributed package doesn't have MPI built in.",), 1, Cause.MISSING_BACKEND, "an MPIJob"),
        (("RuntimeError: Distributed package doesn't have NCCL built in",), 1, Cause.MISSING_BACKEND, "gloo"),
        (("OSError: [Errno 98] Address already in use",), 1, Cause.PORT_IN_USE, "port"),
        (("ValueError: loss is nan",), 1, Cause.NAN, "learning rate"),
    ],
)
def test_exceptions_are_classified(texts: tuple[str, ...], code: int, cause: Cause, words: str) -> None:
    found = named(run("r", *TRACEBACK, *texts, code=code, python="/opt/python"))
    assert found.cause is cause
    assert texts[0] in found.summary
    assert words in f"{found.summary} {found.advice}"


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("data/../a.csv", "the program looked for /home/me/job/a.csv, because it runs in /home/me/job"),
        ("/data/a.csv", "the working directory is /home/me/job; check the path and the volumes"),
        ("/tmp/a.csv", "pods have a /tmp of their own, except at sandbox plain: keep the file elsewhere, or mount its"),
    ],
)
def test_the_advice_for_a_missing_file_is_where_the_program_looked(path: str, advice: str) -> None:
    error = f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"
    assert named(run("r", *TRACEBACK, error, directory="/home/me/job")).advice.startswith(advice)


@pytest.mark.parametrize(
    ("line", "code", "directory"),
    [
        ("python: can't open file '/app/train.py': [Errno 2] No such file or directory", 2, "/"),
        ("python: can't open file '/app/train.py': [Errno 2] No such file or directory", 2, "/home/me/job"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/app/data.csv'", 1, "/home/me/job"),
        ("sh: 1: mpirun: not found", 127, "/"),
    ],
)
def test_a_file_of_an_image_that_is_missing(line: str, code: int, directory: str) -> None:
    lines = (*TRACEBACK, line) if code == 1 else (line,)
    found = named(run("r", *lines, code=code, directory=directory, missing_image="team/trainer:1.0"))
    assert found.advice == (
        "image team/trainer:1.0 is not on this machine, whose own files the pod has: build, pull or load the image "
        "with `trainwright image`"
    )


def test_a_misspelt_program_beside_the_manifest_is_not_blamed_on_the_image() -> None:
    line = "python: can't open file '/home/me/job/trian.py': [Errno 2] No such file or directory"
    found = named(run("r", line, code=2, directory="/home/me/job", missing_image="team/trainer:1.0"))
    assert found.advice == "the working directory is /home/me/job; check the path and the volumes"


def test_the_advice_for_a_syntax_error_is_its_place() -> None:
    place = ('  File "/job/model.py", line 3', "    def main(:", "             ^", "SyntaxError: invalid syntax")
    assert named(run("r", *place)).advice == "correct /job/model.py, line 3"
    imported = ("Traceback (most recent call last):", '  File "/job/train.py", line 1, in <module>', "    import model")
    assert named(run("r", *imported, *place)).advice == "correct /job/model.py, line 3"
    assert named(run("r", *imported, *place)).cause is Cause.SYNTAX_ERROR


NO_SPECIFICATION = (
    "/bin/python3: Error while finding module specification for 'torch.distributed.run' "
    "(ModuleNotFoundError: No module named 'torch')"
)


@pytest.mark.parametrize(
    ("one", "cause", "words"),
    [
        (run("r", code=137, reason="OOMKilled"), Cause.OUT_OF_MEMORY, "resources.limits.memory"),
        (run("r", "/bin/python3: No module named torch.x", python="/p"), Cause.MISSING_MODULE, "/p"),
        (run("r", NO_SPECIFICATION), Cause.MISSING_MODULE, "No module named torch module torch is not installed"),
        (run("r", "python: can't open file '/x/trian.py': [Errno 2]", code=2), Cause.MISSING_FILE, "/x/trian.py"),
        (run("r", "train.py: error: unknown option --x", code=2), Cause.BAD_ARGUMENT, "unknown option --x"),
        (run("r", "sh: 1: trochrun: not found", code=127), Cause.COMMAND_NOT_FOUND, "trochrun"),
        (run("r", code=126), Cause.COMMAND_NOT_FOUND, "executable"),
        (run("r", "terminate called after throwing an instance of 'x'", code=134), Cause.NATIVE_CRASH, "of 'x'"),
        (run("r", code=139), Cause.NATIVE_CRASH, "SIGSEGV"),
        (run("r", *JAX_SHUTDOWN, code=134), Cause.LOST_PEER, "see the logs of the other pods"),
        (run("r", "Watchdog caught collective operation timeout", *NATIVE_FRAMES, code=134), Cause.TIMEOUT, "timeout"),
        (run("r", *PADDLE_KILLED, code=247), Cause.KILLED, "SIGKILL"),
        (run("r", code=137), Cause.KILLED, "memory ran out"),
        (run("r", code=7), Cause.EXIT_CODE, "exit code 7"),
        (run("r", "error: no data", code=1), Cause.EXIT_CODE, "error: no data"),
    ],
)
def test_ends_without_an_exception_are_classified(one: ContainerRun, cause: Cause, words: str) -> None:
    found = named(one)
    assert found.cause is cause
    assert words in f"{found.summary} {found.advice}"


def test_the_reference_page_lists_every_reason() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "failures.md").read_text()
    listed = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert listed == [Diagnosis(rank=None, cause=cause, summary="").reason for cause in Cause]


def test_long_lines_are_cut_before_they_are_searched() -> None:
    """A pod prints what it likes: the patterns would take seconds for megabytes."""
    long = Line("x" * 5_000_000 + ": command not found", NOW)
    lines = (*(Line(text, NOW) for text in TRACEBACK), Line("ValueError: " + "b" * 5_000_000, NOW), *[long] * 40)
    found = first_failure([ContainerRun(rank="w-0", pod="p", container="c", exit_code=1, finished_at=NOW, lines=lines)])
    assert found is not None
    assert found.rank == "w-0"
    assert sum(map(len, found.evidence)) < 200_000
