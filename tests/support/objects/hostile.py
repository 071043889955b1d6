"""Manifests that nobody should submit and somebody will: broken ones, and ones that were made to break things.

Each is a job that could run, with something in it replaced, removed or added.
"""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.support.objects.jobs import JobBuilder, template
from trainwright.objects import Object

Path = tuple[str | int, ...]

# Numbers are either too big for any cluster or small: what is refused must not cost a thousand pods if it is not.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**30, -(10**30), 1.5, 1e300,
    "", " ", "1", "-1", "None", "null", "\x00", "\n", "\u202e", "Wörker", "𝒲", "a" * 300, "../../etc", "$(RANK)",
    "9" * 5000, [], [None], [[]], [{}], {}, {"": ""}, {"a": None}, {"\x00": 1},
)  # fmt: skip
KEYS = ("", "x", "Worker", "worker", "MASTER", "Wörker", "replicas", "spec", "\x00", "a" * 300, "__class__", "metadata")


def _whole_job() -> Object:
    """With something in every field that we read."""
    pod = template(
        ports=[{"name": "pytorchjob-port", "containerPort": 23456}, {"containerPort": 8080, "protocol": "TCP"}],
        env=[{"name": "A", "value": "b"}],
        resources={"requests": {"cpu": "1"}},
        securityContext={"runAsNonRoot": True, "runAsUser": 1000, "capabilities": {"drop": ["ALL"]}},
    )
    pod["metadata"] = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    pod["spec"]["securityContext"] = {"runAsNonRoot": True, "runAsUser": 1000}
    pod["spec"]["initContainers"] = [{"name": "before", "image": "example/before:1"}]
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
    elastic = {
        "minReplicas": 1,
        "maxReplicas": 3,
        "rdzvBackend": "c10d",
        "rdzvPort": 29500,
        "rdzvConf": [{"key": "a", "value": "b"}],
        "maxRestarts": 3,
        "metrics": [metric],
    }
    policy = {
        "cleanPodPolicy": "None",
        "ttlSecondsAfterFinished": 3600,
        "activeDeadlineSeconds": 3600,
        "backoffLimit": 3,
        "suspend": False,
        "schedulingPolicy": {"minAvailable": 1, "queue": "q", "minResources": {"cpu": "1"}, "priorityClass": "p"},
    }
    builder = JobBuilder("job").master(policy="OnFailure", pod=pod).workers(1, policy="ExitCode", pod=pod)
    spec: Object = builder.run_policy(**policy).spec(elasticPolicy=elastic, nprocPerNode="1").raw()["spec"]
    return spec


WHOLE = _whole_job()


def places(value: object, path: Path = ()) -> Iterator[Path]:
    """The path of everything in a value, itself first."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))


@st.composite
def corrupted_specs(draw: st.DrawFn) -> Any:
    """The whole job's spec with one to three things wrong."""
    holder: Object = {"spec": copy.deepcopy(WHOLE)}
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from([path for path in places(holder) if path]))
        parent: Any = holder
        for step in above:
            parent = parent[step]
        value = copy.deepcopy(draw(st.sampled_from(VALUES)))
        match draw(st.sampled_from(["replace", "replace", "remove", "add"])):
            case "remove":
                del parent[last]
            case "add" if isinstance(parent, dict):
                parent[draw(st.sampled_from(KEYS))] = value
            case _:
                parent[last] = value
        if "spec" not in holder:
            return None
    return holder["spec"]
