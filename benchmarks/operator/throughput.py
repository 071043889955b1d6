"""The cost of jobs on a real API server: our operator and the Go training-operator, each on a fresh control plane.

`python -m benchmarks.operator.throughput --help` shows how to run one contender or one size alone.
"""

import argparse
import asyncio
import multiprocessing
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.operator.contenders import CONTENDERS, OURS, Contender
from benchmarks.operator.job_lifecycle import BOUNDED_SECONDS, QUIET_SECONDS, Cpu, Measurement, Scenario, measure
from tests.support.kubernetes.controlplane import running_control_plane
from trainwright.api.kinds import KINDS

SCENARIOS = (Scenario(200, 8), Scenario(1, 1000), Scenario(2000, 1))
ROUNDS = 2

RATE = "pods/s"
CPU_PER_POD = "CPU ms per pod, whole life"
MEMORY = "RSS peak, MB"
WRITES = "writes per job"

Runs = dict[Contender, list[Measurement]]
Medians = dict[str, dict[Contender, float | None]]
"""By figure and contender; None where a bounded run has no such figure."""


def main(arguments: Sequence[str] = ()) -> None:
    parser = scenario_parser("benchmarks.operator.throughput", __doc__ or "", rounds=ROUNDS)
    names = [contender.name for contender in CONTENDERS]
    parser.add_argument("--contender", nargs="+", choices=names, default=names, help="contenders (default: all)")
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=["PyTorchJob"], help="kinds (default: PyTorchJob)")
    options = parser.parse_args(arguments)
    contenders = [contender for contender in CONTENDERS if contender.name in options.contender]
    for kind in options.kind:
        for scenario in options.scenario:
            compare(contenders, replace(scenario, kind=KINDS[kind]), rounds=options.rounds, together=options.together)


def scenario_parser(program: str, description: str, *, rounds: int) -> argparse.ArgumentParser:
    """A parser with the options of every benchmark that runs scenarios."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument(
        "--scenario",
        nargs="+",
        type=_scenario,
        default=SCENARIOS,
        metavar="JOBSxREPLICAS",
        help="number of jobs and of replicas of each, of MPIJobs of workers besides the launcher"
        f" (default: {' '.join(map(str, SCENARIOS))})",
    )
    parser.add_argument(
        "--together", action="store_true", help="run all contenders at the same time (default: one after the other)"
    )
    parser.add_argument("--rounds", type=int, default=rounds, help=f"runs of each contender (default: {rounds})")
    return parser


def compare(contenders: Sequence[Contender], scenario: Scenario, *, rounds: int, together: bool = False) -> Medians:
    """Runs the contenders in turn or `together`, prints the medians and fails if our operator writes about settled
    jobs."""
    runs = _run_together(contenders, scenario, rounds) if together else _run_in_turn(contenders, scenario, rounds)
    medians: Medians = {
        label: {contender: _median(read, measurements) for contender, measurements in runs.items()}
        for label, _, read in _ROWS
    }
    _print(scenario, runs, medians)
    if unsettled := [one.settled_writes for one in runs.get(OURS, ()) if one.settled_writes]:
        sys.exit(f"ours wrote {unsettled[0]} times after all jobs had succeeded and settled: it must not write at all")
    return medians


def _run_in_turn(contenders: Sequence[Contender], scenario: Scenario, rounds: int) -> Runs:
    """Each has the machine for itself, so that its rate is what a user sees."""
    runs: Runs = {contender: [] for contender in contenders}
    for contender in _order(contenders, rounds):
        print(f"{scenario}: round {len(runs[contender]) + 1} of {contender.label}", file=sys.stderr, flush=True)
        runs[contender].append(run_once(contender, scenario))
    return runs


def _run_together(contenders: Sequence[Contender], scenario: Scenario, rounds: int) -> Runs:
    """All run at the same time, each on its own control plane, so that the machine's other load costs all the same."""
    runs: Runs = {contender: [] for contender in contenders}
    for number in range(rounds):
        print(f"{scenario}: round {number + 1} of all contenders together", file=sys.stderr, flush=True)
        # A forked process needs no pickling of contenders, which have functions.
        processes = multiprocessing.get_context("fork")
        receiving: dict[Contender, Connection] = {}
        for contender in contenders:
            receiving[contender], sending = processes.Pipe(duplex=False)
            processes.Process(target=_send_measurement, args=(sending, contender, scenario)).start()
            sending.close()
        for contender, connection in receiving.items():
            runs[contender].append(connection.recv())
    return runs


def _send_measurement(sending: Connection, contender: Contender, scenario: Scenario) -> None:
    sending.send(run_once(contender, scenario))


