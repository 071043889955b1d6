"""Reads the API server's audit log: which user wrote what and when."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from trainwright.objects.times import parse_time


@dataclass(frozen=True)
class Write:
    user: str
    verb: str
    resource: str
    name: str
    code: int
    at: datetime
    """When the server received it."""

    def __str__(self) -> str:
        return f"{self.at:%H:%M:%S.%f} {self.user}: {self.verb} {self.resource} {self.name}: {self.code}"


def writes(log: Path) -> list[Write]:
    """All writes in the order of their arrival, including refused ones."""
    return sorted(_read(log), key=lambda write: write.at)


def _read(log: Path) -> Iterator[Write]:
    whole, _, _ = log.read_text().rpartition("\n")  # the last line may be incomplete
    for line in whole.splitlines():
        event = json.loads(line)
        thing = event.get("objectRef") or {}
        yield Write(
            user=event["user"]["username"],
            verb=event["verb"],
            resource="/".join(filter(None, (thing.get("resource", ""), thing.get("subresource", "")))),
            name=thing.get("name", ""),
            code=(event.get("responseStatus") or {}).get("code", 0),
            at=parse_time(event["requestReceivedTimestamp"]),
        )
