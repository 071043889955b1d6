"""What Prometheus can read about the operator: upstream's names, and its counts put right.

`Metrics` listens to the operator as its Observer, so that nothing but the process knows of Prometheus. Each process
counts what it did itself; sums over processes are the truth, and no start counts anything again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from trainwright.kube.client.request_metrics import RequestSeen
from trainwright.kube.controller.outcome import Done, Outcome, RequeueAfter, Retry, Terminal
from trainwright.objects import Object
from trainwright.operator.serving.http_server import Call, Reply
from trainwright.operator.serving.launch_times import first_running, is_launching, launch_began
from trainwright.operator.serving.observer import Observer
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
_OF_A_QUEUE = ("controller", "name")
"""controller-runtime has both labels, with the same value: dashboards use either."""

# They double the series and tell nothing: a process counts from its start.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library does not annotate it


class Metrics(Observer):
    """One process' numbers. `queue` is the work queue that it measures: the operator is to use it.

    `workers` is how many jobs the operator looks at at the same time.
    """

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        workers: int = 0,
    ) -> None:
        self.registry = CollectorRegistry()
        self._clock = clock
        # By uid: the beginning of the launch whose pods were seen to be created.
        self._launched: dict[str, datetime | None] = {}
        controllers = {name: kind.controller for name, kind in kinds.items()}
        self._transitions = {
            transition: self._counter(f"training_operator_jobs_{transition}_total", text, "job_namespace", "framework")
            for transition, text in _TRANSITIONS.items()
        }
        self._deleted = self._counter(
            "training_operator_jobs_deleted_total",
            "Jobs that were deleted while this operator led, by their TTL or by anybody.",
            "job_namespace",
            "framework",
        )
        self._pods_created_seconds = self._histogram(
            "trainwright_job_pods_created_seconds",
            "From a job's creation (or resumption) until all of its pods were created.",
            "framework",
            buckets=_LAUNCH_BUCKETS,
        )
        self._running_seconds = self._histogram(
            "trainwright_job_running_seconds",
            "From a job's creation (or resumption) until it was seen to run.",
            "framework",
            buckets=_LAUNCH_BUCKETS,
        )
        self._reconciles = self._counter(
            "controller_runtime_reconcile_total", "Looks at a job, by how they ended.", "controller", "result"
        )
        self._reconcile_errors = self._counter(
            "controller_runtime_reconcile_errors_total", "Looks at a job that ended in an error.", "controller"
        )
        self._terminal_errors = self._counter(
            "controller_runtime_terminal_reconcile_errors_total",
            "Looks at a job that nothing but a change of it can help.",
            "controller",
        )
        self._panics = self._counter(
            "controller_runtime_reconcile_panics_total",
            "Looks at a job that ended in an error of the operator's own.",
            "controller",
        )
        self._reconcile_seconds = self._histogram(
            "controller_runtime_reconcile_time_seconds",
            "How long one look at a job took, its writes included.",
            "controller",
            buckets=_RECONCILE_BUCKETS,
        )
        self._workers = self._gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Jobs that can be looked at at the same time; all kinds share them.",
            "controller",
        )
        self._requests = self._counter(
            "rest_client_requests_total", "Requests to the API server, by what it answered.", "code", "method", "host"
        )
        self._request_seconds = self._histogram(
            "rest_client_request_duration_seconds",
            "How long the API server took to answer; for a watch, to begin to.",
            "verb",
            "host",
            buckets=_REQUEST_BUCKETS,
        )
        self._leading = self._gauge(
            "leader_election_master_status",
            "1 while this process holds the lease, else 0; absent without --leader-elect.",
            "name",
        )
        self._webhooks = self._counter(
            "controller_runtime_webhook_requests_total",
            "Admission reviews, by the HTTP code of the answer.",
            "webhook",
            "code",
        )
        self._webhook_seconds = self._histogram(
            "controller_runtime_webhook_latency_seconds",
            "How long an admission review took.",
            "webhook",
            buckets=_REQUEST_BUCKETS,
        )
        self.queue = self._measured_queue(controllers)
        self.registry.register(_QueueState(self.queue, controllers))
        for collector in (ProcessCollector, GCCollector, PlatformCollector):
            collector(registry=self.registry)
        for controller in controllers.values():
            self._begin(controller, workers)

    def transition(self, kind: Kind, job: Object, step: Transition) -> None:
        self._transitions[step].labels(_namespace(job), kind.framework).inc()

    def status_written(self, kind: Kind, before: Object, after: Object) -> None:
        if first_running(before, after):
            self._observe_launch(self._running_seconds, kind, after)

    def pods_created(self, kind: Kind, job: Object) -> None:
        uid, began = job["metadata"]["uid"], launch_began(job)
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

    def requests_to(self, server: str) -> Callable[[RequestSeen], None]:
        """Counts every attempt to ask this API server."""
        host = urlsplit(server).netloc
        # Looking a series up costs more than counting, and there are two requests for each pod.
        series: dict[tuple[int | None, str], tuple[Callable[[], None], Callable[[float], None]]] = {}

        def seen(one: RequestSeen) -> None:
            key = one.status, one.method
            if key not in series:
                counter = self._requests.labels(one.code, one.method, host)
                series[key] = counter.inc, self._request_seconds.labels(one.method, host).observe
            count, observe = series[key]
            count()
            observe(one.seconds)

        return seen

    def reviewed(self, path: str, code: int, seconds: float) -> None:
        self._webhooks.labels(path, str(code)).inc()
        self._webhook_seconds.labels(path).observe(seconds)

    def leads(self, name: str, leading: bool) -> None:
        self._leading.labels(name).set(leading)

    async def page(self, call: Call) -> Reply:
        """`/metrics`, in the format that the reader prefers."""
        encode, content_type = choose_encoder(call.accept)
        return Reply(200, encode(self.registry), content_type)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def _measured_queue(self, controllers: Mapping[str, str]) -> MeasuredQueue:
        def histogram(name: str, text: str) -> dict[str, Callable[[float], None]]:
            metric = self._histogram(name, text, *_OF_A_QUEUE, buckets=_QUEUE_BUCKETS)
            return {kind: metric.labels(controller, controller).observe for kind, controller in controllers.items()}

        def counter(name: str, text: str) -> dict[str, Callable[[], None]]:
            metric = self._counter(name, text, *_OF_A_QUEUE)
            return {kind: metric.labels(controller, controller).inc for kind, controller in controllers.items()}

        return MeasuredQueue(
            waited=histogram("workqueue_queue_duration_seconds", "How long a job waited for a worker."),
            worked=histogram("workqueue_work_duration_seconds", "How long a worker was busy with a job."),
            added=counter("workqueue_adds_total", "Jobs put into the queue."),
            retried=counter("workqueue_retries_total", "Jobs put back because something was in the way."),
        )

    def _begin(self, controller: str, workers: int) -> None:
        """Rates and alerts need a series before the first event of its kind."""
        self._workers.labels(controller).set(workers)
        for result in ("success", "requeue", "requeue_after", "error"):
            self._reconciles.labels(controller, result)
        for metric in (self._reconcile_errors, self._terminal_errors, self._panics, self._reconcile_seconds):
            metric.labels(controller)

    def _observe_launch(self, histogram: Histogram, kind: Kind, job: Object) -> None:
        began = launch_began(job)
        if began is not None:
            # The API's moments are whole seconds, and its clock may be ahead of ours.
            seconds = max((self._clock() - began).total_seconds(), 0.0)
            histogram.labels(kind.framework).observe(seconds)


_TRANSITIONS = {
    Transition.CREATED: "Jobs that were accepted: their Created condition was written.",
    Transition.SUCCESSFUL: "Jobs that succeeded.",
    Transition.FAILED: "Jobs that failed, for whatever reason.",
    Transition.RESTARTED: "Restarts by the operator: one for each replaced pod, one for a whole group.",
}


class _QueueState(Collector):
    """The part of the queue's numbers that is looked up when somebody asks, which costs the work nothing."""

    def __init__(self, queue: MeasuredQueue, controllers: Mapping[str, str]) -> None:
        self._queue = queue
        self._controllers = controllers

    def collect(self) -> Iterable[Metric]:
        state = self._queue.state()
        yield from _gauges("workqueue_depth", "Jobs that wait for a worker.", _OF_A_QUEUE, self._each(state.waiting))
        yield from _gauges(
            "workqueue_unfinished_work_seconds",
            "The sum of the times for which workers have been busy with what they have not finished.",
            _OF_A_QUEUE,
            self._each(state.unfinished_seconds),
        )
        yield from _gauges(
            "workqueue_longest_running_processor_seconds",
            "For how long the slowest worker has been busy with one job.",
            _OF_A_QUEUE,
            self._each(state.longest_seconds),
        )
        yield from _gauges(
            "controller_runtime_active_workers",
            "Jobs that are looked at at this moment.",
            ("controller",),
            self._each(state.working),
        )

    def _each(self, numbers: Mapping[str, float]) -> Iterator[tuple[str, float]]:
        for kind, controller in self._controllers.items():
            yield controller, numbers.get(kind, 0)


def _gauges(name: str, text: str, labels: Sequence[str], values: Iterable[tuple[str, float]]) -> Iterator[Metric]:
    """Every one of the labels has the same value: the controller's name."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values:
        family.add_metric([key] * len(labels), value)
    yield family


def _result(outcome: Outcome) -> str:
    """controller-runtime's words."""
    match outcome:
        case Done():
            return "success"
        case RequeueAfter(seconds):
            return "requeue_after" if seconds > 0 else "requeue"
        case Retry() | Terminal():
            return "error"


def _namespace(job: Object) -> str:
    return str(job["metadata"].get("namespace", ""))
