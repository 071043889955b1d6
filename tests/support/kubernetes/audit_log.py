"""Reads the API server's audit log: which user wrote what and when, and what the server understood of a request."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class AuditedRequest:
    """What the server's RequestInfo says of a request, and how it was answered."""

    verb: str
    group: str
    version: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int


class AuditedRequests:
    """Finds requests by their audit ID, which clients choose with the header Audit-ID."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._position = 0
        self._found: dict[str, AuditedRequest] = {}

    def read(self, identity: str) -> AuditedRequest | None:
        """None if it is not in the log yet: an event is written after the response."""
        with self._log.open("rb") as file:
            file.seek(self._position)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._position += len(whole + newline)
        events = [json.loads(line) for line in whole.splitlines()]
        self._found |= {event["auditID"]: _audited(event) for event in events}
        return self._found.get(identity)


def _audited(event: Mapping[str, Any]) -> AuditedRequest:
    thing = event.get("objectRef") or {}
    return AuditedRequest(
        verb=event["verb"],
        group=thing.get("apiGroup", ""),
        version=thing.get("apiVersion", ""),
        resource=thing.get("resource", ""),
        subresource=thing.get("subresource", ""),
        namespace=thing.get("namespace", ""),
        name=thing.get("name", ""),
        code=(event.get("responseStatus") or {}).get("code", 0),
    )