def run_once(contender: Contender, scenario: Scenario) -> Measurement:
    """On a control plane of its own: no contender meets the objects of another, or a server that has grown."""
    # The garbage collector must find the definitions when it starts: it discovers later ones only after 30 seconds.
    with (
        tempfile.TemporaryDirectory() as name,
        running_control_plane(Path(name), definitions=[contender.definition(scenario.kind.name)]) as plane,
        contender.start(plane, Path(name), scenario.kind.name) as operator,
    ):
        return asyncio.run(measure(plane, operator, scenario, bounded=contender.bounded))


def _scenario(text: str) -> Scenario:
    jobs, _, replicas = text.partition("x")
    if not (jobs.isdecimal() and replicas.isdecimal() and int(jobs) and int(replicas)):
        raise argparse.ArgumentTypeError(f"{text!r} is not JOBSxREPLICAS, such as 200x8")
    return Scenario(int(jobs), int(replicas))


def _order(contenders: Sequence[Contender], rounds: int) -> Iterable[Contender]:
    """Alternating, so that other load on the machine affects all of them alike. A bounded one runs once."""
    for number in range(rounds):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            if number == 0 or not contender.bounded:
                yield contender


def _print(scenario: Scenario, runs: Runs, medians: Medians) -> None:
    roles = " and ".join(f"{count} {role}" for role, count in scenario.roles.items())
    what = f"{scenario.pods} pods and {scenario.services} services"
    print(f"\n{scenario.jobs} {scenario.kind.name}s of {roles}: {what}")
    print(f"{'':36}" + "".join(f"{contender.label:>14}" for contender in runs))
    for label, form, _ in _ROWS:
        values = medians[label]
        cells = (f"{'' if value is None else format(value, form):>14}" for value in values.values())
        print(f"{label:36}" + "".join(cells) + _ratio(values), flush=True)
    for what in sorted({what for measurements in runs.values() for what in _writes(measurements[-1])}):
        counts = (_writes(measurements[-1])[what] / scenario.jobs for measurements in runs.values())
        print(f"  {what:34}" + "".join(f"{format(count, '.2f') if count else '':>14}" for count in counts))
    for contender, measurements in runs.items():
        if contender.bounded:
            print(f"{contender.label}: its first {BOUNDED_SECONDS:.0f} s only, {measurements[0].pods} pods")


def _writes(measurement: Measurement) -> Counter[str]:
    return measurement.writes or Counter()


def _median(read: Callable[[Measurement], float | None], measurements: Iterable[Measurement]) -> float | None:
    values = [value for one in measurements if (value := read(one)) is not None]
    return statistics.median(values) if values else None


def _ratio(values: dict[Contender, float | None]) -> str:
    """Ours to each of the others."""
    ours = values.get(OURS)
    peers = [value for contender, value in values.items() if contender is not OURS]
    if ours is None or not any(peers):
        return ""
    return "   " + "  ".join(f"{ours / value:.2f}x" for value in peers if value)


_ROWS: tuple[tuple[str, str, Callable[[Measurement], float | None]], ...] = (
    (RATE, ".0f", lambda one: one.pods_per_second),
    ("create to all pods, p50, s", ".2f", lambda one: _percentile(one.delays, 0.50)),
    ("create to all pods, p99, s", ".2f", lambda one: _percentile(one.delays, 0.99)),
    ("last pod's end to last job's, s", ".2f", lambda one: one.ending_seconds),
    ("CPU ms per pod, creation", ".2f", lambda one: _operators(one.creation_cpu, one.pods)),
    (CPU_PER_POD, ".2f", lambda one: _operators(one.life_cpu, one.pods)),
    ("server's CPU ms per pod, creation", ".2f", lambda one: _servers(one.creation_cpu, one.pods)),
    ("server's CPU ms per pod, whole life", ".2f", lambda one: _servers(one.life_cpu, one.pods)),
    (MEMORY, ".0f", lambda one: one.peak_megabytes),
    (WRITES, ".2f", lambda one: one.writes.total() / one.jobs if one.writes else None),
    (f"writes in {QUIET_SECONDS:.0f} s after the end", ".0f", lambda one: one.settled_writes),
    (
        f"CPU ms in {QUIET_SECONDS:.0f} s after the end",
        ".0f",
        lambda one: _operators(one.settled_cpu, 1),
    ),
)


def _operators(cpu: Cpu | None, pods: int) -> float | None:
    """Milliseconds for each pod."""
    return None if cpu is None else 1000 * cpu.operator / pods


def _servers(cpu: Cpu | None, pods: int) -> float | None:
    return None if cpu is None else 1000 * cpu.server / pods


def _percentile(values: Sequence[float], fraction: float) -> float | None:
    return sorted(values)[min(len(values) - 1, int(fraction * len(values)))] if values else None


if __name__ == "__main__":
    main(sys.argv[1:])
