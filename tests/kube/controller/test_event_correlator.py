"""Occurrences become Events: counted when they repeat, combined when there are too many."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.kube.controller.event_correlator import (
    AGGREGATION_WINDOW,
    COMBINED_PREFIX,
    MAX_SIMILAR_EVENTS,
    EventCorrelator,
    EventSeries,
    Occurrence,
    object_reference,
    render_event,
)
from trainwright.objects import Object

NOW = datetime(2026, 11, 15, 4, 5, 6, tzinfo=UTC)
JOB: Object = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "mnist", "namespace": "train", "uid": "u1", "resourceVersion": "7", "labels": {}},
}


def happened(
    message: str = "Created pod: p",
    *,
    type: str = "Normal",  # noqa: A002
    reason: str = "SuccessfulCreatePod",
    at: datetime = NOW,
    about: Object = JOB,
    standing: bool = False,
    component: str = "pytorchjob-controller",
) -> Occurrence:
    return Occurrence(object_reference(about), type, reason, message, at, component, standing=standing)


def take(correlator: EventCorrelator, occurrence: Occurrence) -> EventSeries:
    """What the recorder does with every occurrence."""
    return correlator.count_up(occurrence) or correlator.start(occurrence)


def test_new_event_has_all_fields() -> None:
    series = EventCorrelator(names=lambda: 0xABC).start(happened())
    assert render_event(series, instance="host-1") == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "mnist.abc", "namespace": "train"},
        "involvedObject": {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "name": "mnist",
            "namespace": "train",
            "uid": "u1",
            "resourceVersion": "7",
        },
        "type": "Normal",
        "reason": "SuccessfulCreatePod",
        "message": "Created pod: p",
        "source": {"component": "pytorchjob-controller", "host": "host-1"},
        "reportingComponent": "pytorchjob-controller",
        "reportingInstance": "host-1",
        "firstTimestamp": "2026-11-15T04:05:06Z",
        "lastTimestamp": "2026-11-15T04:05:06Z",
        "count": 1,
    }


def test_events_of_two_components_are_counted_apart() -> None:
    correlator = EventCorrelator()
    take(correlator, happened())
    assert take(correlator, happened(component="kubelet")).count == 1
    assert take(correlator, happened()).count == 2


def test_without_an_instance_there_is_no_host() -> None:
    event = render_event(EventCorrelator().start(happened(component="c")), instance="")
    assert event["source"] == {"component": "c"}


def test_events_of_cluster_scoped_objects_are_in_the_default_namespace() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "local"}}
    assert EventCorrelator().start(happened(about=node)).namespace == "default"


def test_no_two_events_share_a_name_even_if_the_clock_stands_still() -> None:
    correlator = EventCorrelator(names=lambda: 10)
    assert len({correlator.start(happened(str(number))).name for number in range(5)}) == 5


def test_the_name_of_an_event_is_never_too_long() -> None:
    long = {**JOB, "metadata": {"name": "x" * 253, "namespace": "n"}}
    assert len(EventCorrelator().start(happened(about=long)).name) == 253


def test_what_happens_again_within_ten_minutes_is_counted() -> None:
    correlator = EventCorrelator()
    first = correlator.start(happened())
    assert correlator.count_up(happened(at=NOW + timedelta(minutes=9))) is first
    assert first.patch() == {"count": 2, "lastTimestamp": "2026-11-15T04:14:06Z"}
    assert correlator.count_up(happened(at=NOW + timedelta(minutes=18))) is first
    assert first.count == 3
    assert correlator.count_up(happened(at=NOW + timedelta(minutes=29))) is None


@pytest.mark.parametrize(
    "other",
    [
        happened("Created pod: q"),
        happened(reason="FailedCreatePod"),
        happened(about={**JOB, "metadata": {**JOB["metadata"], "uid": "u2"}}),
        happened(about={**object_reference(JOB), "fieldPath": "spec.containers{main}"}),
        happened(type="Warning"),
    ],
)
def test_only_what_is_identical_is_counted(other: Occurrence) -> None:
    correlator = EventCorrelator()
    correlator.start(happened())
    assert correlator.count_up(other) is None


def test_a_newer_version_of_the_object_is_the_same_object() -> None:
    correlator = EventCorrelator()
    correlator.start(happened())
    assert correlator.count_up(happened(about={**JOB, "metadata": {**JOB["metadata"], "resourceVersion": "9"}}))


def test_after_ten_different_messages_the_others_share_one_event() -> None:
    correlator = EventCorrelator()
    told = [take(correlator, happened(f"Created pod: {number}")) for number in range(1000)]
    assert len({series.name for series in told}) == 11
    combined = told[-1]
    assert combined.patch() == {
        "count": 990,
        "lastTimestamp": "2026-11-15T04:05:06Z",
        "message": "(combined from similar events): Created pod: 999",
    }
    assert take(correlator, happened("Created pod: 3")) is told[3], "what has an event of its own is counted there"
    assert not take(correlator, happened(reason="Other")).combined


def test_events_are_combined_while_they_are_frequent() -> None:
    correlator = EventCorrelator()
    moment = NOW
    for number in range(MAX_SIMILAR_EVENTS):
        take(correlator, happened(str(number), at=moment))
    combined = take(correlator, happened("more", at=moment))
    for number in range(30):
        moment += AGGREGATION_WINDOW / 2
        assert take(correlator, happened(f"more {number}", at=moment)) is combined
    moment += AGGREGATION_WINDOW * 2
    assert not take(correlator, happened("news", at=moment)).combined


def test_rare_messages_are_never_combined() -> None:
    correlator = EventCorrelator()
    gap = AGGREGATION_WINDOW / (MAX_SIMILAR_EVENTS - 1)
    assert not any(take(correlator, happened(str(n), at=NOW + n * gap)).combined for n in range(100))


def test_event_that_could_not_be_created_is_tried_again() -> None:
    correlator = EventCorrelator()
    for number in range(MAX_SIMILAR_EVENTS + 1):
        series = take(correlator, happened(str(number)))
        correlator.forget(series)
        assert correlator.count_up(happened(str(number))) is None
        assert not series.combined
    for number in range(MAX_SIMILAR_EVENTS + 1):
        series = take(correlator, happened(str(number)))
    assert series.combined
    correlator.forget(series)
    correlator.forget(series)
    assert len(correlator) == MAX_SIMILAR_EVENTS
    assert take(correlator, happened("more")) is not series
    EventCorrelator().forget(series)


def test_deleted_event_restarts_with_the_missing_count() -> None:
    correlator = EventCorrelator()
    series = take(correlator, happened())
    series.written = 1
    take(correlator, happened(at=NOW + timedelta(minutes=1)))
    series.restart("other")
    assert render_event(series, instance="")["count"] == 1
    assert (series.name, series.written, series.first) == ("other", 0, NOW + timedelta(minutes=1))


def test_memory_is_bounded() -> None:
    correlator = EventCorrelator()
    for number in range(5000):
        correlator.start(happened(reason=f"R{number}"))
    assert len(correlator) == 4096
    assert correlator.count_up(happened(reason="R0")) is None
    assert correlator.count_up(happened(reason="R4999")) is not None


def test_events_that_could_not_be_created_are_forgotten() -> None:
    correlator = EventCorrelator()
    for number in range(100):
        correlator.forget(correlator.start(happened(reason=f"R{number}")))
    late = happened(reason="late")
    take(correlator, late)
    assert correlator.count_up(happened(reason="late", at=NOW + 2 * AGGREGATION_WINDOW)) is None
    assert (len(correlator), len(correlator._similar)) == (0, 0)


def test_a_reference_can_stand_for_the_object() -> None:
    reference = object_reference(JOB)
    assert object_reference(reference) == reference


happenings = st.lists(
    st.tuples(
        st.sampled_from(["u1", "u2"]),
        st.sampled_from(["Created", "Failed"]),
        st.integers(0, 25).map(str),
        st.sampled_from([0.0, 0.1, 5.0, 400.0, 700.0]),
    ),
    max_size=200,
)


@given(happenings)
def test_all_occurrences_are_counted_on_their_own_object(steps: list[tuple[str, str, str, float]]) -> None:
    correlator = EventCorrelator()
    moment = NOW
    tallies: dict[str, EventSeries] = {}
    expected: Counter[tuple[Any, ...]] = Counter()
    for uid, reason, message, pause in steps:
        moment += timedelta(seconds=pause)
        occurrence = happened(message, reason=reason, at=moment, about={**JOB, "metadata": {"name": "m", "uid": uid}})
        series = take(correlator, occurrence)
        tallies[series.name] = series
        expected[uid, reason] += 1
        assert (series.occurrence.reference["uid"], series.occurrence.reason, series.last) == (uid, reason, moment)
        assert series.message == (COMBINED_PREFIX if series.combined else "") + message
    counted: Counter[tuple[Any, ...]] = Counter()
    for series in tallies.values():
        counted[series.occurrence.reference["uid"], series.occurrence.reason] += series.count
    assert counted == expected


@given(happenings)
def test_within_a_window_a_reason_has_a_dozen_events_at_most(steps: list[tuple[str, str, str, float]]) -> None:
    correlator = EventCorrelator()
    moment = NOW
    made: list[tuple[str, datetime]] = []
    for _, _, message, pause in steps:
        moment += timedelta(seconds=pause)
        if correlator.count_up(happened(message, at=moment)) is None:
            correlator.start(happened(message, at=moment))
            made.append((message, moment))
        assert sum(moment - at <= AGGREGATION_WINDOW for _, at in made) <= MAX_SIMILAR_EVENTS + 1
    assert len(correlator) <= MAX_SIMILAR_EVENTS + 1


def test_standing_event_has_the_same_name_in_every_process() -> None:
    def name(message: str = "no", *, uid: str = "u1") -> str:
        job = {**JOB, "metadata": {**JOB["metadata"], "uid": uid}}
        return EventCorrelator().start(happened(message, about=job, standing=True)).name

    assert name() == name()
    assert len({name(), name("nor this"), name(uid="u2")}) == 3
    assert name().startswith("mnist.")


def test_standing_event_has_a_last_time_but_no_count() -> None:
    correlator = EventCorrelator()
    series = correlator.start(happened(standing=True))
    take(correlator, happened(at=NOW + timedelta(minutes=1), standing=True))
    assert series.is_outdated
    assert series.patch() == {"lastTimestamp": "2026-11-15T04:06:06Z"}
    assert render_event(series, instance="")["count"] == 1
    before = series.name
    series.restart("mnist.other")
    assert series.name == before


def test_too_many_standing_events_are_combined() -> None:
    correlator = EventCorrelator()
    *_, last = [take(correlator, happened(str(number), standing=True)) for number in range(MAX_SIMILAR_EVENTS + 2)]
    assert (last.combined, last.standing, last.count) == (True, False, 2)
