"""What a client has asked and got, one value per request on the wire: for whoever counts and times them."""

from dataclasses import dataclass

from trainwright.kube.client.requests import Request


@dataclass(frozen=True, slots=True)
class RequestSeen:
    """One attempt; every retry is one more. `seconds` is the time to the whole answer, or to the start of a stream."""

    request: Request
    status: int | None
    seconds: float

    @property
    def code(self) -> str:
        """The HTTP status as a label; `<error>`, as in other Kubernetes clients, if there was no answer."""
        return "<error>" if self.status is None else str(self.status)

    @property
    def method(self) -> str:
        return self.request.method
