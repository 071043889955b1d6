"""What everything that applies a plan works with."""

from dataclasses import dataclass, field

from trainwright.kube.client.async_client import Client
from trainwright.operator.reconcile.caches import Caches
from trainwright.operator.reconcile.event_buffer import EventBuffer
from trainwright.operator.reconcile.observer import Observer


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    client: Client
    caches: Caches
    events: EventBuffer
    observer: Observer = field(default_factory=Observer)
    prunes_status: set[str] = field(default_factory=set)
    """The kinds whose CRD prunes our status fields, as far as this is known by now."""
