"""Changes of the list of conditions."""

from tests.support.objects.jobs import NOW, at
from trainwright.engine.conditions import is_finished, set_condition
from trainwright.objects import Object
from trainwright.objects.conditions import find_condition, is_condition_true
from trainwright.objects.times import format_time


def put(status: Object, kind: str, *, second: float = 0, value: bool = True, reason: str | None = None) -> bool:
    return set_condition(status, kind, reason=reason or kind, message=f"{kind}!", now=at(second), value=value)


def kinds(status: Object) -> list[tuple[str, str]]:
    return [(condition["type"], condition["status"]) for condition in status["conditions"]]


def test_a_condition_is_appended_with_both_times() -> None:
    status: Object = {}
    assert put(status, "Created")
    assert status["conditions"] == [
        {
            "type": "Created",
            "status": "True",
            "reason": "Created",
            "message": "Created!",
            "lastUpdateTime": format_time(NOW),
            "lastTransitionTime": format_time(NOW),
        }
    ]


def test_created_is_added_before_other_conditions() -> None:
    """Another operator may have removed it."""
    status: Object = {}
    put(status, "Running")
    put(status, "Created")
    assert kinds(status) == [("Created", "True"), ("Running", "True")]


def test_the_same_status_and_reason_change_nothing() -> None:
    status: Object = {}
    put(status, "Created")
    before = [dict(condition) for condition in status["conditions"]]
    assert not put(status, "Created", second=60)
    assert status["conditions"] == before


def test_another_reason_moves_it_to_the_end_and_keeps_the_time_of_transition() -> None:
    status: Object = {}
    put(status, "Running")
    put(status, "Suspended")
    assert put(status, "Running", second=60, reason="Other")
    assert kinds(status) == [("Suspended", "True"), ("Running", "True")]
    assert status["conditions"][1]["lastTransitionTime"] == format_time(NOW)
    assert status["conditions"][1]["lastUpdateTime"] == format_time(at(60))


def test_a_condition_without_a_time_of_transition_gets_one() -> None:
    """Another operator may not set it."""
    status: Object = {"conditions": [{"type": "Running", "status": "True"}]}
    put(status, "Running", second=7)
    assert status["conditions"][0]["lastTransitionTime"] == format_time(at(7))


def test_another_status_is_a_transition() -> None:
    status: Object = {}
    put(status, "Suspended")
    put(status, "Suspended", second=60, value=False)
    assert status["conditions"][0]["lastTransitionTime"] == format_time(at(60))


def test_running_and_restarting_replace_each_other() -> None:
    status: Object = {}
    for kind in ("Created", "Running", "Restarting"):
        put(status, kind)
    assert kinds(status) == [("Created", "True"), ("Restarting", "True")]
    put(status, "Running")
    assert kinds(status) == [("Created", "True"), ("Running", "True")]


def test_finished_job_has_running_false_at_its_place() -> None:
    status: Object = {}
    for kind in ("Created", "Running", "Failed"):
        put(status, kind)
    assert kinds(status) == [("Created", "True"), ("Running", "False"), ("Failed", "True")]
    assert status["conditions"][1]["reason"] == "Running"


def test_conditions_of_a_finished_job_do_not_change() -> None:
    for end, other in (("Failed", "Succeeded"), ("Succeeded", "Failed")):
        status: Object = {}
        put(status, end)
        assert is_finished(status)
        assert not put(status, other)
        assert not put(status, "Running")
        assert kinds(status) == [(end, "True")]


def test_missing_condition_is_not_true() -> None:
    assert find_condition({}, "Running") is None
    assert not is_condition_true({"conditions": None}, "Running")
