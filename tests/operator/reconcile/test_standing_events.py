"""Plans repeat how things are; users read it once."""

from trainwright.engine import JobEvent
from trainwright.operator.reconcile.standing_events import Notices

PULLING = JobEvent("Warning", "ErrImagePull", "Error pod a container b waiting message: no such image")
TAKEN = JobEvent("Warning", "NameTaken", "pod a exists already")


def test_a_notice_is_news_once_while_it_lasts() -> None:
    notices = Notices()
    assert notices.news("job", "uid", [PULLING]) == [PULLING]
    assert notices.news("job", "uid", [PULLING, TAKEN]) == [TAKEN]
    assert notices.news("job", "uid", [PULLING, TAKEN]) == []


def test_a_notice_that_went_away_is_news_when_it_comes_back() -> None:
    notices = Notices()
    notices.news("job", "uid", [PULLING])
    assert notices.news("job", "uid", []) == []
    assert notices.news("job", "uid", [PULLING]) == [PULLING]


def test_jobs_are_told_apart_and_forgotten() -> None:
    notices = Notices()
    notices.news("a", "uid", [PULLING])
    assert notices.news("b", "uid", [PULLING]) == [PULLING]
    notices.forget("a")
    assert notices.news("a", "uid", [PULLING]) == [PULLING]


def test_another_job_of_the_same_name_is_told_from_the_beginning() -> None:
    notices = Notices()
    notices.news("job", "former", [PULLING])
    assert notices.news("job", "later", [PULLING]) == [PULLING]
    assert notices.news("job", "later", [PULLING]) == []
