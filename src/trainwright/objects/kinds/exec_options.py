"""The options of exec and attach. The API server parses them, the node applies them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of `pods/NAME/exec` and `pods/NAME/attach`; with a terminal all output is stdout."""

    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


class StreamUnavailable(Exception):  # noqa: N818 - an answer to the client, not a fault
    """The container or port cannot be reached. The message is the kubelet's."""
