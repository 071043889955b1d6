"""An API server in the process of its client: requests and responses are passed as values, without a socket."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Protocol

from trainwright.kube.client.requests import Request, Response


@dataclass(frozen=True, slots=True)
class InProcessResponse:
    response: Response
    """Its body is empty if there is a stream."""
    stream: AsyncGenerator[bytes, None] | None = None


class InProcessServer(Protocol):
    async def respond(self, request: Request, headers: Mapping[str, str]) -> InProcessResponse:
        """Authenticates, authorizes and executes the request as if it had come over the network."""
        ...
