"""Leader election with a coordination.k8s.io/v1 Lease, compatible with client-go.

`lease_candidate` decides, this module sends the requests. One gap is left, as in client-go: if the Lease is deleted, a
process that starts at that moment does not know the holder and becomes a second leader, for at most `renew_seconds`.
Processes that already ran wait until the deleted lease would have expired.
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
from trainwright.kube.controller.lease_candidate import Candidate, Renew, Wait
from trainwright.objects import Object
from trainwright.objects.resources import LEASES

log = logging.getLogger(__name__)


def boot_seconds() -> float:
    """A monotonic clock that also advances while the machine is suspended, as the clocks of other candidates do."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_identity() -> str:
    """The hostname and a unique suffix, as in client-go."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElector:
    """Call `acquire`, work while `renew` runs, then `release`. `identity` must be unique to the process, and
    retry_seconds < renew_seconds < lease_seconds, so that a leader stops before another starts.

    `on_change` is called with (is leader, identity of the leader) when one of them changes. `is_leader` checks the
    clock: a process that may have been stopped for a while calls it before each write.
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
        clock: Callable[[], float] = boot_seconds,
        on_change: Callable[[bool, str], None] | None = None,
    ) -> None:
        if not identity:
            raise ValueError("identity must not be empty: a lease without a holder is free")
        self._client = client
        self._namespace, self._name = namespace, name
        self._renew_seconds, self._retry_seconds = renew_seconds, retry_seconds
        self._clock = clock
        self._on_change = on_change
        self._candidate = Candidate(
            namespace=namespace,
            name=name,
            identity=identity,
            lease_seconds=lease_seconds,
            renew_seconds=renew_seconds,
        )
        self._reported = (False, "")
        self._last_error = ""

    @property
    def leader(self) -> str:
        """The identity of the observed leader; empty if there is none."""
        return self._candidate.holder

    @property
    def is_leader(self) -> bool:
        return self._candidate.is_leader(self._clock())

    async def acquire(self) -> None:
        """Waits until this process holds the lease, without a time limit."""
        while True:
            try:
                async with asyncio.timeout(self._renew_seconds):
                    await self._read()
                    if not isinstance(self._candidate.decide(self._clock()), Wait):
                        await self._write()
            except (Conflict, AlreadyExists):
                log.debug("another candidate has written the lease %s first", self._lease_name)
            except Exception as error:
                self._log_error("get", error)
            self._report()
            if self.is_leader:
                self._last_error = ""
                return
            await self._wait_until_free()

    async def renew(self) -> None:
        """Renews the lease until it is lost or could not be renewed in time. Never raises."""
        why = f"could not be renewed for {self._renew_seconds:g} s"
        while self.is_leader:
            await asyncio.sleep(min(self._retry_seconds, self._time_left()))
            try:
                async with asyncio.timeout(self._time_left()):
                    held = await self._renew_once()
            except Exception as error:
                self._log_error("renew", error)
                continue
            self._last_error = ""
            if not held:
                self._candidate.stop_leading()
                why = f"is held by {self.leader!r}"
        log.warning("no longer the leader: the lease %s %s", self._lease_name, why)
        self._report()

    async def release(self) -> None:
        """Clears the holder, so that another candidate can acquire the lease at once. If that fails, the lease expires.

        Call it after the last write.
        """
        self._candidate.stop_leading()
        if self._candidate.may_hold:
            try:
                async with asyncio.timeout(self._retry_seconds):
                    await self._write_release()
            except Exception as error:
                self._log_error("release", error)
        self._report()

    @property
    def _lease_name(self) -> str:
        return f"{self._namespace}/{self._name}"

    def _time_left(self) -> float:
        return max(self._candidate.leader_until - self._clock(), 0)

    async def _read(self) -> None:
        lease: Object | None
        try:
            lease = await self._send(requests.get_request(LEASES, self._name, namespace=self._namespace))
        except NotFound:
            lease = None
        self._candidate.observe(lease, self._clock())

    async def _write(self) -> None:
        write = self._candidate.next_write(self._clock(), datetime.now(UTC))
        build = requests.create_request if write.creates else requests.replace_request
        response = await self._send(build(LEASES, write.lease, namespace=self._namespace))
        self._candidate.confirm(write, response, self._clock())

    async def _renew_once(self) -> bool:
        """False if another process holds the lease. A conflict may be due to our own write if its response was lost."""
        try:
            await self._write()
        except (Conflict, AlreadyExists, NotFound):
            await self._read()
            if not isinstance(self._candidate.decide(self._clock()), Renew):
                return False
            await self._write()
        return True

    async def _write_release(self) -> None:
        await self._read()
        lease = self._candidate.released()
        if lease is not None:
            response = await self._send(requests.replace_request(LEASES, lease, namespace=self._namespace))
            self._candidate.observe(response, self._clock())
        self._candidate.forget_writes()

    async def _wait_until_free(self) -> None:
        """Returns when the lease may be free: it has expired, or the watch shows that it was released."""
        decision = self._candidate.decide(self._clock())
        pause = self._retry_seconds * random.uniform(0.5, 1)  # noqa: S311 (jitter)
        if not isinstance(decision, Wait):
            await asyncio.sleep(pause)
            return
        try:
            async with asyncio.timeout(decision.seconds):
                if not await self._watch_until_free(decision.seconds):
                    await asyncio.sleep(pause)
        except TimeoutError:
            return

    async def _watch_until_free(self, seconds: float) -> bool:
        """False if the watch ends before the lease is free, for example because RBAC does not allow it."""
        observed = self._candidate.observed
        if observed is None or observed.deleted:
            return False
        request = requests.watch_request(
            LEASES,
            namespace=self._namespace,
            field_selector=f"metadata.name={self._name}",
            resource_version=str(observed.lease["metadata"]["resourceVersion"]),
            timeout_seconds=math.ceil(seconds),
        )
        try:
            async with aclosing(self._client.stream_lines(request)) as lines:
                async for line in lines:
                    event = responses.read_watch_event(line)
                    lease = None if event.type == "DELETED" else event.object
                    if not isinstance(self._candidate.observe(lease, self._clock()), Wait):
                        return True
                    self._report()
        except (ApiError, Unreachable) as error:
            log.debug("cannot watch the lease %s: %s", self._lease_name, error)
        return False

    async def _send(self, request: Request) -> Object:
        return responses.read_object(await self._client.send(request))

    def _report(self) -> None:
        state = (self.is_leader, self.leader)
        if state != self._reported:
            self._reported = state
            if self._on_change is not None:
                self._on_change(*state)

    def _log_error(self, what: str, error: Exception) -> None:
        text = f"cannot {what} the lease {self._lease_name}: {str(error) or 'no response in time'}"
        if text != self._last_error:
            self._last_error = text
            log.warning("%s", text)
