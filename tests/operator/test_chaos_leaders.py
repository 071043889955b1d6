"""Two operator processes, one lease: when the leader is killed the other goes on, and a leader that was paused never
writes again. The API server's audit log is the witness."""

import itertools
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.chaos.operator_process import (
    WHOLE,
    OperatorProcess,
    all_succeeded,
    assert_no_traceback,
    assert_ran_exactly_once,
)
from tests.support.chaos.pod_invariants import PodInvariants, checking_invariants
from tests.support.chaos.scripted_jobs import ScriptedKubelet, scripted_jobs
from tests.support.cluster.audit_log import Write, writes
from tests.support.cluster.controlplane import ControlPlane, running_control_plane
from tests.support.waiting import eventually
from trainwright.api.crd import render_crd
from trainwright.api.kinds import KINDS
from trainwright.kube.client.async_client import Client

ROUNDS = 16 if WHOLE else 2
JOBS = 6
"""That come with every round."""
SEED = 4

LEASE = 8
"""Seconds; on a busy machine a shorter one is lost to nobody's fault."""
FLAGS = (
    "--leader-elect",
    f"--leader-election-lease-duration={LEASE}s",
    "--leader-election-renew-deadline=6s",
    "--leader-election-retry-period=1s",
)
SLACK = 6
"""Seconds by which a busy machine may be late."""

CANDIDATES = ("alpha", "beta")


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One of its own, that keeps a record of all writes; each operator is a user of its own."""
    definitions = [render_crd(kind) for kind in KINDS.values()]
    directory = tmp_path_factory.mktemp("audited")
    with running_control_plane(directory, definitions=definitions, users=CANDIDATES, audit=True) as plane:
        yield plane


@pytest.mark.apiserver
@pytest.mark.timeout(400)
async def test_leaders_that_are_killed_or_paused_are_succeeded_and_never_write_again(
    client: Client, control_plane: ControlPlane, real_namespace: str, tmp_path: Path
) -> None:
    kubelet, dice = ScriptedKubelet(client, real_namespace), random.Random(SEED)
    async with kubelet.running(), checking_invariants(client, real_namespace, then=kubelet.on_pod_event) as invariants:
        with ExitStack() as stack:
            flags = (*FLAGS, f"--leader-election-namespace={real_namespace}")
            operators = {
                user: stack.enter_context(
                    OperatorProcess(kubeconfig, real_namespace, *flags, log=tmp_path / f"{user}.log")
                )
                for user, kubeconfig in control_plane.users.items()
            }
            for number in range(ROUNDS):
                await _one_stands_by(operators)
                await _begin_work(kubelet, invariants, dice, number)
                leader = await _leader(control_plane)
                _take_away(operators[leader], paused=number % 2 == 0)
                # What it has not begun is left to its successor.
                await kubelet.submit(scripted_jobs(1000 + number, 1, steps=_steps(number)))
                await _succession(control_plane, leader)
                _bring_back(operators[leader], paused=number % 2 == 0)
                await kubelet.advance(_steps(number)[-1])
            found = await all_succeeded(client, real_namespace, *operators.values())
            for operator in operators.values():
                assert_no_traceback(operator.log)
    assert_ran_exactly_once(kubelet.jobs, found, invariants)
    _assert_one_after_the_other(_work(control_plane))


async def _one_stands_by(operators: dict[str, OperatorProcess]) -> None:
    """On a busy machine a process takes longer to start than a lease lasts: nobody can succeed in time who has yet to.
    Each life but one that waits ends as a leader, so the last word of a log is about the present one."""

    async def last_words() -> list[str]:
        words = (re.findall(r"leadership: (.*)", operator.log.read_text()) for operator in operators.values())
        return [said[-1] for said in words if said]

    await eventually(
        last_words,
        lambda words: any(re.fullmatch(r"standby, (?!nobody).* leads", word) for word in words),
        seconds=60,
    )


async def _begin_work(kubelet: ScriptedKubelet, invariants: PodInvariants, dice: random.Random, number: int) -> None:
    """Returns in the middle of it."""
    wanted = invariants.writes + dice.randint(1, 4 * JOBS)
    await kubelet.submit(scripted_jobs(number, JOBS, steps=_steps(number)))

    async def made() -> int:
        return invariants.writes

    await eventually(made, lambda count: count >= wanted)


async def _leader(plane: ControlPlane) -> str:
    """Who wrote last. The first write is seen by a watch a moment before it stands in the log."""

    async def work() -> list[Write]:
        return _work(plane)

    return (await eventually(work, bool))[-1].user


def _steps(number: int) -> range:
    return range(3 * number, 3 * (number + 1))


def _take_away(operator: OperatorProcess, *, paused: bool) -> None:
    if paused:
        operator.pause()
    else:
        operator.stop(kill=True)


def _bring_back(operator: OperatorProcess, *, paused: bool) -> None:
    """As a Deployment would: who lost the lease ends, and is started again as a standby."""
    if paused:
        operator.resume()
        assert operator.wait(20) == 1
    operator.restart()


async def _succession(plane: ControlPlane, old: str) -> None:
    async def writer() -> str:
        return _work(plane)[-1].user

    await eventually(writer, lambda user: user != old)


def _work(plane: ControlPlane) -> list[Write]:
    """What the operators wrote, but for the lease, which all of them may try to get, and questions about rights."""
    aside = {"leases", "selfsubjectaccessreviews", "selfsubjectrulesreviews"}
    return [write for write in writes(plane.audit_log) if write.user in CANDIDATES and write.resource not in aside]


def _assert_one_after_the_other(work: list[Write]) -> None:
    terms = [list(term) for _, term in itertools.groupby(work, key=lambda write: write.user)]
    assert len(terms) == ROUNDS + 1, "\n".join(f"{term[0]} ... {term[-1]}" for term in terms)
    gaps = [after[0].at - before[-1].at for before, after in itertools.pairwise(terms)]
    assert max(gaps) <= timedelta(seconds=LEASE + SLACK)
