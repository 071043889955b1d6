"""Deduplicates messages about states that last: each message is reported once per object."""

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
M = TypeVar("M", bound=Hashable)


class Deduplicator(Generic[K, M]):
    """Remembers the messages that were reported under each key, until `forget`."""

    def __init__(self) -> None:
        self._reported: dict[K, set[M]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._reported

    def first(self, key: K, message: M) -> bool:
        """True if the message has not been reported yet."""
        reported = self._reported.setdefault(key, set())
        if message in reported:
            return False
        reported.add(message)
        return True

    def update(self, key: K, messages: Sequence[M]) -> list[M]:
        """Takes all messages that apply now and returns the new ones. A message that stops applying is forgotten."""
        reported = self._reported.get(key, ())
        if messages:
            self._reported[key] = set(messages)
        else:
            self.forget(key)
        return [message for message in messages if message not in reported]

    def forget(self, key: K) -> None:
        self._reported.pop(key, None)
