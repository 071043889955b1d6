from trainwright.kube.controller.deduplicator import Deduplicator

PULLING, TAKEN = "Error pod a container b waiting message: no such image", "pod a exists already"


def test_message_is_reported_once_while_it_holds() -> None:
    reported = Deduplicator[str, str]()
    assert reported.update("job", [PULLING]) == [PULLING]
    assert reported.update("job", [PULLING, TAKEN]) == [TAKEN]
    assert reported.update("job", [PULLING, TAKEN]) == []


def test_message_that_ended_is_reported_again_when_it_returns() -> None:
    reported = Deduplicator[str, str]()
    reported.update("job", [PULLING])
    assert reported.update("job", []) == []
    assert "job" not in reported
    assert reported.update("job", [PULLING]) == [PULLING]


def test_keys_are_independent_and_can_be_forgotten() -> None:
    reported = Deduplicator[str, str]()
    reported.update("a", [PULLING])
    assert reported.update("b", [PULLING]) == [PULLING]
    reported.forget("a")
    reported.forget("never seen")
    assert reported.update("a", [PULLING]) == [PULLING]


def test_single_messages_are_first_once_even_in_turns() -> None:
    reported = Deduplicator[str, str]()
    assert [reported.first("pod", one) for one in (PULLING, TAKEN, PULLING, TAKEN)] == [True, True, False, False]
    reported.forget("pod")
    assert reported.first("pod", PULLING)
