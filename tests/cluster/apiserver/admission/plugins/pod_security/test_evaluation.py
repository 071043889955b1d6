"""The warnings about pods that exist when a namespace gets a policy."""

from typing import Any

from trainwright.cluster.apiserver.admission.plugins.pod_security.plugin import Level, LevelVersion, pod_warnings

BASELINE = LevelVersion(Level.BASELINE)


def pod(name: str, *, controller: str = "", **spec: Any) -> dict[str, Any]:
    owners = [{"uid": controller, "controller": True}] if controller else []
    return {"metadata": {"name": name, "ownerReferences": owners}, "spec": {"containers": [], **spec}}


def test_pods_with_the_same_violations_share_a_warning() -> None:
    pods = [
        *(pod(name, hostPID=True) for name in ("c", "a", "b")),
        *(pod(name, hostPID=True, volumes=[{"name": "v", "hostPath": {}}]) for name in ("e", "d")),
        pod("f", volumes=[{"name": "v", "hostPath": {}}]),
        pod("fine"),
    ]

    assert pod_warnings("team-a", pods, BASELINE) == [
        'existing pods in namespace "team-a" violate the new PodSecurity enforce level "baseline:latest"',
        "a (and 2 other pods): host namespaces",
        "d (and 1 other pod): host namespaces, hostPath volumes",
        "f: hostPath volumes",
    ]


def test_of_too_many_pods_the_first_of_each_controller_are_checked() -> None:
    replicas = [pod(f"r-{number}", controller="set", hostPID=True) for number in range(3000)]

    assert pod_warnings("team-a", [*replicas, pod("z", volumes=[{"name": "v", "hostPath": {}}])], BASELINE) == [
        "new PodSecurity enforce level only checked against the first 3000 of 3001 existing pods",
        'existing pods in namespace "team-a" violate the new PodSecurity enforce level "baseline:latest"',
        "r-0 (and 2998 other pods): host namespaces",
        "z: hostPath volumes",
    ]


def test_without_violations_there_is_no_warning() -> None:
    assert pod_warnings("team-a", [pod("fine")], BASELINE) == []
