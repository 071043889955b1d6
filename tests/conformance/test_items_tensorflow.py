"""Items 9 to 29: TFJobs. What all kinds have in common is in `test_items_suspension.py`, `test_items_endings.py`,
`test_items_replicas.py` and `test_items_defaults.py`."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from tests.support.engine.planning import child, decide
from tests.support.harness.cluster_harness import ClusterHarness, RealClusterHarness
from tests.support.harness.job_harness import JobHarness, environment, owner_reference
from tests.support.harness.running_operator import running_operator, settled
from tests.support.objects import upstream
from tests.support.objects.jobs import JobBuilder, PodBuilder, template
from tests.support.objects.tfjob_states import NORMAL_PATH, STATUS, WORKER_0, TFJobState
from tests.support.objects.upstream import pod_labels, service_labels
from tests.support.waiting import eventually
from trainwright.api.kinds.tensorflow import TENSORFLOW
from trainwright.engine import Settings
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS, PODS, SERVICES
from trainwright.objects.times import format_time


async def test_items_12_19_29_pods_and_services_of_a_tfjob_and_its_success(cluster: ClusterHarness) -> None:
    """A name cannot have a slash, which upstream replaces in labels."""
    jobs = cluster.of(TENSORFLOW)
    pod = {**jobs.template(), "metadata": {"labels": {"user": "label"}, "annotations": {"user": "annotation"}}}
    names = ["job-worker-0", "job-worker-1", "job-ps-0"]
    job = await jobs.submit(JobBuilder("job", kind=TENSORFLOW).workers(2, pod=pod).replica("PS", pod=pod))
    await jobs.wait_for_children("job", names)
    pods, services = await jobs.pods("job"), await jobs.services("job")
    for name, role, index, master in (
        ("job-worker-0", "worker", "0", True),
        ("job-worker-1", "worker", "1", False),
        ("job-ps-0", "ps", "0", False),
    ):
        labels = pod_labels("job", role, index, "TFJob", master=master)
        assert pods[name]["metadata"]["labels"] == {"user": "label", **labels}
        assert pods[name]["metadata"]["annotations"]["user"] == "annotation"
        selector = services[name]["spec"]["selector"]
        assert services[name]["metadata"]["labels"] == selector == service_labels("job", role, index, "TFJob")
        assert services[name]["spec"]["clusterIP"] == "None"
        (exposed,), (offered,) = pods[name]["spec"]["containers"][0]["ports"], services[name]["spec"]["ports"]
        assert exposed["name"] == offered["name"] == "tfjob-port"
        assert exposed["containerPort"] == offered["port"] == offered["targetPort"] == 2222
        for one in (pods[name], services[name]):
            assert one["metadata"]["ownerReferences"] == [owner_reference(job)]

    await jobs.wait_until_running("job")
    await jobs.end("job-worker-0", exit_code=0)
    finished = await jobs.wait_for_conditions(
        "job",
        upstream.created("job", "TFJob"),
        upstream.workers_running("job", jobs.namespace, "False", kind="TFJob"),
        upstream.workers_succeeded("job", jobs.namespace, kind="TFJob"),
    )
    assert finished["status"]["replicaStatuses"] == {"Worker": {"succeeded": 2}, "PS": {"succeeded": 1}}
    await jobs.wait_for_only_events(
        "job",
        *(("Normal", "SuccessfulCreatePod", f"Created pod: {name}") for name in names),
        *(("Normal", "SuccessfulCreateService", f"Created service: {name}") for name in names),
        ("Normal", "ExitedWithCode", f"Pod: {jobs.namespace}.job-worker-0 exited with code 0"),
        ("Normal", "TFJobSucceeded", f"TFJob {jobs.namespace}/job successfully completed."),
    )


@pytest.mark.apiserver
async def test_item_13_a_job_does_not_disturb_another(harness: JobHarness) -> None:
    jobs = harness.of(TENSORFLOW)
    for name in ("job", "job-worker"):
        await jobs.submit(JobBuilder(name, kind=TENSORFLOW).workers(2))
    for name in ("job", "job-worker"):
        await jobs.wait_until_running(name)
    before = await jobs.status("job")
    await harness.client.delete(TENSORFLOW.resource, "job-worker", namespace=harness.namespace)
    await jobs.wait_for_children("job-worker", [])
    await jobs.settle()
    await jobs.wait_for_children("job", ["job-worker-0", "job-worker-1"])
    assert await jobs.status("job") == before


# 9, 26 and 27: conditions by the states of pods. tests/engine/frameworks/test_tensorflow_status.py has the same tables


@pytest.mark.apiserver
async def test_item_09_missing_pods_and_services_are_created(client: Client, real_namespace: str) -> None:
    rows = {f"job-{number}": row for number, row in enumerate(NORMAL_PATH)}
    jobs = {name: await with_pods(client, real_namespace, name, row) for name, row in rows.items()}
    async with running_operator(client, namespace=real_namespace) as operator:
        harness = JobHarness(client, real_namespace, operator, kind=TENSORFLOW)
        for name, row in rows.items():
            ranks = {
                f"{name}-{role.lower()}-{index}": state
                for role, states in row.roles.items()
                for index, state in enumerate(states)
            }
            await harness.wait_for_children(name, ranks)
            await wait_for_condition(harness, name, row)
        await harness.settle()
        for name, row in rows.items():
            children = [*(await harness.pods(name)).values(), *(await harness.services(name)).values()]
            assert all(one["metadata"]["ownerReferences"] == [owner_reference(jobs[name])] for one in children)
            await assert_conditions(harness, name, row)
            status = await harness.status(name)
            assert "startTime" in status
            if row.condition != "Succeeded":
                counts = {
                    role: {word: states.count(state) for word, state in (("active", "R"), ("succeeded", "S"))}
                    for role, states in row.roles.items()
                }
                shown = {role: {word: number for word, number in of.items() if number} for role, of in counts.items()}
                assert status["replicaStatuses"] == shown, row.about


@pytest.mark.apiserver
async def test_items_26_27_conditions_by_the_states_of_pods(client: Client, real_namespace: str) -> None:
    rows = {f"job-{number}": row for number, row in enumerate([*WORKER_0, *STATUS])}
    await asyncio.gather(*(with_pods(client, real_namespace, name, row) for name, row in rows.items()))
    async with running_operator(client, namespace=real_namespace) as operator:
        harness = JobHarness(client, real_namespace, operator, kind=TENSORFLOW)
        for name, row in rows.items():
            await wait_for_condition(harness, name, row)
        await harness.settle()
        for name, row in rows.items():
            await assert_conditions(harness, name, row)


async def wait_for_condition(harness: JobHarness, name: str, row: TFJobState) -> None:
    expected = row.condition or "Created"
    await eventually(lambda: harness.conditions(name), lambda shown: expected in {one[0] for one in shown})


async def assert_conditions(harness: JobHarness, name: str, row: TFJobState) -> None:
    """The job has the condition of the row, and never Running beside another end."""
    shown = {one[0]: one[1] for one in await harness.conditions(name)}
    assert row.condition in shown if row.condition else [*shown] == ["Created"], row.about
    finished = {"Succeeded", "Failed"} & shown.keys()
    assert not (finished and shown.get("Running") == "True"), row.about
    assert len(finished) <= 1, row.about


@pytest.mark.apiserver
async def test_item_27_a_job_continues_without_dynamic_workers_that_failed(harness: RealClusterHarness) -> None:
    """The exit code is recorded once, although the pod stays and the job is reconciled again."""
    jobs = harness.of(TENSORFLOW)
    builder = JobBuilder("job", kind=TENSORFLOW).workers(3).replica("PS").spec(enableDynamicWorker=True)
    await jobs.submit(builder)
    await jobs.wait_until_running("job")
    for index, code in ((2, 3), (1, 4)):
        await jobs.end(f"job-worker-{index}", exit_code=code)
        exited = ("Normal", "ExitedWithCode", f"Pod: {jobs.namespace}.job-worker-{index} exited with code {code}")
        await jobs.wait_for_events("job", exited)
    await jobs.wait_for_counts("job", "Worker", active=1, failed=2)
    await jobs.settle()
    assert (await jobs.conditions("job"))[-1] == upstream.workers_running("job", jobs.namespace, kind="TFJob")

    await jobs.end("job-worker-0", exit_code=0)
    await jobs.wait_for_end("job", "Succeeded")
    await settled(jobs.operator)
    found = (await jobs.client.list(EVENTS, namespace=jobs.namespace, field_selector="reason=ExitedWithCode")).items
    counts = {event["message"][-1]: event["count"] for event in found if "job-worker" in event["message"]}
    assert counts == {"3": 1, "4": 1, "0": 1}


# 14 to 16: what is left of a job's four workers and two parameter servers


class Left(NamedTuple):
    about: str
    state: str
    """Of all pods: running or succeeded."""
    ended: bool
    """Whether the job has succeeded."""
    policy: Object
    left: int
    restarts: int = 0


LEFT = [
    Left("all-running", "running", True, {"cleanPodPolicy": "All"}, 0),
    Left("running-running", "running", True, {"cleanPodPolicy": "Running"}, 0),
    Left("running-succeeded", "succeeded", True, {"cleanPodPolicy": "Running"}, 6),
    Left("none-succeeded", "succeeded", True, {"cleanPodPolicy": "None"}, 6),
    Left("no-deadline", "running", False, {"cleanPodPolicy": "All"}, 6),
    Left("past-deadline", "running", False, {"cleanPodPolicy": "All", "activeDeadlineSeconds": 2}, 0),
    Left("past-limit", "running", False, {"cleanPodPolicy": "All", "backoffLimit": 4}, 0, restarts=1),
]


@pytest.mark.apiserver
async def test_items_14_15_16_what_is_left_of_a_job(client: Client, real_namespace: str) -> None:
    for row in LEFT:
        builder = JobBuilder(row.about, kind=TENSORFLOW, namespace=real_namespace).run_policy(**row.policy)
        builder.workers(4, policy="OnFailure").replica("PS", 2)
        job = await client.create(TENSORFLOW.resource, builder.manifest())
        job = await client.replace(TENSORFLOW.resource, {**job, "status": started(row)}, subresource="status")
        pods = []
        for role, index in [*(("Worker", index) for index in range(4)), ("PS", 0), ("PS", 1)]:
            pod = PodBuilder(role, index, job=row.about, kind=TENSORFLOW)
            pods.append(pod.running(restarts=row.restarts) if row.state == "running" else pod.succeeded())
        await create_children(client, job, pods)
    async with running_operator(client, namespace=real_namespace) as operator:
        harness = JobHarness(client, real_namespace, operator, kind=TENSORFLOW)
        for row in LEFT:
            if row.left == 0:
                await harness.wait_for_children(row.about, [])
        await harness.settle()
        for row in LEFT:
            assert len(await harness.pods(row.about)) == len(await harness.services(row.about)) == row.left, row.about
        ends = {row.about: (await harness.conditions(row.about))[-1] for row in LEFT}
    assert ends["past-deadline"] == upstream.past_deadline("past-deadline", "TFJob")
    assert ends["past-limit"] == upstream.past_backoff_limit("past-limit", "TFJob")
    assert ends["no-deadline"][0] == "Running"


def started(row: Left) -> Object:
    """The status of a job that started three seconds ago and, if the row says so, has succeeded."""
    stamp = format_time(datetime.now(UTC) - timedelta(seconds=3))
    types = ["Created", "Succeeded"] if row.ended else ["Created"]
    conditions = [{"type": type_, "status": "True", "reason": "r", "message": "m"} for type_ in types]
    return {"conditions": conditions, "startTime": stamp, **({"completionTime": stamp} if row.ended else {})}


# 20, 21 and 28: TF_CONFIG


class Config(NamedTuple):
    roles: dict[str, int]
    of: str
    """The pod, without the name of its job."""
    config: str | None
    """TF_CONFIG, with JOB and NS for the name of the job and its namespace; None: the pod has none."""
    dynamic: bool = False


CLOUD = '"environment":"cloud"}'
WORKER_OF_EVALUATED = (
    '{"cluster":{"evaluator":["JOB-evaluator-0.NS.svc:2222"],"ps":["JOB-ps-0.NS.svc:2222"],'
    f'"worker":["JOB-worker-0.NS.svc:2222"]}},"task":{{"type":"worker","index":0}},{CLOUD}'
)
WORKER_AND_PS = (
    '{"cluster":{"ps":["JOB-ps-0.NS.svc:2222"],"worker":["JOB-worker-0.NS.svc:2222"]},'
    f'"task":{{"type":"worker","index":0}},{CLOUD}'
)
WORKER_AND_CHIEF = (
    '{"cluster":{"chief":["JOB-chief-0.NS.svc:2222"],"worker":["JOB-worker-0.NS.svc:2222"]},'
    f'"task":{{"type":"chief","index":0}},{CLOUD}'
)
SPARSE_WORKER = (
    '{"cluster":{"worker":{"0":"JOB-worker-0.NS.svc:2222"},"ps":["JOB-ps-0.NS.svc:2222","JOB-ps-1.NS.svc:2222"]},'
    '"task":{"type":"worker","index":0}}'
)
SPARSE_PS = '{"cluster":{"worker":{},"ps":["JOB-ps-0.NS.svc:2222"]},"task":{"type":"ps","index":0}}'
CONFIGS = {
    "one-worker": Config({"Worker": 1}, "worker-0", None),
    "one-ps": Config({"PS": 1}, "ps-0", None),
    "worker-and-ps": Config({"Worker": 1, "PS": 1}, "worker-0", WORKER_AND_PS),
    "worker-and-chief": Config({"Worker": 1, "Chief": 1}, "chief-0", WORKER_AND_CHIEF),
    "evaluated": Config({"Worker": 1, "PS": 1, "Evaluator": 1}, "worker-0", WORKER_OF_EVALUATED),
    "sparse-worker": Config({"Worker": 2, "PS": 2}, "worker-0", SPARSE_WORKER, dynamic=True),
    "sparse-ps": Config({"Worker": 2, "PS": 2}, "ps-0", SPARSE_PS, dynamic=True),
}
DOMAINS = pytest.mark.parametrize("domain", ["", "tf.training.org"], ids=["no domain", "a domain"])


@DOMAINS
@pytest.mark.parametrize("row", CONFIGS)
def test_items_20_21_28_tf_config_as_planned(row: str, domain: str) -> None:
    planned = decide(configured(row).metadata(name="digits"), settings=Settings(cluster_domain=domain))
    made = child(planned, f"digits-{CONFIGS[row].of}")
    assert config_of(made) == expected_config(row, domain, "digits", "team")


async def test_items_20_21_28_tf_config(cluster: ClusterHarness) -> None:
    await check_configs(cluster.of(TENSORFLOW), domain="")


@pytest.mark.apiserver
async def test_items_20_21_28_tf_config_with_a_domain(client: Client, real_namespace: str) -> None:
    settings = Settings(cluster_domain="tf.training.org")
    async with running_operator(client, namespace=real_namespace, settings=settings) as operator:
        await check_configs(JobHarness(client, real_namespace, operator, kind=TENSORFLOW), domain="tf.training.org")


async def check_configs(harness: JobHarness, *, domain: str) -> None:
    for row in CONFIGS:
        await harness.submit(configured(row))
    for row, config in CONFIGS.items():
        names = [f"{row}-{role.lower()}-{i}" for role, count in config.roles.items() for i in range(count)]
        await harness.wait_for_children(row, names)
        made = (await harness.pods(row))[f"{row}-{config.of}"]
        assert config_of(made) == expected_config(row, domain, row, harness.namespace)


def configured(row: str) -> JobBuilder:
    """A second container, which does not get TF_CONFIG."""
    pod = template(name="tensorflow")
    pod["spec"]["containers"].append({"name": "sidecar", "image": "example/sidecar:1"})
    builder = JobBuilder(row, kind=TENSORFLOW).spec(enableDynamicWorker=CONFIGS[row].dynamic)
    for role, count in CONFIGS[row].roles.items():
        builder.replica(role, count, pod=pod)
    return builder


def config_of(pod: Object) -> str | None:
    main, sidecar = pod["spec"]["containers"]
    assert "env" not in sidecar
    return environment(pod)["TF_CONFIG"] if "env" in main else None


def expected_config(row: str, domain: str, job: str, namespace: str) -> str | None:
    config = CONFIGS[row].config
    if config is None:
        return None
    service = f"{namespace}.svc.{domain}" if domain else f"{namespace}.svc"
    return config.replace("NS.svc", service).replace("JOB", job)


# 25: scaling


@pytest.mark.apiserver
async def test_item_25_scaling(harness: JobHarness) -> None:
    jobs = harness.of(TENSORFLOW)
    for name, before, after in (("down", 3, 2), ("up", 1, 3)):
        await jobs.submit(JobBuilder(name, kind=TENSORFLOW).workers(before))
        await jobs.wait_until_running(name)
        first = await jobs.pods(name)
        await jobs.change(name, tfReplicaSpecs={"Worker": {"replicas": after}})
        await jobs.wait_for_children(name, [f"{name}-worker-{index}" for index in range(after)])
        left = await jobs.pods(name)
        kept = first.keys() & left.keys()
        assert all(left[pod]["metadata"]["uid"] == first[pod]["metadata"]["uid"] for pod in kept)
    await jobs.wait_for_events("down", ("Normal", "SuccessfulDeletePod", "Deleted pod: down-worker-2"))


# Helpers


async def with_pods(client: Client, namespace: str, name: str, row: TFJobState) -> Object:
    """A job whose pods have the states of the row, before the operator starts."""
    job = await client.create(TENSORFLOW.resource, row.job(name).metadata(namespace=namespace).manifest())
    await create_children(client, job, [pod for _, _, pod in row.pods(name)])
    return job


async def create_children(client: Client, job: Object, pods: Iterable[PodBuilder]) -> None:
    """Pods with their statuses, and a Service for each."""
    namespace = job["metadata"]["namespace"]
    for builder in pods:
        pod = builder.raw()
        named = {
            "name": pod["metadata"]["name"],
            "namespace": namespace,
            "labels": pod["metadata"]["labels"],
            "ownerReferences": [owner_reference(job)],
        }
        head = {"apiVersion": "v1", "metadata": named}
        await client.create(PODS, {**head, "kind": "Pod", **template(name="tensorflow")})
        status = {"status": pod["status"]}
        await client.patch(PODS, named["name"], status, namespace=namespace, subresource="status")
        ports = {"clusterIP": "None", "ports": [{"port": 2222}]}
        await client.create(SERVICES, {**head, "kind": "Service", "spec": ports})
