import signal

import pytest

from trainwright.cluster.node.pods.config.container_image import (
    Accounts,
    ContainerError,
    ContainerImage,
    Identity,
    arguments_of,
    identity_of,
    parse_environment,
    parse_stop_signal,
)

ACCOUNTS = Accounts.parse(
    "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:10:20::/home/ann:/bin/sh\n7:x:70:71::/seven:/bin/sh\n",
    "root:x:0:\nstaff:x:20:\nvideo:x:44:bob,ann\n",
)


@pytest.mark.parametrize(
    ("user", "run_as_user", "run_as_group", "found"),
    [
        ("", None, None, Identity(0, 0, (0,), "/root")),
        ("ann", None, None, Identity(10, 20, (20, 44), "/home/ann")),
        ("ann:video", None, None, Identity(10, 20, (20, 44), "/home/ann")),
        ("10", None, None, Identity(10, 20, (20, 44), "/home/ann")),
        ("99", None, None, Identity(99, 0, (0,), "/")),
        ("ann", 0, None, Identity(0, 0, (0,), "/root")),
        ("ann", 10, 5, Identity(10, 5, (5, 44), "/home/ann")),
    ],
)
def test_the_identity_of_a_program(
    user: str, run_as_user: int | None, run_as_group: int | None, found: Identity
) -> None:
    image = ContainerImage(user=user, accounts=ACCOUNTS)
    assert identity_of(image, run_as_user=run_as_user, run_as_group=run_as_group) == found


def test_an_unknown_user_is_an_error() -> None:
    with pytest.raises(ContainerError, match="unable to find user eve"):
        identity_of(ContainerImage(user="eve", accounts=ACCOUNTS), run_as_user=None, run_as_group=None)


def test_arguments_of_the_image_and_of_the_manifest() -> None:
    image = ContainerImage(entrypoint=("e",), command=("c",))
    assert arguments_of({}, image) == (["e", "c"], [])
    assert arguments_of({"args": ["a"]}, image) == (["e"], ["a"])
    assert arguments_of({"command": ["x"]}, image) == ([], ["x"])
    assert arguments_of({"command": ["x"], "args": ["a"]}, image) == ([], ["x", "a"])
    with pytest.raises(ContainerError, match="no command specified"):
        arguments_of({}, ContainerImage())


def test_values_of_an_image() -> None:
    assert parse_environment(["A=1", "B=x=y", "C", "=d"]) == {"A": "1", "B": "x=y", "C": ""}
    assert parse_stop_signal("SIGINT") == parse_stop_signal("int") == parse_stop_signal("2") == signal.SIGINT
    assert parse_stop_signal("") == parse_stop_signal("SIGNONSENSE") == parse_stop_signal("999") == signal.SIGTERM
