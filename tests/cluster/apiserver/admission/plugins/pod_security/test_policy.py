"""Which policy the labels of a namespace choose."""

import pytest

from trainwright.cluster.apiserver.admission.plugins.pod_security.plugin import policy_of
from trainwright.objects.kinds.pod_security import POD_SECURITY_PREFIX as PREFIX


def chosen(**labels: str) -> tuple[str, str]:
    """What is enforced and what is warned about."""
    policy, _ = policy_of({PREFIX + key.replace("_", "-"): value for key, value in labels.items()})
    return str(policy.enforce), str(policy.warn)


def errors(**labels: str) -> list[str]:
    return [str(one) for one in policy_of({PREFIX + key.replace("_", "-"): value for key, value in labels.items()})[1]]


NOTHING = "privileged:latest"


def test_a_namespace_without_labels_allows_everything() -> None:
    assert chosen() == (NOTHING, NOTHING)
    assert str(policy_of({"team": "a"})[0].enforce) == NOTHING


def test_what_is_enforced_is_warned_about_too() -> None:
    assert chosen(enforce="baseline") == ("baseline:latest", "baseline:latest")
    assert chosen(enforce="restricted", enforce_version="v1.20") == ("restricted:v1.20", "restricted:v1.20")
    assert chosen(enforce="restricted", enforce_version="v1.20", warn_version="v1.9") == (
        "restricted:v1.20",
        "restricted:v1.9",
    )


def test_a_label_of_warn_decides_about_warnings_alone() -> None:
    assert chosen(enforce="restricted", warn="privileged") == ("restricted:latest", NOTHING)
    assert chosen(warn="restricted", warn_version="v1.24") == (NOTHING, "restricted:v1.24")
    assert chosen(audit="restricted") == (NOTHING, NOTHING)


def test_invalid_labels_enforce_most_and_warn_about_nothing() -> None:
    assert chosen(enforce="Baseline") == ("restricted:latest", NOTHING)
    assert chosen(enforce="baseline", enforce_version="1.20") == ("baseline:latest", "baseline:latest")
    assert chosen(warn="all") == (NOTHING, NOTHING)


@pytest.mark.parametrize("version", ["latest", "v1.0", "v1.9", "v1.35", "v1.99", f"v1.{2**63 - 1}"])
def test_versions_that_exist_or_may_come_are_valid(version: str) -> None:
    assert errors(enforce_version=version, warn_version=version, audit_version=version) == []


@pytest.mark.parametrize("version", ["", "1.24", "v1", "v1.", "v1.01", "v2.0", "v1.24.1", "LATEST", f"v1.{2**63}"])
def test_other_versions_are_invalid(version: str) -> None:
    path = "metadata.labels[pod-security.kubernetes.io"
    assert errors(enforce_version=version, audit_version=version, warn_version=version) == [
        f'{path}/{mode}-version]: Invalid value: "{version}": must be "latest" or "v1.x"'
        for mode in ("enforce", "audit", "warn")
    ]


def test_levels_that_do_not_exist_are_invalid() -> None:
    path = "metadata.labels[pod-security.kubernetes.io"
    assert errors(enforce="", audit="all", warn="restricted") == [
        f'{path}/enforce]: Invalid value: "": must be one of privileged, baseline, restricted',
        f'{path}/audit]: Invalid value: "all": must be one of privileged, baseline, restricted',
    ]
