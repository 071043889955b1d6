"""The annotation that keeps pruned status fields: they are restored, and any other content is ignored."""

import base64
import random
import uuid
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.objects.jobs import JOB_UID, JobBuilder
from tests.support.objects.junk import junk, statuses
from trainwright.api.job import read_job
from trainwright.api.pruned_status import (
    ADDITIONAL_FIELDS,
    ANNOTATION,
    annotation_value,
    pruned_fields,
    restore_pruned_fields,
)
from trainwright.objects import Object

LIMIT_OF_ALL_ANNOTATIONS = 256 * 1024


def job(status: Object | None, annotation: Any, *, uid: str = JOB_UID) -> Object:
    return JobBuilder().master().metadata(uid=uid, annotations={ANNOTATION: annotation}).status(status).raw()


def pruned(status: Object) -> Object:
    """The status as upstream's CRD stores it."""
    return {field: value for field, value in status.items() if field not in ADDITIONAL_FIELDS}


def test_additional_fields_are_those_that_upstream_does_not_declare() -> None:
    assert ADDITIONAL_FIELDS == ("restarts", "replacedPods", "completedIndexes")


@given(statuses, st.text(max_size=40))
def test_pruned_fields_are_restored_from_the_annotation(status: Object, uid: str) -> None:
    text = annotation_value(status, uid)
    expected = {field: value for field, value in status.items() if field not in ADDITIONAL_FIELDS or value}
    if text is None:
        assert expected == pruned(status)
        return
    assert restore_pruned_fields(job(pruned(status), text, uid=uid))["status"] == expected


@given(statuses, st.text(max_size=40))
def test_annotation_of_a_restored_status_is_the_same(status: Object, uid: str) -> None:
    text = annotation_value(status, uid)
    assert annotation_value(restore_pruned_fields(job(pruned(status), text, uid=uid))["status"], uid) == text


@given(statuses, statuses)
def test_field_of_the_status_takes_precedence_over_the_annotation(status: Object, before: Object) -> None:
    restored = restore_pruned_fields(job(status, annotation_value(before, JOB_UID)))
    for field in ADDITIONAL_FIELDS:
        if status.get(field) is not None:
            assert restored["status"][field] == status[field]


def test_short_annotation_is_readable_json() -> None:
    text = annotation_value({"restarts": {"Worker": 2}, "completedIndexes": {"Worker": "0"}}, "u-1")
    assert text == '{"completedIndexes":{"Worker":"0"},"of":"u-1","restarts":{"Worker":2}}'


def test_status_without_additional_fields_needs_no_annotation() -> None:
    assert annotation_value({"startTime": "2026-11-15T04:00:00Z", "restarts": {}}, JOB_UID) is None


def test_job_without_annotation_is_the_same_object() -> None:
    raw = JobBuilder().master().raw()
    assert restore_pruned_fields(raw) is raw


def test_annotation_of_another_job_is_ignored() -> None:
    raw = job({}, annotation_value({"completedIndexes": {"Master": "0"}}, "of-the-job-that-was-copied"))
    assert restore_pruned_fields(raw) is raw


@pytest.mark.parametrize("metadata", [None, [], {"annotations": 3}, {"annotations": {ANNOTATION: '{"of":"x"}'}}])
def test_objects_without_usable_metadata_are_left_alone(metadata: Any) -> None:
    raw = {"metadata": metadata, "status": {}}
    assert restore_pruned_fields(raw) is raw


def test_status_that_is_not_an_object_is_left_to_validation() -> None:
    raw = {**job(None, annotation_value({"restarts": {"Worker": 1}}, JOB_UID)), "status": "fine"}
    assert restore_pruned_fields(raw) is raw


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "zlib:",
        "zlib:***",
        "zlib:" + base64.b64encode(b"not compressed").decode(),
        '{"of":"job-uid","restarts":{"Worker":"many"}}',
        '{"of":"job-uid","restarts":{"Worker":99999999999}}',
        '{"of":"job-uid","replacedPods":[1]}',
        '{"of":"job-uid","unknown":' + "[" * 5000 + "]" * 5000 + "}",
        "\ud800",
        7,
    ],
)
def test_malformed_annotation_is_ignored(text: Any) -> None:
    raw = job({"startTime": "2026-11-15T04:00:00Z"}, text)
    assert restore_pruned_fields(raw) is raw


def test_decompression_of_the_annotation_is_bounded() -> None:
    content = b'{"of":"job-uid","restarts":{"Worker":1}}'
    compressed, bomb = zlib.compress(b" " * 2**20 + content, 9), zlib.compress(b" " * 2**26 + content, 9)
    assert restore_pruned_fields(job({}, "zlib:" + base64.b64encode(compressed).decode()))["status"] == {
        "restarts": {"Worker": 1}
    }
    raw = job({}, "zlib:" + base64.b64encode(bomb).decode())
    assert restore_pruned_fields(raw) is raw  # its content comes after the bound


@given(junk, junk)
def test_readable_job_stays_readable_with_any_annotation(text: Any, status: Any) -> None:
    raw = job(None, text)
    raw["status"] = status
    restored = restore_pruned_fields(raw)
    assert {**restored, "status": None} == {**raw, "status": None}
    if isinstance(text, str) and (status is None or status == {}):
        read_job(restored)


def test_fields_of_a_hundred_thousand_replicas_fit() -> None:
    chance = random.Random(4)
    done = [index for index in range(100_000) if chance.random() < 0.5]
    status = {
        "completedIndexes": {"Worker": ",".join(map(str, done))},
        "restarts": {"Worker": 2**31 - 1, "Master": 2**31 - 1},
    }
    text = annotation_value(status, JOB_UID)
    assert text is not None
    assert len(text) < LIMIT_OF_ALL_ANNOTATIONS
    assert restore_pruned_fields(job({}, text))["status"] == status


def test_too_many_replaced_pods_are_left_out_before_the_counts() -> None:
    chance = random.Random(4)
    uids = [str(uuid.UUID(bytes=chance.randbytes(16))) for _ in range(100_000)]
    text = annotation_value({"replacedPods": uids, "restarts": {"Worker": 3}}, JOB_UID)
    assert text is not None
    assert len(text) < LIMIT_OF_ALL_ANNOTATIONS
    status = restore_pruned_fields(job({}, text))["status"]
    assert status["restarts"] == {"Worker": 3}
    assert len(status["replacedPods"]) > 4000
    assert set(status["replacedPods"]) < set(uids)


def test_longest_field_is_left_out_if_the_annotation_is_too_long() -> None:
    chance = random.Random(4)
    noise = {f"Role{number}": chance.randbytes(100_000).hex() for number in range(5)}
    text = annotation_value({"completedIndexes": noise, "restarts": {"Worker": 3}}, JOB_UID)
    assert text is not None
    assert restore_pruned_fields(job({}, text))["status"] == {"restarts": {"Worker": 3}}


def test_pruned_fields_are_those_that_were_written_and_not_stored() -> None:
    written = {"restarts": {"Worker": 1}, "completedIndexes": {}, "replacedPods": ["u"], "startTime": "x"}
    assert pruned_fields(written, {"startTime": "x"}) == ("restarts", "replacedPods")
    assert pruned_fields(written, written) == ()
