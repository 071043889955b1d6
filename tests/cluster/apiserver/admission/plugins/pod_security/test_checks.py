"""The checks of the Pod Security Standards: upstream's cases, and what holds for any pod."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kubernetes.pod_security_cases import pod_security_cases
from trainwright.cluster.apiserver.admission.plugins.pod_security.baseline_checks import BASELINE_CHECKS
from trainwright.cluster.apiserver.admission.plugins.pod_security.plugin import (
    NEWEST_MINOR,
    Level,
    LevelVersion,
    violations,
)
from trainwright.cluster.apiserver.admission.plugins.pod_security.restricted_checks import RESTRICTED_CHECKS
from trainwright.cluster.apiserver.resources.strategies.workloads.pod_strategy import default_pod_spec
from trainwright.objects import copied

LATEST = {level: LevelVersion(level) for level in Level}
CHECKS = {check.id.lower(): check for check in (*BASELINE_CHECKS, *RESTRICTED_CHECKS)}


@pytest.mark.apiserver
def test_upstreams_cases_pass_and_fail_as_they_should() -> None:
    cases = list(pod_security_cases())
    wrong = []
    for case in cases:
        metadata, spec = case.pod["metadata"], copied(case.pod["spec"])
        default_pod_spec(spec)  # as the server does before admission
        found = violations(LevelVersion(Level[case.level.upper()], case.minor), metadata, spec)
        if bool(found) is case.allowed:
            wrong.append((case.file, [str(violation) for violation in found]))
        check = None if case.allowed else CHECKS[case.check].at(case.minor)
        if check is not None and check(metadata, spec) is None:
            wrong.append((case.file, [f"the check {case.check} allows it"]))

    assert wrong == []
    assert len(cases) > 4000


@pytest.mark.apiserver
def test_upstream_has_no_check_and_no_version_that_is_missing_here() -> None:
    cases = list(pod_security_cases())

    assert {case.check for case in cases if not case.allowed} == CHECKS.keys()
    assert max(case.minor for case in cases) == NEWEST_MINOR


def test_versions_of_the_future_are_checked_as_the_latest() -> None:
    spec = {"containers": [{"name": "c", "livenessProbe": {"tcpSocket": {"host": "10.0.0.1"}}}]}

    for standard in (LevelVersion(Level.BASELINE), LevelVersion(Level.BASELINE, NEWEST_MINOR + 5)):
        (found,) = violations(standard, {}, spec)
        assert str(found) == 'probe or lifecycle host (container "c" uses probe or lifecycle host "10.0.0.1")'


def test_every_value_that_is_not_allowed_is_named() -> None:
    contexts = [
        {"procMount": "Unmasked", "capabilities": {"drop": ["ALL"], "add": ["SYS_TIME", "NET_BIND_SERVICE"]}},
        {"procMount": "Default", "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}},
    ]
    spec = {
        "containers": [{"name": name, "securityContext": found} for name, found in zip("ab", contexts, strict=True)]
    }

    found = {violation.reason: violation.detail for violation in violations(LATEST[Level.RESTRICTED], {}, spec)}

    assert found["procMount"] == 'container "a" must not set securityContext.procMount to "Unmasked"'
    assert found["unrestricted capabilities"] == (
        'containers "a", "b" must not include "SYS_ADMIN", "SYS_TIME" in securityContext.capabilities.add'
    )


def test_ephemeral_containers_are_checked() -> None:
    privileged = {"name": "debug", "securityContext": {"privileged": True}}

    (found,) = violations(LATEST[Level.BASELINE], {}, {"containers": [], "ephemeralContainers": [privileged]})

    assert str(found) == 'privileged (container "debug" must not set securityContext.privileged=true)'


def _profile(*types: str) -> st.SearchStrategy[Any]:
    return st.none() | st.just({}) | st.sampled_from(types).map(lambda kind: {"type": kind})


_CAPABILITIES = st.lists(st.sampled_from(["ALL", "NET_BIND_SERVICE", "CHOWN", "SYS_ADMIN"]), max_size=2) | st.none()
_HOSTS = st.none() | st.fixed_dictionaries({"httpGet": st.just({}) | st.just({"host": "h"})})
_COMMON_CONTEXT: dict[str, st.SearchStrategy[Any]] = {
    "runAsNonRoot": st.none() | st.booleans(),
    "runAsUser": st.none() | st.integers(0, 2),
    "seccompProfile": _profile("RuntimeDefault", "Localhost", "Unconfined"),
    "appArmorProfile": _profile("RuntimeDefault", "Localhost", "Unconfined"),
    "seLinuxOptions": st.none()
    | st.just({"type": "spc_t"})
    | st.just({"user": "u"})
    | st.just({"type": "container_t"}),
    "windowsOptions": st.none() | st.just({"hostProcess": True}),
}
_CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("abc")},
        optional={
            "securityContext": st.none()
            | st.fixed_dictionaries(
                {},
                optional={
                    **_COMMON_CONTEXT,
                    "allowPrivilegeEscalation": st.none() | st.booleans(),
                    "privileged": st.none() | st.booleans(),
                    "procMount": st.sampled_from([None, "Default", "Unmasked"]),
                    "capabilities": st.fixed_dictionaries({}, optional={"add": _CAPABILITIES, "drop": _CAPABILITIES}),
                },
            ),
            "ports": st.just([{"containerPort": 80}]) | st.just([{"containerPort": 80, "hostPort": 80}]),
            "livenessProbe": _HOSTS,
            "lifecycle": st.none() | st.fixed_dictionaries({"preStop": _HOSTS}),
        },
    ),
    max_size=2,
)
_SPECS = st.fixed_dictionaries(
    {"containers": _CONTAINERS},
    optional={
        "initContainers": _CONTAINERS | st.none(),
        "ephemeralContainers": _CONTAINERS,
        "hostNetwork": st.booleans(),
        "hostPID": st.booleans(),
        "hostIPC": st.booleans(),
        "hostUsers": st.none() | st.booleans(),
        "os": st.sampled_from([None, {"name": "linux"}, {"name": "windows"}]),
        "volumes": st.lists(
            st.sampled_from(["emptyDir", "hostPath", "nfs", "unheardOf"]).map(lambda kind: {"name": "v", kind: {}}),
            max_size=2,
        ),
        "securityContext": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                **_COMMON_CONTEXT,
                "sysctls": st.just([{"name": "kernel.msgmax", "value": "1"}]) | st.just([]),
            },
        ),
    },
)
_METADATA = st.fixed_dictionaries(
    {},
    optional={
        "annotations": st.dictionaries(
            st.sampled_from(
                [
                    "container.apparmor.security.beta.kubernetes.io/a",
                    "seccomp.security.alpha.kubernetes.io/pod",
                    "container.seccomp.security.alpha.kubernetes.io/a",
                ]
            ),
            st.sampled_from(["", "runtime/default", "localhost/x", "unconfined"]),
        )
        | st.none()
    },
)


@given(_METADATA, _SPECS, st.none() | st.integers(0, NEWEST_MINOR + 1))
def test_a_stricter_level_never_allows_more(metadata: dict[str, Any], spec: dict[str, Any], minor: int | None) -> None:
    allowed = [not violations(LevelVersion(level, minor), metadata, spec) for level in Level]

    assert allowed == sorted(allowed, reverse=True)
    assert allowed[Level.PRIVILEGED]
