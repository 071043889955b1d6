"""The cost of jobs now and at an earlier revision of our operator: five alternating rounds on fresh control planes.

`make bench-regression BASE=REV` runs it and fails if a median is worse than the limits allow.
"""

import sys
from collections.abc import Callable, Sequence

from benchmarks.operator.contenders import OURS, Contender, earlier
from benchmarks.operator.throughput import CPU_PER_POD, MEMORY, RATE, WRITES, Medians, compare, scenario_parser

ROUNDS = 5

LIMITS: dict[str, tuple[str, Callable[[float], bool]]] = {
    CPU_PER_POD: ("at most 1.05", lambda ratio: ratio <= 1.05),
    WRITES: ("at most 1.05", lambda ratio: ratio <= 1.05),
    RATE: ("at least 0.90", lambda ratio: ratio >= 0.90),
    MEMORY: ("at most 1.00", lambda ratio: ratio <= 1.00),
}
"""For ours divided by the base, rounded as it is printed."""


def main(arguments: Sequence[str] = ()) -> None:
    parser = scenario_parser("benchmarks.operator.regression", __doc__ or "", rounds=ROUNDS)
    parser.add_argument("--base", required=True, metavar="REV", help="the revision to compare with, such as a hash")
    options = parser.parse_args(arguments)
    base = earlier(options.base)
    worse = []
    for scenario in options.scenario:
        medians = compare((OURS, base), scenario, rounds=options.rounds, together=options.together)
        worse += [f"{scenario}: {finding}" for finding in beyond_limits(medians, base)]
    if worse:
        sys.exit("\n".join(["\nworse than the base:", *worse]))
    print(f"\nwithin the limits: {', '.join(f'{label} {limit}' for label, (limit, _) in LIMITS.items())}")


def beyond_limits(medians: Medians, base: Contender) -> list[str]:
    findings = []
    for label, (limit, is_within) in LIMITS.items():
        ours, theirs = medians[label][OURS], medians[label][base]
        if ours is not None and theirs and not is_within(ratio := round(ours / theirs, 2)):
            findings.append(f"{label}: {ratio:.2f} times the base, {limit} is allowed")
    return findings


if __name__ == "__main__":
    main(sys.argv[1:])
