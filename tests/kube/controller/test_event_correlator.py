"""Which occurrences become Events: told once, counted when they repeat, combined when there are too many."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.kube.controller.event_correlator import (
    AGGREGATION_WINDOW,
    COMBINED_PREFIX,
    MOST_DIFFERENT,
    Aggregator,
    Occurrence,
    Tally,
    event_of,
    reference_to,
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
    return Occurrence(reference_to(about), type, reason, message, at, component, standing=standing)


def take(aggregator: Aggregator, occurrence: Occurrence) -> Tally:
    """What the recorder does with every occurrence."""
    return aggregator.recall(occurrence) or aggregator.introduce(occurrence)


def test_a_new_event_says_who_saw_what_happen_to_whom() -> None:
    tally = Aggregator(names=lambda: 0xABC).introduce(happened())
    assert event_of(tally, instance="host-1") == {
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
    aggregator = Aggregator()
    take(aggregator, happened())
    assert take(aggregator, happened(component="kubelet")).count == 1
    assert take(aggregator, happened()).count == 2


def test_without_an_instance_there_is_no_host() -> None:
    event = event_of(Aggregator().introduce(happened(component="c")), instance="")
    assert event["source"] == {"component": "c"}


def test_events_about_the_whole_cluster_live_in_the_default_namespace() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "local"}}
    assert Aggregator().introduce(happened(about=node)).namespace == "default"


def test_no_two_events_share_a_name_even_if_the_clock_stands_still() -> None:
    aggregator = Aggregator(names=lambda: 10)
    assert len({aggregator.introduce(happened(str(number))).name for number in range(5)}) == 5


def test_the_name_of_an_event_is_never_too_long() -> None:
    long = {**JOB, "metadata": {"name": "x" * 253, "namespace": "n"}}
    assert len(Aggregator().introduce(happened(about=long)).name) == 253


def test_what_happens_again_within_ten_minutes_is_counted() -> None:
    aggregator = Aggregator()
    first = aggregator.introduce(happened())
    assert aggregator.recall(happened(at=NOW + timedelta(minutes=9))) is first
    assert first.patch() == {"count": 2, "lastTimestamp": "2026-11-15T04:14:06Z"}
    assert aggregator.recall(happened(at=NOW + timedelta(minutes=18))) is first
    assert first.count == 3
    assert aggregator.recall(happened(at=NOW + timedelta(minutes=29))) is None


@pytest.mark.parametrize(
    "other",
    [
        happened("Created pod: q"),
        happened(reason="FailedCreatePod"),
        happened(about={**JOB, "metadata": {**JOB["metadata"], "uid": "u2"}}),
        happened(about={**reference_to(JOB), "fieldPath": "spec.containers{main}"}),
        happened(type="Warning"),
    ],
)
def test_only_what_is_identical_is_counted(other: Occurrence) -> None:
    aggregator = Aggregator()
    aggregator.introduce(happened())
    assert aggregator.recall(other) is None


def test_a_newer_version_of_the_object_is_the_same_object() -> None:
    aggregator = Aggregator()
    aggregator.introduce(happened())
    assert aggregator.recall(happened(about={**JOB, "metadata": {**JOB["metadata"], "resourceVersion": "9"}}))


def test_after_ten_different_messages_the_others_share_one_event() -> None:
    aggregator = Aggregator()
    told = [take(aggregator, happened(f"Created pod: {number}")) for number in range(1000)]
    assert len({tally.name for tally in told}) == 11
    combined = told[-1]
    assert combined.patch() == {
        "count": 990,
        "lastTimestamp": "2026-11-15T04:05:06Z",
        "message": "(combined from similar events): Created pod: 999",
    }
    assert take(aggregator, happened("Created pod: 3")) is told[3], "what has an event of its own is counted there"
    assert not take(aggregator, happened(reason="Other")).combined


def test_combining_goes_on_while_it_rages_and_ends_when_it_is_over() -> None:
    aggregator = Aggregator()
    moment = NOW
    for number in range(MOST_DIFFERENT):
        take(aggregator, happened(str(number), at=moment))
    combined = take(aggregator, happened("more", at=moment))
    for number in range(30):
        moment += AGGREGATION_WINDOW / 2
        assert take(aggregator, happened(f"more {number}", at=moment)) is combined
    moment += AGGREGATION_WINDOW * 2
    assert not take(aggregator, happened("news", at=moment)).combined


def test_rare_messages_are_never_combined() -> None:
    aggregator = Aggregator()
    gap = AGGREGATION_WINDOW / (MOST_DIFFERENT - 1)
    assert not any(take(aggregator, happened(str(n), at=NOW + n * gap)).combined for n in range(100))


def test_an_event_that_could_not_be_made_is_tried_anew() -> None:
    aggregator = Aggregator()
    for number in range(MOST_DIFFERENT + 1):
        tally = take(aggregator, happened(str(number)))
        aggregator.forget(tally)
        assert aggregator.recall(happened(str(number))) is None
        assert not tally.combined
    for number in range(MOST_DIFFERENT + 1):
        tally = take(aggregator, happened(str(number)))
    assert tally.combined
    aggregator.forget(tally)
    aggregator.forget(tally)
    assert len(aggregator) == MOST_DIFFERENT
    assert take(aggregator, happened("more")) is not tally
    Aggregator().forget(tally)


def test_a_deleted_event_starts_again_with_what_it_had_not_shown() -> None:
    aggregator = Aggregator()
    tally = take(aggregator, happened())
    tally.written = 1
    take(aggregator, happened(at=NOW + timedelta(minutes=1)))
    tally.start_again("other")
    assert event_of(tally, instance="")["count"] == 1
    assert (tally.name, tally.written, tally.first) == ("other", 0, NOW + timedelta(minutes=1))


def test_memory_is_bounded() -> None:
    aggregator = Aggregator()
    for number in range(5000):
        aggregator.introduce(happened(reason=f"R{number}"))
    assert len(aggregator) == 4096
    assert aggregator.recall(happened(reason="R0")) is None
    assert aggregator.recall(happened(reason="R4999")) is not None


def test_events_that_could_not_be_made_leave_nothing_behind() -> None:
    aggregator = Aggregator()
    for number in range(100):
        aggregator.forget(aggregator.introduce(happened(reason=f"R{number}")))
    late = happened(reason="late")
    take(aggregator, late)
    assert aggregator.recall(happened(reason="late", at=NOW + 2 * AGGREGATION_WINDOW)) is None
    assert (len(aggregator), len(aggregator._stories)) == (0, 0)


def test_a_reference_can_stand_for_the_object() -> None:
    reference = reference_to(JOB)
    assert reference_to(reference) == reference


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
def test_nothing_is_lost_and_nothing_is_told_of_somebody_else(steps: list[tuple[str, str, str, float]]) -> None:
    aggregator = Aggregator()
    moment = NOW
    tallies: dict[str, Tally] = {}
    expected: Counter[tuple[Any, ...]] = Counter()
    for uid, reason, message, pause in steps:
        moment += timedelta(seconds=pause)
        occurrence = happened(message, reason=reason, at=moment, about={**JOB, "metadata": {"name": "m", "uid": uid}})
        tally = take(aggregator, occurrence)
        tallies[tally.name] = tally
        expected[uid, reason] += 1
        assert (tally.reference["uid"], tally.reason, tally.last) == (uid, reason, moment)
        assert tally.message == (COMBINED_PREFIX if tally.combined else "") + message
    counted: Counter[tuple[Any, ...]] = Counter()
    for tally in tallies.values():
        counted[tally.reference["uid"], tally.reason] += tally.count
    assert counted == expected


@given(happenings)
def test_within_a_window_a_reason_has_a_dozen_events_at_most(steps: list[tuple[str, str, str, float]]) -> None:
    aggregator = Aggregator()
    moment = NOW
    made: list[tuple[str, datetime]] = []
    for _, _, message, pause in steps:
        moment += timedelta(seconds=pause)
        if aggregator.recall(happened(message, at=moment)) is None:
            aggregator.introduce(happened(message, at=moment))
            made.append((message, moment))
        assert sum(moment - at <= AGGREGATION_WINDOW for _, at in made) <= MOST_DIFFERENT + 1
    assert len(aggregator) <= MOST_DIFFERENT + 1


def test_what_stands_has_one_name_whoever_tells_it() -> None:
    def name(message: str = "no", *, uid: str = "u1") -> str:
        job = {**JOB, "metadata": {**JOB["metadata"], "uid": uid}}
        return Aggregator().introduce(happened(message, about=job, standing=True)).name

    assert name() == name()
    assert len({name(), name("nor this"), name(uid="u2")}) == 3
    assert name().startswith("mnist.")


def test_of_what_stands_the_last_sight_is_told_and_not_how_often() -> None:
    aggregator = Aggregator()
    tally = aggregator.introduce(happened(standing=True))
    take(aggregator, happened(at=NOW + timedelta(minutes=1), standing=True))
    assert tally.has_news
    assert tally.patch() == {"lastTimestamp": "2026-11-15T04:06:06Z"}
    assert event_of(tally, instance="")["count"] == 1
    before = tally.name
    tally.start_again("mnist.other")
    assert tally.name == before


def test_too_many_different_ones_that_stand_are_combined_as_others_are() -> None:
    aggregator = Aggregator()
    *_, last = [take(aggregator, happened(str(number), standing=True)) for number in range(MOST_DIFFERENT + 2)]
    assert (last.combined, last.standing, last.count) == (True, False, 2)
