"""Two operator processes, one lease: when the leader is killed the standby takes over, and a leader that was paused
never writes again. The API server's audit log proves it."""

import itertools
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.chaos.assertions import all_succeeded, assert_no_traceback, assert_ran_exactly_once
from tests.support.chaos.operator_process import OperatorProcess
from tests.support.chaos.pod_invariants import PodInvariants, checking_invariants
from tests.support.chaos.scripted_jobs import ScriptedKubelet, scripted_jobs
from tests.support.kubernetes.audit_log import Write, writes
from tests.support.kubernetes.controlplane import AUDIT_WRITES, ControlPlane, running_control_plane
from tests.support.thoroughness import THOROUGH
from tests.support.waiting import eventually
from trainwright.api.crd import render_crd
from trainwright.api.kinds import KINDS
from trainwright.kube.client.async_client import Client

ROUNDS = 16 if THOROUGH else 2
JOBS = 6
"""Submitted in every round."""
SEED = 4

LEASE = 8
"""Seconds; on a busy machine a healthy leader may lose a shorter lease."""
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
    """With an audit log of all writes, and a user of its own for each operator."""
    definitions = [render_crd(kind) for kind in KINDS.values()]
    directory = tmp_path_factory.mktemp("audited")
    with running_control_plane(directory, definitions=definitions, users=CANDIDATES, audit=AUDIT_WRITES) as plane:
        yield plane


@pytest.mark.apiserver
@pytest.mark.timeout(900)
async def test_a_standby_takes_over_from_a_killed_or_paused_leader_which_never_writes_again(
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
                await _wait_for_standby(operators)
                await _submit_and_wait_for_writes(kubelet, invariants, dice, number)
                leader = await _leader(control_plane)
                _disable(operators[leader], paused=number % 2 == 0)
                # The successor has to run this job from the start.
                await kubelet.submit(scripted_jobs(1000 + number, 1, steps=_steps(number)))
                await _wait_for_successor(control_plane, leader)
                _enable(operators[leader], paused=number % 2 == 0)
                await kubelet.advance(_steps(number)[-1])
            found = await all_succeeded(client, real_namespace, *operators.values())
            for operator in operators.values():
                assert_no_traceback(operator.log)
    assert_ran_exactly_once(kubelet.jobs, found, invariants)
    _assert_terms_do_not_overlap(_work(control_plane))


async def _wait_for_standby(operators: dict[str, OperatorProcess]) -> None:
    """A process that still starts cannot take over in time: on a busy machine that takes longer than a lease lasts.
    Every earlier process ended as leader, so the last line of a log about leader election is of the present one."""

    async def last_states() -> list[str]:
        states = (re.findall(r"leadership: (.*)", operator.log.read_text()) for operator in operators.values())
        return [said[-1] for said in states if said]

    await eventually(
        last_states,
        lambda states: any(re.fullmatch(r"standby, the leader is .*", state) for state in states),
        seconds=60,
    )


async def _submit_and_wait_for_writes(
    kubelet: ScriptedKubelet, invariants: PodInvariants, dice: random.Random, number: int
) -> None:
    """Returns while the operator is working on the jobs."""
    wanted = invariants.writes + dice.randint(1, 4 * JOBS)
    await kubelet.submit(scripted_jobs(number, JOBS, steps=_steps(number)))

    async def made() -> int:
        return invariants.writes

    await eventually(made, lambda count: count >= wanted)


async def _leader(plane: ControlPlane) -> str:
    """The user of the last write. A watch shows the first write a moment before the audit log does."""

    async def work() -> list[Write]:
        return _work(plane)

    return (await eventually(work, bool))[-1].user


def _steps(number: int) -> range:
    return range(3 * number, 3 * (number + 1))


def _disable(operator: OperatorProcess, *, paused: bool) -> None:
    if paused:
        operator.pause()
    else:
        operator.stop(kill=True)


def _enable(operator: OperatorProcess, *, paused: bool) -> None:
    """As a Deployment does: a process that lost the lease exits, and is restarted as a standby."""
    if paused:
        operator.resume()
        assert operator.wait(60) == 1
    operator.restart()


async def _wait_for_successor(plane: ControlPlane, old: str) -> None:
    async def writer() -> str:
        return _work(plane)[-1].user

    await eventually(writer, lambda user: user != old)


def _work(plane: ControlPlane) -> list[Write]:
    """The writes of the operators, without those that a standby sends too: leases and access reviews."""
    ignored = {"leases", "selfsubjectaccessreviews", "selfsubjectrulesreviews"}
    return [write for write in writes(plane.audit_log) if write.user in CANDIDATES and write.resource not in ignored]


def _assert_terms_do_not_overlap(work: list[Write]) -> None:
    terms = [list(term) for _, term in itertools.groupby(work, key=lambda write: write.user)]
    assert len(terms) == ROUNDS + 1, "\n".join(f"{term[0]} ... {term[-1]}" for term in terms)
    gaps = [after[0].at - before[-1].at for before, after in itertools.pairwise(terms)]
    assert max(gaps) <= timedelta(seconds=LEASE + SLACK)
