"""One of several processes leads: the holder of a coordination.k8s.io/v1 Lease, as every Kubernetes controller does it.

`candidacy` decides, this moves requests. One gap is left, as in every such election: if somebody deletes the Lease, a
process that starts in that moment, and so knows nothing of the old holder, may lead until the old one notices
(at most `renew_seconds`; those that ran before wait until the deleted lease would have run out).
"""

import asyncio
import logging
import math
import random
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime

from trainwright.kube.client import requests, responses
from trainwright.kube.client.errors import AlreadyExists, ApiError, Conflict, NotFound, Unreachable
from trainwright.kube.client.requests import Request, Transport
from trainwright.kube.controller.lease_candidate import Candidacy, Renew, Wait
from trainwright.objects import Object
from trainwright.objects.resources import LEASES

log = logging.getLogger(__name__)


def steady_seconds() -> float:
    """A clock that never goes back and that counts while the machine sleeps: others do not wait for it to wake up."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_identity() -> str:
    """Names this machine for people, and this process unmistakably."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElection:
    """`acquire`, then work while `hold` runs, then `release`. `identity` should be another one for every process.

    `on_change` is told (whether we lead, who does) whenever one of the two changes. `leading` looks at the clock: a
    process that was stopped for a while asks it before it writes anything.
    """

    def __init__(
        self,
        client: Transport,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_seconds: float = 15.0,
        renew_seconds: float = 10.0,
        retry_seconds: float = 2.0,
        clock: Callable[[], float] = steady_seconds,
        on_change: Callable[[bool, str], None] | None = None,
    ) -> None:
        if not identity:
            raise ValueError("identity must not be empty: a lease without a holder is free")
        if not 0 < retry_seconds < renew_seconds < lease_seconds:
            raise ValueError(
                "retry_seconds < renew_seconds < lease_seconds must hold, so that a leader stops before another "
                f"starts: not {retry_seconds:g}, {renew_seconds:g}, {lease_seconds:g}"
            )
        self._client = client
        self._namespace, self._name = namespace, name
        self._renew_seconds, self._retry_seconds = renew_seconds, retry_seconds
        self._clock = clock
        self._on_change = on_change
        self._candidacy = Candidacy(
            namespace=namespace,
            name=name,
            identity=identity,
            lease_seconds=lease_seconds,
            renew_seconds=renew_seconds,
        )
        self._told = (False, "")
        self._last_complaint = ""

    @property
    def leader(self) -> str:
        """Who holds the lease, as far as is known; empty if nobody does."""
        return self._candidacy.holder

    @property
    def leading(self) -> bool:
        return self._candidacy.leads(self._clock())

    async def acquire(self) -> None:
        """Returns when we hold the lease, however long that takes."""
        while True:
            try:
                async with asyncio.timeout(self._renew_seconds):
                    await self._look()
                    if not isinstance(self._candidacy.decide(self._clock()), Wait):
                        await self._write_claim()
            except (Conflict, AlreadyExists):
                log.debug("somebody else was quicker to write the lease %s", self._where)
            except Exception as error:
                self._complain("get", error)
            self._tell()
            if self.leading:
                self._last_complaint = ""
                return
            await self._wait_for_a_change()

    async def hold(self) -> None:
        """Renews the lease. Returns, and never raises, when it is lost or could not be renewed in time."""
        why = f"could not be renewed for {self._renew_seconds:g} s"
        while self.leading:
            await asyncio.sleep(min(self._retry_seconds, self._time_left()))
            try:
                async with asyncio.timeout(self._time_left()):
                    ours = await self._renew()
            except Exception as error:
                self._complain("renew", error)
                continue
            self._last_complaint = ""
            if not ours:
                self._candidacy.resign()
                why = f"is held by {self.leader!r}"
        log.warning("no longer the leader: the lease %s %s", self._where, why)
        self._tell()

    async def release(self) -> None:
        """Stops leading and lets the next one take over at once. If that cannot be said, the lease runs out by itself.

        Call it when the work has ended: from here on somebody else may lead.
        """
        self._candidacy.resign()
        if self._candidacy.may_hold:
            try:
                async with asyncio.timeout(self._retry_seconds):
                    await self._give_back()
            except Exception as error:
                self._complain("give back", error)
        self._tell()

    @property
    def _where(self) -> str:
        return f"{self._namespace}/{self._name}"

    def _time_left(self) -> float:
        return max(self._candidacy.leads_until - self._clock(), 0)

    async def _look(self) -> None:
        lease: Object | None
        try:
            lease = await self._send(requests.get_request(LEASES, self._name, namespace=self._namespace))
        except NotFound:
            lease = None
        self._candidacy.see(lease, self._clock())

    async def _write_claim(self) -> None:
        claim = self._candidacy.claim(self._clock(), datetime.now(UTC))
        build = requests.create_request if claim.creates else requests.replace_request
        answer = await self._send(build(LEASES, claim.lease, namespace=self._namespace))
        self._candidacy.confirm(claim, answer, self._clock())

    async def _renew(self) -> bool:
        """False if the lease is no longer ours. That the first try is refused may be due to an answer that was lost."""
        try:
            await self._write_claim()
        except (Conflict, AlreadyExists, NotFound):
            await self._look()
            if not self._still_ours():
                return False
            await self._write_claim()
        return True

    def _still_ours(self) -> bool:
        return isinstance(self._candidacy.decide(self._clock()), Renew)

    async def _give_back(self) -> None:
        await self._look()
        lease = self._candidacy.farewell()
        if lease is not None:
            answer = await self._send(requests.replace_request(LEASES, lease, namespace=self._namespace))
            self._candidacy.see(answer, self._clock())
        self._candidacy.forget_claims()

    async def _wait_for_a_change(self) -> None:
        """Returns when the lease may be free: by its time, or earlier by a word from the server."""
        verdict = self._candidacy.decide(self._clock())
        pause = self._retry_seconds * random.uniform(0.5, 1)  # noqa: S311 (others may be at it in the same moment)
        if not isinstance(verdict, Wait):
            await asyncio.sleep(pause)
            return
        try:
            async with asyncio.timeout(verdict.seconds):
                if not await self._seen_to_become_free(verdict.seconds):
                    await asyncio.sleep(pause)
        except TimeoutError:
            return

    async def _seen_to_become_free(self, seconds: float) -> bool:
        """Watches the lease. False if that tells nothing: not everybody may watch, and looking again is enough."""
        sighting = self._candidacy.sighting
        if sighting is None or sighting.gone:
            return False
        request = requests.watch_request(
            LEASES,
            namespace=self._namespace,
            field_selector=f"metadata.name={self._name}",
            resource_version=str(sighting.lease["metadata"]["resourceVersion"]),
            timeout_seconds=math.ceil(seconds),
        )
        try:
            async with aclosing(self._client.stream_lines(request)) as lines:
                async for line in lines:
                    event = responses.read_watch_event(line)
                    lease = None if event.type == "DELETED" else event.object
                    if not isinstance(self._candidacy.see(lease, self._clock()), Wait):
                        return True
                    self._tell()
        except (ApiError, Unreachable) as error:
            log.debug("cannot watch the lease %s: %s", self._where, error)
        return False

    async def _send(self, request: Request) -> Object:
        return responses.read_object(await self._client.send(request))

    def _tell(self) -> None:
        state = (self.leading, self.leader)
        if state != self._told:
            self._told = state
            if self._on_change is not None:
                self._on_change(*state)

    def _complain(self, what: str, error: Exception) -> None:
        text = f"cannot {what} the lease {self._where}: {str(error) or 'no answer in time'}"
        if text != self._last_complaint:
            self._last_complaint = text
            log.warning("%s", text)
