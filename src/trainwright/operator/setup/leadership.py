"""Leadership of one operator process: nothing is written before it leads, and nothing after it has lost the lease.

The lease is renewed over a client of its own, so that no amount of work delays it. The operator's client asks before
each attempt to write: a process that was stopped for a minute finds out before it writes, not after.
"""

import asyncio
import logging
from collections.abc import Callable

from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Unreachable
from trainwright.kube.client.requests import Request
from trainwright.kube.controller.leader_election import LeaderElection, process_identity
from trainwright.operator.options import LeaderElectionOptions, OperatorError
from trainwright.operator.rbac import LEADER_ELECTION
from trainwright.operator.serving.health import Finding
from trainwright.operator.setup.permissions import missing_permission

log = logging.getLogger(__name__)

_HARMLESS = "/apis/authorization.k8s.io/"
"""Questions about our rights are POST requests, and change nothing."""


async def check_permissions(client: Client, namespace: str) -> None:
    """Raises OperatorError that names the missing rule: without it the operator would wait for the lease for ever."""
    (rule,) = LEADER_ELECTION.rules
    # Without watch the lease is polled.
    if missing := await missing_permission(client, rule, namespace, optional="watch"):
        raise OperatorError(f"--leader-elect: not allowed to {missing}; add the rule {rule} to the operator's role")


class NotLeading(Unreachable):
    """A write that was not sent, because another process may lead."""


class Leadership:
    """`acquire`, then work until `lost` is set, then `release`."""

    def __init__(
        self,
        client: Client,
        options: LeaderElectionOptions,
        *,
        namespace: str,
        identity: str | None = None,
        on_change: Callable[[bool], None] | None = None,
    ) -> None:
        self.lost = asyncio.Event()
        self._namespace = namespace
        self._options = options
        self._identity = identity or process_identity()
        self._on_change = on_change
        self._holding: asyncio.Task[None] | None = None
        self._election = LeaderElection(
            client,
            namespace=namespace,
            name=options.name,
            identity=self._identity,
            lease_seconds=options.lease_seconds,
            renew_seconds=options.renew_seconds,
            retry_seconds=options.retry_seconds,
            on_change=self._changed,
        )

    async def acquire(self) -> None:
        log.info("waiting for the lease %s/%s as %s", self._namespace, self._options.name, self._identity)
        await self._election.acquire()
        self._holding = asyncio.create_task(self._hold())

    async def release(self) -> None:
        """Lets the next one lead at once. Call it when the last write is done."""
        if self._holding is not None:
            self._holding.cancel()
            await asyncio.gather(self._holding, return_exceptions=True)
        # Even one that still waited may have written itself in, if it was interrupted in that moment.
        await self._election.release()

    def gate(self, request: Request) -> None:
        """For the operator's client: lets reads pass, and writes only while we lead."""
        if request.method != "GET" and not self._election.leading and not request.path.startswith(_HARMLESS):
            raise NotLeading(f"{request.method} {request.path} was not sent: this process does not lead")

    def finding(self) -> Finding:
        return Finding(detail="leading" if self._election.leading else f"standby, {self._leader()} leads")

    async def _hold(self) -> None:
        await self._election.hold()
        self.lost.set()

    def _leader(self) -> str:
        """A lease that still bears our own name but was not renewed in time is nobody's."""
        leader = self._election.leader
        return leader if leader and leader != self._identity else "nobody"

    def _changed(self, leading: bool, _: str) -> None:
        log.info("%s", "leading" if leading else f"standby, {self._leader()} leads")
        if self._on_change is not None:
            self._on_change(leading)
