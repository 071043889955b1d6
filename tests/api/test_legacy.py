"""Manifests of earlier operators: converted, with a warning, and rejected if they are ambiguous."""

import copy
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.objects.jobs import JobBuilder
from trainwright.api.errors import InvalidJob
from trainwright.api.kinds import PYTORCH
from trainwright.api.legacy import ambiguous_roles, canonical_roles, deprecations, merged_run_policy
from trainwright.api.parsing import parse
from trainwright.api.types import EarlierRunPolicy, ReplicaSpec, RunPolicy
from trainwright.api.validation import validate
from trainwright.objects import Object

EARLIER = {
    "cleanPodPolicy": "All",
    "ttlSecondsAfterFinished": 60,
    "activeDeadlineSeconds": 3600,
    "backoffLimit": 3,
}


def test_run_policy_fields_directly_under_spec_are_read() -> None:
    builder = JobBuilder().master().spec(**EARLIER)
    assert validate(builder.raw(), PYTORCH) == []
    assert builder.job().run_policy == RunPolicy(
        clean_pod_policy="All", ttl_seconds_after_finished=60, active_deadline_seconds=3600, backoff_limit=3
    )


def test_each_earlier_field_has_a_warning_that_names_the_current_one() -> None:
    assert JobBuilder().master().spec(**EARLIER).job().warnings == (
        "spec.cleanPodPolicy is deprecated, use spec.runPolicy.cleanPodPolicy instead",
        "spec.ttlSecondsAfterFinished is deprecated, use spec.runPolicy.ttlSecondsAfterFinished instead",
        "spec.activeDeadlineSeconds is deprecated, use spec.runPolicy.activeDeadlineSeconds instead",
        "spec.backoffLimit is deprecated, use spec.runPolicy.backoffLimit instead",
    )


def test_run_policy_takes_precedence_field_by_field_and_the_warning_says_so() -> None:
    job = JobBuilder().master().spec(backoffLimit=3, cleanPodPolicy="All").run_policy(backoffLimit=0).job()
    assert (job.run_policy.backoff_limit, job.run_policy.clean_pod_policy) == (0, "All")
    assert job.warnings == (
        "spec.cleanPodPolicy is deprecated, use spec.runPolicy.cleanPodPolicy instead",
        "spec.backoffLimit is deprecated and has no effect beside spec.runPolicy.backoffLimit, remove it",
    )


FIELDS = EarlierRunPolicy.__struct_fields__
values = st.dictionaries(st.sampled_from(FIELDS), st.none() | st.integers(0, 9))


@given(values, values)
def test_null_means_not_set_in_both_places(earlier: dict[str, Any], current: dict[str, Any]) -> None:
    policy = merged_run_policy(RunPolicy(**current), EarlierRunPolicy(**earlier))
    for field in FIELDS:
        meant = current.get(field) if current.get(field) is not None else earlier.get(field)
        assert getattr(policy, field) == meant


def test_the_manifest_itself_is_never_changed() -> None:
    raw = JobBuilder().replica("master").spec(**EARLIER).raw()
    before = copy.deepcopy(raw)
    builder = JobBuilder()
    builder.object = raw
    assert builder.job().raw == before
    assert raw == before


def test_current_manifest_is_read_without_warnings() -> None:
    assert JobBuilder().master().workers(2).run_policy(backoffLimit=3, cleanPodPolicy="All").job().warnings == ()


def test_roles_in_another_letter_case_are_read_and_warned_about() -> None:
    job = JobBuilder().replica("WORKER", 2).replica("master").job()
    assert list(job.replicas) == ["Master", "Worker"]
    assert job.warnings == (
        "spec.pytorchReplicaSpecs[WORKER] is deprecated, use spec.pytorchReplicaSpecs[Worker] instead",
        "spec.pytorchReplicaSpecs[master] is deprecated, use spec.pytorchReplicaSpecs[Master] instead",
    )


def test_the_old_field_for_processes_per_node_has_upstreams_warning() -> None:
    job = JobBuilder().workers(1).spec(elasticPolicy={"nProcPerNode": 2}).job()
    assert job.warnings == ("spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead",)


def test_unknown_clean_pod_policy_has_a_warning() -> None:
    job = JobBuilder().master().run_policy(cleanPodPolicy="none").job()
    assert job.warnings == ('cleanPodPolicy "none" is treated as All, use All, Running or None instead',)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (("Master", "master"), "[master]: Forbidden: is the same role as Master"),
        (("master", "Master"), "[master]: Forbidden: is the same role as Master"),
        (("mASTER", "MASTER"), "[MASTER]: Forbidden: is the same role as mASTER"),
    ],
)
def test_two_spellings_of_one_role_are_rejected_and_both_are_named(keys: tuple[str, str], message: str) -> None:
    builder = JobBuilder().replica(keys[0]).replica(keys[1])
    expected = f"spec.pytorchReplicaSpecs{message}: specify only one of them, as Master"
    assert [str(error) for error in validate(builder.raw(), PYTORCH)] == [expected]
    with pytest.raises(InvalidJob) as refused:
        builder.job()
    assert str(refused.value) == expected


def test_role_that_is_null_is_not_set() -> None:
    builder = JobBuilder().master()
    builder.object["spec"]["pytorchReplicaSpecs"]["master"] = None
    assert validate(builder.raw(), PYTORCH) == []
    assert builder.job().warnings == ()


def test_known_roles_come_in_the_kinds_order_and_unknown_ones_after_them() -> None:
    one, two, three = (ReplicaSpec(replicas=number) for number in (1, 2, 3))
    roles = canonical_roles({"WORKER": one, "Banana": two, "master": three}, PYTORCH)
    assert list(roles.items()) == [("Master", three), ("Worker", one), ("Banana", two)]


spellings = st.sampled_from(["Master", "Worker"]).flatmap(
    lambda role: st.randoms(use_true_random=False).map(lambda chance: _shuffled_case(role, chance))
)


def _shuffled_case(role: str, chance: random.Random) -> str:
    return "".join(chance.choice((letter.lower(), letter.upper())) for letter in role)


@given(st.dictionaries(spellings, st.none() | st.fixed_dictionaries({"replicas": st.integers(0, 3)}), max_size=5))
def test_every_role_is_either_read_once_or_rejected(replicas: Object) -> None:
    present = {key for key, replica in replicas.items() if replica is not None}
    manifest = parse(JobBuilder().spec(pytorchReplicaSpecs=replicas).raw(), PYTORCH)
    refused = list(ambiguous_roles(manifest.replicas, PYTORCH))
    assert len(canonical_roles(manifest.replicas, PYTORCH)) + len(refused) == len(present)
    assert len(list(deprecations(manifest, PYTORCH))) == len(present - {"Master", "Worker"})
