"""Plans repeat how things are; users read it once."""

from trainwright.engine import JobEvent
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.operator.reconcile.standing_events import Notices

PULLING = JobEvent("Warning", "ErrImagePull", "Error pod a container b waiting message: no such image")
JOB, A, B = (ObjectKey("PyTorchJob", "team", name) for name in ("job", "a", "b"))
TAKEN = JobEvent("Warning", "NameTaken", "pod a exists already")


def test_a_notice_is_news_once_while_it_lasts() -> None:
    notices = Notices()
    assert notices.news(JOB, "uid", [PULLING]) == [PULLING]
    assert notices.news(JOB, "uid", [PULLING, TAKEN]) == [TAKEN]
    assert notices.news(JOB, "uid", [PULLING, TAKEN]) == []


def test_a_notice_that_went_away_is_news_when_it_comes_back() -> None:
    notices = Notices()
    notices.news(JOB, "uid", [PULLING])
    assert notices.news(JOB, "uid", []) == []
    assert notices.news(JOB, "uid", [PULLING]) == [PULLING]


def test_jobs_are_told_apart_and_forgotten() -> None:
    notices = Notices()
    notices.news(A, "uid", [PULLING])
    assert notices.news(B, "uid", [PULLING]) == [PULLING]
    notices.forget(A)
    assert notices.news(A, "uid", [PULLING]) == [PULLING]


def test_another_job_of_the_same_name_is_told_from_the_beginning() -> None:
    notices = Notices()
    notices.news(JOB, "former", [PULLING])
    assert notices.news(JOB, "later", [PULLING]) == [PULLING]
    assert notices.news(JOB, "later", [PULLING]) == []
