"""Memory in an annotation: what is written there comes back, whatever else is in it does no harm."""

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
from trainwright.api.pruned_status import ANNOTATION, FIELDS, lost, recalled, remembered
from trainwright.objects import Object

LIMIT_OF_ALL_ANNOTATIONS = 256 * 1024


def job(status: Object | None, memory: Any, *, uid: str = JOB_UID) -> Object:
    return JobBuilder().master().metadata(uid=uid, annotations={ANNOTATION: memory}).status(status).raw()


def pruned(status: Object) -> Object:
    """What upstream's CRD keeps."""
    return {field: value for field, value in status.items() if field not in FIELDS}


def test_the_fields_are_those_that_upstream_does_not_declare() -> None:
    assert FIELDS == ("ports", "restarts", "replacedPods", "completedIndexes")


@given(statuses, st.text(max_size=40))
def test_what_the_server_drops_is_recalled_from_the_annotation(status: Object, uid: str) -> None:
    text = remembered(status, uid)
    meant = {field: value for field, value in status.items() if field not in FIELDS or value}
    if text is None:
        assert meant == pruned(status)
        return
    assert recalled(job(pruned(status), text, uid=uid))["status"] == meant


@given(statuses, st.text(max_size=40))
def test_remembering_what_was_recalled_changes_nothing(status: Object, uid: str) -> None:
    text = remembered(status, uid)
    assert remembered(recalled(job(pruned(status), text, uid=uid))["status"], uid) == text


@given(statuses, statuses)
def test_a_field_that_the_status_has_wins(status: Object, before: Object) -> None:
    seen = recalled(job(status, remembered(before, JOB_UID)))
    for field in FIELDS:
        if status.get(field) is not None:
            assert seen["status"][field] == status[field]


def test_short_memory_can_be_read_by_people() -> None:
    text = remembered({"restarts": {"Worker": 2}, "completedIndexes": {"Worker": "0"}}, "u-1")
    assert text == '{"completedIndexes":{"Worker":"0"},"of":"u-1","restarts":{"Worker":2}}'


def test_there_is_no_annotation_without_anything_to_remember() -> None:
    assert remembered({"startTime": "2026-11-15T04:00:00Z", "restarts": {}}, JOB_UID) is None


def test_a_job_without_the_annotation_is_the_same_object() -> None:
    raw = JobBuilder().master().raw()
    assert recalled(raw) is raw


def test_the_memory_of_another_job_is_not_ours() -> None:
    raw = job({}, remembered({"completedIndexes": {"Master": "0"}}, "of-the-job-that-was-copied"))
    assert recalled(raw) is raw


@pytest.mark.parametrize("metadata", [None, [], {"annotations": 3}, {"annotations": {ANNOTATION: '{"of":"x"}'}}])
def test_objects_without_usable_metadata_are_left_alone(metadata: Any) -> None:
    raw = {"metadata": metadata, "status": {}}
    assert recalled(raw) is raw


def test_a_status_that_is_no_object_is_left_to_validation() -> None:
    raw = {**job(None, remembered({"restarts": {"Worker": 1}}, JOB_UID)), "status": "fine"}
    assert recalled(raw) is raw


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "zlib:",
        "zlib:***",
        "zlib:" + base64.b64encode(b"not packed").decode(),
        '{"of":"job-uid","restarts":{"Worker":"many"}}',
        '{"of":"job-uid","restarts":{"Worker":99999999999}}',
        '{"of":"job-uid","replacedPods":[1]}',
        '{"of":"job-uid","unknown":' + "[" * 5000 + "]" * 5000 + "}",
        "\ud800",
        7,
    ],
)
def test_a_damaged_annotation_is_no_memory(text: Any) -> None:
    raw = job({"startTime": "2026-11-15T04:00:00Z"}, text)
    assert recalled(raw) is raw


def test_a_bomb_in_the_annotation_stays_small() -> None:
    content = b'{"of":"job-uid","restarts":{"Worker":1}}'
    packed, bomb = zlib.compress(b" " * 2**20 + content, 9), zlib.compress(b" " * 2**26 + content, 9)
    assert recalled(job({}, "zlib:" + base64.b64encode(packed).decode()))["status"] == {"restarts": {"Worker": 1}}
    raw = job({}, "zlib:" + base64.b64encode(bomb).decode())
    assert recalled(raw) is raw  # nobody unpacked as far as the content


@given(junk, junk)
def test_whatever_stands_there_a_readable_job_stays_readable(text: Any, status: Any) -> None:
    raw = job(None, text)
    raw["status"] = status
    seen = recalled(raw)
    assert {**seen, "status": None} == {**raw, "status": None}
    if isinstance(text, str) and (status is None or status == {}):
        read_job(seen)


def test_memory_of_a_hundred_thousand_replicas_fits() -> None:
    chance = random.Random(4)
    done = [index for index in range(100_000) if chance.random() < 0.5]
    status = {
        "completedIndexes": {"Worker": ",".join(map(str, done))},
        "restarts": {"Worker": 2**31 - 1, "Master": 2**31 - 1},
        "ports": {"Master": 23456},
    }
    text = remembered(status, JOB_UID)
    assert text is not None
    assert len(text) < LIMIT_OF_ALL_ANNOTATIONS
    assert recalled(job({}, text))["status"] == status


def test_too_many_replaced_pods_push_each_other_out_but_never_the_counts() -> None:
    chance = random.Random(4)
    uids = [str(uuid.UUID(bytes=chance.randbytes(16))) for _ in range(100_000)]
    text = remembered({"replacedPods": uids, "restarts": {"Worker": 3}}, JOB_UID)
    assert text is not None
    assert len(text) < LIMIT_OF_ALL_ANNOTATIONS
    status = recalled(job({}, text))["status"]
    assert status["restarts"] == {"Worker": 3}
    assert len(status["replacedPods"]) > 4000
    assert set(status["replacedPods"]) < set(uids)


def test_what_can_be_found_out_again_goes_before_the_counts() -> None:
    chance = random.Random(4)
    noise = {f"Role{number}": chance.randbytes(100_000).hex() for number in range(5)}
    text = remembered({"completedIndexes": noise, "restarts": {"Worker": 3}}, JOB_UID)
    assert text is not None
    assert recalled(job({}, text))["status"] == {"restarts": {"Worker": 3}}


def test_what_the_server_lost_is_named() -> None:
    written = {"restarts": {"Worker": 1}, "ports": {}, "replacedPods": ["u"], "startTime": "x"}
    assert lost(written, {"startTime": "x"}) == ("restarts", "replacedPods")
    assert lost(written, written) == ()
