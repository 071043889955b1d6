"""The Prometheus metrics of the operator, under upstream's names.

`Metrics` implements the hooks of the operator, so that only the process depends on Prometheus. Each process counts its
own actions since its start; the sum over all processes is the total.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import urlsplit

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trainwright.api.kinds import Kind
from trainwright.engine import Transition
from trainwright.kube.client.requests import RequestResult
from trainwright.kube.controller.outcome import Done, Outcome, RequeueAfter, Retry, Terminal
from trainwright.objects import Object
from trainwright.objects.conditions import find_condition, is_condition_true
from trainwright.objects.times import parse_time
from trainwright.operator.reconcile.observer import Observer
from trainwright.operator.serving.http_server import Request, Response
from trainwright.operator.serving.workqueue_metrics import MeasuredQueue

_LAUNCH_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
# fmt: off
_RECONCILE_BUCKETS = (  # controller-runtime's
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
)
_REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)  # client-go's
# fmt: on
_QUEUE_BUCKETS = tuple(10.0**power for power in range(-8, 4))  # controller-runtime's
_QUEUE_LABELS = ("controller", "name")
"""controller-runtime has both labels, with the same value: dashboards use either."""

# `_created` series double the number of series without new information: all counters start with the process.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library does not annotate it


class Metrics(Observer):
    """The metrics of one process. `queue` is the measured work queue for the operator; `workers` is the maximum number
    of concurrent reconciles."""

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        workers: int = 0,
    ) -> None:
        self.registry = CollectorRegistry()
        self._clock = clock
        # By uid: the start of the launch whose pods have been counted.
        self._launched: dict[str, datetime | None] = {}
        controllers = {name: kind.controller for name, kind in kinds.items()}
        self._transitions = {
            transition: self._counter(f"training_operator_jobs_{transition}_total", text, "job_namespace", "framework")
            for transition, text in _TRANSITIONS.items()
        }
        self._deleted = self._counter(
            "training_operator_jobs_deleted_total",
            "Number of jobs deleted while this process was the leader.",
            "job_namespace",
            "framework",
        )
        self._pods_created_seconds = self._histogram(
            "trainwright_job_pods_created_seconds",
            "Time from the creation or resumption of a job until all of its pods were created.",
            "framework",
            buckets=_LAUNCH_BUCKETS,
        )
        self._running_seconds = self._histogram(
            "trainwright_job_running_seconds",
            "Time from the creation or resumption of a job until its Running condition was written.",
            "framework",
            buckets=_LAUNCH_BUCKETS,
        )
        self._reconciles = self._counter(
            "controller_runtime_reconcile_total", "Number of reconciliations by result.", "controller", "result"
        )
        self._reconcile_errors = self._counter(
            "controller_runtime_reconcile_errors_total",
            "Number of reconciliations that ended in an error.",
            "controller",
        )
        self._terminal_errors = self._counter(
            "controller_runtime_terminal_reconcile_errors_total",
            "Number of reconciliations that ended in an error that is not retried.",
            "controller",
        )
        self._panics = self._counter(
            "controller_runtime_reconcile_panics_total",
            "Number of reconciliations that raised an unexpected error.",
            "controller",
        )
        self._reconcile_seconds = self._histogram(
            "controller_runtime_reconcile_time_seconds",
            "Duration of reconciliations, including their writes.",
            "controller",
            buckets=_RECONCILE_BUCKETS,
        )
        self._workers = self._gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciles, shared by all kinds.",
            "controller",
        )
        self._requests = self._counter(
            "rest_client_requests_total",
            "Number of requests to the API server.",
            "code",
            "method",
            "host",
        )
        self._request_seconds = self._histogram(
            "rest_client_request_duration_seconds",
            "Time until the API server responds; for a watch, until it starts.",
            "verb",
            "host",
            buckets=_REQUEST_BUCKETS,
        )
        self._leading = self._gauge(
            "leader_election_master_status",
            "1 if this process holds the lease, else 0; absent without --leader-elect.",
            "name",
        )
        self._webhooks = self._counter(
            "controller_runtime_webhook_requests_total",
            "Number of admission reviews by HTTP status code.",
            "webhook",
            "code",
        )
        self._webhook_seconds = self._histogram(
            "controller_runtime_webhook_latency_seconds",
            "Duration of admission reviews.",
            "webhook",
            buckets=_REQUEST_BUCKETS,
        )
        self.queue = self._measured_queue(controllers)
        self.registry.register(_QueueState(self.queue, controllers))
        for collector in (ProcessCollector, GCCollector, PlatformCollector):
            collector(registry=self.registry)
        for controller in controllers.values():
            self._initialize(controller, workers)

    def transition(self, kind: Kind, job: Object, step: Transition) -> None:
        self._transitions[step].labels(_namespace(job), kind.framework).inc()

    def status_written(self, kind: Kind, before: Object, after: Object) -> None:
        if starts_running(before, after):
            self._observe_launch(self._running_seconds, kind, after)

    def pods_created(self, kind: Kind, job: Object) -> None:
        uid, began = job["metadata"]["uid"], launch_time(job)
        if is_launching(job) and self._launched.get(uid) != began:
            self._launched[uid] = began
            self._observe_launch(self._pods_created_seconds, kind, job)

    def job_deleted(self, kind: Kind, job: Object) -> None:
        self._launched.pop(job["metadata"]["uid"], None)
        self._deleted.labels(_namespace(job), kind.framework).inc()

    def reconciled(self, kind: Kind, outcome: Outcome, seconds: float) -> None:
        controller = kind.controller
        self._reconcile_seconds.labels(controller).observe(seconds)
        self._reconciles.labels(controller, _result(outcome)).inc()
        if isinstance(outcome, Retry | Terminal):
            self._reconcile_errors.labels(controller).inc()
        if isinstance(outcome, Terminal):
            self._terminal_errors.labels(controller).inc()

    def crashed(self, kind: Kind) -> None:
        self._panics.labels(kind.controller).inc()

    def requests_to(self, server: str) -> Callable[[RequestResult], None]:
        """Counts every request to this API server, including retries."""
        host = urlsplit(server).netloc
        # The lookup of a series costs more than counting, and there are two requests for each pod.
        series: dict[tuple[int | None, str], tuple[Callable[[], None], Callable[[float], None]]] = {}

        def seen(result: RequestResult) -> None:
            key = result.status, result.method
            if key not in series:
                counter = self._requests.labels(result.code, result.method, host)
                series[key] = counter.inc, self._request_seconds.labels(result.method, host).observe
            count, observe = series[key]
            count()
            observe(result.seconds)

        return seen

    def reviewed(self, path: str, code: int, seconds: float) -> None:
        self._webhooks.labels(path, str(code)).inc()
        self._webhook_seconds.labels(path).observe(seconds)

    def leads(self, name: str, leading: bool) -> None:
        self._leading.labels(name).set(leading)

    async def handle(self, request: Request) -> Response:
        """`/metrics`, in the format that the client accepts."""
        encode, content_type = choose_encoder(request.accept)
        return Response(200, encode(self.registry), content_type)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def _measured_queue(self, controllers: Mapping[str, str]) -> MeasuredQueue:
        def histogram(name: str, text: str) -> dict[str, Callable[[float], None]]:
            metric = self._histogram(name, text, *_QUEUE_LABELS, buckets=_QUEUE_BUCKETS)
            return {kind: metric.labels(controller, controller).observe for kind, controller in controllers.items()}

        def counter(name: str, text: str) -> dict[str, Callable[[], None]]:
            metric = self._counter(name, text, *_QUEUE_LABELS)
            return {kind: metric.labels(controller, controller).inc for kind, controller in controllers.items()}

        return MeasuredQueue(
            waited=histogram("workqueue_queue_duration_seconds", "Time that jobs wait for a worker."),
            worked=histogram("workqueue_work_duration_seconds", "Time that workers need for a job."),
            added=counter("workqueue_adds_total", "Number of jobs added to the queue."),
            retried=counter("workqueue_retries_total", "Number of jobs added again after an error."),
        )

    def _initialize(self, controller: str, workers: int) -> None:
        """Rates and alerts need a series before its first event."""
        self._workers.labels(controller).set(workers)
        for result in ("success", "requeue", "requeue_after", "error"):
            self._reconciles.labels(controller, result)
        for metric in (self._reconcile_errors, self._terminal_errors, self._panics, self._reconcile_seconds):
            metric.labels(controller)

    def _observe_launch(self, histogram: Histogram, kind: Kind, job: Object) -> None:
        began = launch_time(job)
        if began is not None:
            # API times are whole seconds, and the API server's clock may be ahead.
            seconds = max((self._clock() - began).total_seconds(), 0.0)
            histogram.labels(kind.framework).observe(seconds)


_TRANSITIONS = {
    Transition.CREATED: "Number of jobs whose Created condition was written.",
    Transition.SUCCESSFUL: "Number of jobs that succeeded.",
    Transition.FAILED: "Number of jobs that failed.",
    Transition.RESTARTED: "Number of restarts of pods, or of whole groups of pods, by the operator.",
}


class _QueueState(Collector):
    """The gauges of the queue, computed for each scrape."""

    def __init__(self, queue: MeasuredQueue, controllers: Mapping[str, str]) -> None:
        self._queue = queue
        self._controllers = controllers

    def collect(self) -> Iterable[Metric]:
        state = self._queue.state()
        waiting = "Number of jobs that wait for a worker."
        unfinished = "Total time that workers have spent on jobs that they have not finished."
        longest = "Time that the slowest worker has spent on its present job."
        working = "Number of reconciliations in progress."
        yield self._gauge("workqueue_depth", waiting, _QUEUE_LABELS, state.waiting)
        yield self._gauge("workqueue_unfinished_work_seconds", unfinished, _QUEUE_LABELS, state.unfinished_seconds)
        yield self._gauge("workqueue_longest_running_processor_seconds", longest, _QUEUE_LABELS, state.longest_seconds)
        yield self._gauge("controller_runtime_active_workers", working, ("controller",), state.working)

    def _gauge(self, name: str, text: str, labels: Sequence[str], numbers: Mapping[str, float]) -> Metric:
        """All labels have the same value: the controller's name."""
        family = GaugeMetricFamily(name, text, labels=labels)
        for kind, controller in self._controllers.items():
            family.add_metric([controller] * len(labels), numbers.get(kind, 0))
        return family


