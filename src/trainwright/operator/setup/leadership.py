"""Leader election of an operator process: it writes only while it holds the lease.

The lease is renewed over a client of its own, so that reconciling does not delay it. The operator's client checks the
lease before each attempt to write, so that a process that was paused for a minute sends no late write.
"""

import asyncio
import logging
from collections.abc import Callable

from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Unreachable
from trainwright.kube.client.requests import Request
from trainwright.kube.controller.leader_election import LeaderElector, process_identity
from trainwright.operator.options import LeaderElectionOptions, OperatorError
from trainwright.operator.rbac import LEADER_ELECTION
from trainwright.operator.setup.permissions import first_missing_verb

log = logging.getLogger(__name__)

_REVIEWS = "/apis/authorization.k8s.io/"
"""Access reviews are POST requests that change nothing."""


async def check_permissions(client: Client, namespace: str) -> None:
    """Raises OperatorError that names the missing rule: without it the operator would never get the lease."""
    (rule,) = LEADER_ELECTION.rules
    # Without watch the lease is polled.
    if missing := await first_missing_verb(client, rule, namespace, optional="watch"):
        raise OperatorError(f"--leader-elect: not allowed to {missing}; add the rule {rule} to the operator's role")


class NotLeading(Unreachable):
    """The write was not sent, because another process may be the leader."""


class Leadership:
    """Call `acquire`, write until `lost` is set, then call `release`."""

    def __init__(
        self,
        client: Client,
        options: LeaderElectionOptions,
        *,
        namespace: str,
        on_change: Callable[[bool], None] | None = None,
    ) -> None:
        self.lost = asyncio.Event()
        self._namespace = namespace
        self._options = options
        self._identity = process_identity()
        self._on_change = on_change
        self._holding: asyncio.Task[None] | None = None
        self._election = LeaderElector(
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
        """Releases the lease, so that a standby takes over at once. Call it after the last write."""
        if self._holding is not None:
            self._holding.cancel()
            await asyncio.gather(self._holding, return_exceptions=True)
        # A process that was interrupted in `acquire` may have written its name into the lease.
        await self._election.release()

    def gate(self, request: Request) -> None:
        """For the operator's client: allows reads always, and writes only while this process is the leader."""
        if request.method != "GET" and not self._election.is_leader and not request.path.startswith(_REVIEWS):
            raise NotLeading(f"{request.method} {request.path} was not sent: this process is not the leader")

    @property
    def role(self) -> str:
        """For users: whether this process is the leader or, if it is not, which process is."""
        if self._election.is_leader:
            return "leading"
        leader = self._election.leader
        if leader in {"", self._identity}:  # a lease of this process that was not renewed in time
            return "standby, there is no leader"
        return f"standby, the leader is {leader}"

    async def _hold(self) -> None:
        await self._election.renew()
        self.lost.set()

    def _changed(self, leading: bool, _: str) -> None:
        log.info("%s", self.role)
        if self._on_change is not None:
            self._on_change(leading)
