"""Broken and hostile manifests: a valid job with values replaced, removed or added."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.support.objects.jobs import pair, template
from trainwright.api.kinds import Kind
from trainwright.objects import Object

Path = tuple[str | int, ...]

# Numbers are too big for any cluster or small, so that an accepted job never creates a thousand pods.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**30, -(10**30), 1.5, 1e300,
    "", " ", "1", "-1", "None", "null", "\x00", "\n", "\u202e", "Wörker", "𝒲", "a" * 300, "../../etc", "$(RANK)",
    "9" * 5000, [], [None], [[]], [{}], {}, {"": ""}, {"a": None}, {"\x00": 1},
)  # fmt: skip
KEYS = ("", "x", "Worker", "worker", "MASTER", "Wörker", "replicas", "spec", "\x00", "a" * 300, "__class__", "metadata")


def complete_spec(kind: Kind) -> Object:
    """A value for every field that the operator reads."""
    pod = template(
        name=kind.container or "main",
        ports=[{"name": kind.port_name, "containerPort": kind.port}, {"containerPort": 8080, "protocol": "TCP"}],
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
    own: dict[str, Object] = {
        "PyTorchJob": {"elasticPolicy": elastic, "nprocPerNode": "1"},
        "TFJob": {"successPolicy": "AllWorkers", "enableDynamicWorker": False},
        "PaddleJob": {"elasticPolicy": {key: elastic[key] for key in ("minReplicas", "maxReplicas", "metrics")}},
    }
    builder = pair("job", kind, policy="OnFailure", pod=pod)
    builder.workers(2 if kind.roles[0].name == "Worker" else 1, policy="ExitCode", pod=pod)
    if kind.role("PS"):
        builder.replica("PS", pod=pod)
    spec: Object = builder.run_policy(**policy).spec(**own.get(kind.name, {})).raw()["spec"]
    return spec


def paths_in(value: object, path: Path = ()) -> Iterator[Path]:
    """The paths of a value and of everything in it."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths_in(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths_in(inner, (*path, index))


@st.composite
def corrupted_specs(draw: st.DrawFn, kind: Kind) -> Any:
    """The kind's complete spec with one to three values replaced, removed or added."""
    holder: Object = {"spec": complete_spec(kind)}
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from([path for path in paths_in(holder) if path]))
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