def _result(outcome: Outcome) -> str:
    """controller-runtime's names of results."""
    match outcome:
        case Done():
            return "success"
        case RequeueAfter(seconds):
            return "requeue_after" if seconds > 0 else "requeue"
        case Retry() | Terminal():
            return "error"


def _namespace(job: Object) -> str:
    return str(job["metadata"].get("namespace", ""))


def is_launching(job: Object) -> bool:
    """Whether the job has not run yet since its creation or since it was resumed."""
    status = job.get("status") or {}
    running = find_condition(status, "Running")
    # Suspending sets Running to False with a reason of its own; a restart replaces the condition or sets it to False.
    return find_condition(status, "Restarting") is None and (running is None or _is_suspended(running))


def starts_running(before: Object, after: Object) -> bool:
    """Whether the job started to run between these two states: after its creation or a resume, not after a restart."""
    return is_condition_true(after.get("status") or {}, "Running") and is_launching(before)


def launch_time(job: Object) -> datetime | None:
    """When the job was created or, if it was suspended, resumed."""
    resumed = find_condition(job.get("status") or {}, "Suspended")
    if resumed is not None and resumed.get("status") != "True":
        return _parse_time(resumed.get("lastTransitionTime"))
    return _parse_time(job["metadata"].get("creationTimestamp"))


def _is_suspended(running: Object) -> bool:
    return running.get("status") != "True" and str(running.get("reason", "")).endswith("Suspended")


def _parse_time(text: object) -> datetime | None:
    try:
        return parse_time(text) if isinstance(text, str) else None
    except ValueError:
        return None  # a user has edited the status
