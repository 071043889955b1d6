"""Hypothesis strategies for fields with arbitrary JSON, as users or other operator versions may leave them."""

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from trainwright.api.kinds import KINDS, Kind

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def nested(levels: int) -> Any:
    value: Any = "deep"
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


hostile = st.recursive(
    junk
    | st.floats()
    | st.sampled_from([2**31, -(2**31) - 1, 2**63, -(2**64), 10**4000, 1e308, "\ud800", "\x00", "💥" * 80, "x" * 5000])
    | st.integers(1, 2000).map(nested),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("\ud800"), inner, max_size=3)
    ),
    max_leaves=6,
)
"""Also values that YAML or a program can contain and JSON cannot: NaN, lone surrogates, very deep nesting."""


_KEYS = ("Master", "worker", "MASTER", "Chief", "")


def of_any_kind(specs: Callable[[Kind], st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[Kind, Any]]:
    """A kind, and a spec for it."""
    # One strategy per kind, not one per example: Hypothesis takes recursive strategies that it has not seen for flaky.
    return st.one_of(*(st.tuples(st.just(kind), specs(kind)) for kind in KINDS.values()))


def specs_of(values: st.SearchStrategy[Any], kind: Kind) -> st.SearchStrategy[dict[str, Any]]:
    """Specs with valid field names and arbitrary `values`."""
    fields = st.sampled_from(["name", "image", "ports", "env"])
    containers = st.lists(st.dictionaries(fields, junk | st.just(kind.container), max_size=4) | junk)
    replica = st.fixed_dictionaries(
        {},
        optional={
            "replicas": values,
            "restartPolicy": values,
            "template": values
            | st.fixed_dictionaries({"spec": values | st.fixed_dictionaries({"containers": containers})}),
        },
    )
    policy = st.dictionaries(
        st.sampled_from(["backoffLimit", "suspend", "managedBy", "cleanPodPolicy", "schedulingPolicy"]), values
    )
    gang = st.dictionaries(st.sampled_from(["minAvailable", "queue", "minResources", "scheduleTimeoutSeconds"]), values)
    elastic = st.dictionaries(
        st.sampled_from(["minReplicas", "maxReplicas", "rdzvConf", "metrics", "nProcPerNode"]),
        values
        | st.lists(st.dictionaries(st.sampled_from(["type", "resource", "pods"]), values, max_size=3), max_size=2),
    )
    keys = st.sampled_from([*{role.name: None for role in kind.roles} | dict.fromkeys(_KEYS)])
    own = {field.encode_name: values for field in msgspec.structs.fields(kind.fields)}
    return st.fixed_dictionaries(
        {},
        optional={
            "runPolicy": values | policy | gang.map(lambda gang: {"schedulingPolicy": gang}),
            **own,
            "elasticPolicy": values | elastic,
            "cleanPodPolicy": values,
            "ttlSecondsAfterFinished": values,
            "activeDeadlineSeconds": values,
            "backoffLimit": values,
            kind.replicas_field: values | st.dictionaries(keys, replica | values),
        },
    )


jobs = of_any_kind(lambda kind: specs_of(junk, kind) | junk)
"""A kind, and an arbitrary spec, often with valid field names."""

_times = st.sampled_from(
    ["2026-11-15T04:00:00Z", "2026-11-15T03:59:59.123456789+02:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
)
_numbers = st.integers(-(10**6), 10**6)
CONDITIONS = ("Created", "Running", "Restarting", "Succeeded", "Failed", "Suspended")
_roles = st.sampled_from(["Master", "Worker", "Chief", ""])
statuses = st.fixed_dictionaries(
    {},
    optional={
        "conditions": st.lists(
            st.fixed_dictionaries(
                {
                    "type": st.sampled_from(
                        ["Created", "Running", "Restarting", "Succeeded", "Failed", "Suspended", ""]
                    ),
                    "status": st.sampled_from(["True", "False", "Unknown", ""]),
                },
                optional={"reason": st.text(max_size=5), "message": st.text(max_size=5), "lastTransitionTime": _times},
            ),
            max_size=4,
        ),
        "replicaStatuses": st.dictionaries(_roles, st.fixed_dictionaries({}, optional={"active": _numbers})),
        "startTime": _times,
        "completionTime": _times,
        "ports": st.dictionaries(_roles, _numbers),
        "restarts": st.dictionaries(_roles, _numbers),
        "replacedPods": st.lists(st.sampled_from(["digits-master-0-uid", "digits-worker-0-uid", "gone"])),
        "completedIndexes": st.dictionaries(_roles, st.text("0123456789,-x", max_size=9)),
    },
)
"""A status of the right types with arbitrary content."""
