"""Annotations of a job that override flags, and their invalid values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.engine.planning import decide, standing_events
from tests.support.objects.jobs import JobBuilder
from trainwright.api.annotations import DEAD_NODE_SECONDS, RESTART_SCOPE
from trainwright.engine.job_annotations import dead_node_seconds, mistakes, restarts_as_group
from trainwright.engine.settings import Settings


@pytest.mark.parametrize("scope", ["group", "pod"])
@pytest.mark.parametrize("seconds", ["1", "60", "999999999", "off"])
def test_valid_values_are_not_reported(scope: str, seconds: str) -> None:
    builder = JobBuilder().workers(1).annotation(RESTART_SCOPE, scope).annotation(DEAD_NODE_SECONDS, seconds)
    assert standing_events(decide(builder)) == []


@pytest.mark.parametrize("scope", ["", "Group", "all"])
def test_unknown_scope_is_reported(scope: str) -> None:
    made = decide(JobBuilder().workers(1).annotation(RESTART_SCOPE, scope))
    message = f'Annotation trainwright.dev/restart-scope: "{scope}" has no effect, use `group` or `pod`'
    assert standing_events(made) == [("InvalidAnnotation", message)]


@pytest.mark.parametrize("seconds", ["", "0", "-1", "1.5", "60s", "²", "1000000000", "Off"])
def test_invalid_number_of_seconds_is_reported(seconds: str) -> None:
    made = decide(JobBuilder().workers(1).annotation(DEAD_NODE_SECONDS, seconds))
    message = (
        f'Annotation trainwright.dev/dead-node-seconds: "{seconds}" has no effect, '
        "use a number of seconds from 1, with at most 9 digits, or `off`"
    )
    assert standing_events(made) == [("InvalidAnnotation", message)]


@given(scope=st.text(), seconds=st.text(), group=st.booleans(), default=st.none() | st.integers(1, 1000))
def test_any_text_is_either_reported_or_has_an_effect(
    scope: str, seconds: str, group: bool, default: int | None
) -> None:
    job = JobBuilder().workers(1).annotation(RESTART_SCOPE, scope).annotation(DEAD_NODE_SECONDS, seconds).job()
    settings = Settings(group_restart=group, dead_node_seconds=default)
    reported = [key for key in (RESTART_SCOPE, DEAD_NODE_SECONDS) if any(key in message for message in mistakes(job))]
    if RESTART_SCOPE in reported:
        assert restarts_as_group(job, settings) is group
    if DEAD_NODE_SECONDS in reported:
        assert dead_node_seconds(job, settings) == default
    else:
        assert seconds == ("off" if dead_node_seconds(job, settings) is None else seconds)
