"""Deployments and Jobs whose pods really run."""

import asyncio
from typing import Any

import pytest

from tests.support.node.namespace import NodeNamespace, container
from tests.support.waiting import eventually
from trainwright.objects import Object
from trainwright.objects.conditions import is_condition_true
from trainwright.objects.resources import BATCH_JOBS, DEPLOYMENTS, PODS, RESOURCE_QUOTAS


async def deployment(node: NodeNamespace, name: str, script: str, *, replicas: int = 2, **spec: Any) -> Object:
    labels = {"app": name}
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container(script)]}
    whole = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
        **spec,
    }
    return await node.make(DEPLOYMENTS, name, spec=whole)


async def job(node: NodeNamespace, name: str, script: str, **spec: Any) -> Object:
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container(script)]}
    return await node.make(BATCH_JOBS, name, spec={"template": {"spec": pod}, **spec})


async def rolled_out(node: NodeNamespace, name: str) -> Object:
    def done(found: Object) -> bool:
        status, wanted = found.get("status") or {}, found["spec"]["replicas"]
        counts = (status.get(one, 0) for one in ("replicas", "updatedReplicas", "availableReplicas"))
        return status.get("observedGeneration") == found["metadata"]["generation"] and set(counts) == {wanted}

    return await node.until(name, done, resource=DEPLOYMENTS)


async def finished(node: NodeNamespace, name: str, condition: str) -> Object:
    return await node.until(
        name, lambda found: is_condition_true(found.get("status") or {}, condition), resource=BATCH_JOBS
    )


async def pods_of(node: NodeNamespace, selector: str) -> list[Object]:
    return (await node.client.list(PODS, namespace=node.name, label_selector=selector)).items


async def test_a_deployment_runs_its_pods(node: NodeNamespace) -> None:
    await deployment(node, "web", "sleep 600")
    await rolled_out(node, "web")
    pods = await pods_of(node, "app=web")
    assert [pod["status"]["phase"] for pod in pods] == ["Running", "Running"]


async def test_a_new_template_replaces_all_pods(node: NodeNamespace) -> None:
    await deployment(node, "web", "sleep 600")
    await rolled_out(node, "web")
    old = [pod["metadata"]["name"] for pod in await pods_of(node, "app=web")]
    change = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
    await node.client.patch(DEPLOYMENTS, "web", change, namespace=node.name)
    await rolled_out(node, "web")
    for name in old:
        await node.until_gone(name)
    assert {pod["metadata"]["annotations"]["version"] for pod in await pods_of(node, "app=web")} == {"2"}


async def test_recreate_never_runs_old_and_new_pods_together(node: NodeNamespace) -> None:
    script = 'trap "rmdir /shared/lock; exit 0" TERM; mkdir /shared/lock || exit 7; while true; do sleep 0.1; done'
    volume = {"name": "shared", "hostPath": {"path": str(node.host_directory)}}
    labels = {"app": "one"}
    main = {**container(script), "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    pod = {"terminationGracePeriodSeconds": 20, "containers": [main], "volumes": [volume]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"selector": {"matchLabels": labels}, "template": template, "strategy": {"type": "Recreate"}}
    if node.level == "plain":
        return  # paths of volumes are replaced in arguments, not in the text of a shell script
    await node.make(DEPLOYMENTS, "one", spec=spec)
    await rolled_out(node, "one")
    await eventually(lambda: asyncio.to_thread((node.host_directory / "lock").exists), bool)
    change = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
    await node.client.patch(DEPLOYMENTS, "one", change, namespace=node.name)
    await rolled_out(node, "one")
    (pod_now,) = await pods_of(node, "app=one")
    assert pod_now["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_a_pod_that_is_deleted_is_replaced(node: NodeNamespace) -> None:
    await deployment(node, "web", "sleep 600", replicas=1)
    await rolled_out(node, "web")
    (first,) = await pods_of(node, "app=web")
    await node.delete(first["metadata"]["name"])
    await node.until_gone(first["metadata"]["name"])

    def replaced(pods: list[Object]) -> bool:
        return [one["status"]["phase"] for one in pods] == ["Running"]

    (second,) = await eventually(lambda: pods_of(node, "app=web"), replaced, seconds=60)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


async def test_scaling_to_zero_ends_all_pods(node: NodeNamespace) -> None:
    await deployment(node, "web", "sleep 600")
    await rolled_out(node, "web")
    names = [pod["metadata"]["name"] for pod in await pods_of(node, "app=web")]
    await node.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, namespace=node.name, subresource="scale")
    for name in names:
        await node.until_gone(name)
    assert (await rolled_out(node, "web"))["status"].get("replicas", 0) == 0


async def test_a_rollout_of_a_failing_program_keeps_the_old_pods(node: NodeNamespace) -> None:
    limits = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    await deployment(node, "web", "sleep 600", replicas=1, strategy=limits, minReadySeconds=2)
    await rolled_out(node, "web")
    (first,) = await pods_of(node, "app=web")
    broken = {"spec": {"template": {"spec": {"containers": [container("exit 1")]}}}}
    await node.client.patch(DEPLOYMENTS, "web", broken, namespace=node.name)
    pods = await node.until("web", lambda found: found["status"].get("unavailableReplicas") == 1, resource=DEPLOYMENTS)
    assert pods["status"]["availableReplicas"] == 1
    kept = await node.read(first["metadata"]["name"])
    assert kept is not None
    assert "deletionTimestamp" not in kept["metadata"]


async def test_a_job_completes_with_its_program(node: NodeNamespace) -> None:
    await job(node, "pi", "echo 3.14", completions=3, parallelism=2)
    found = await finished(node, "pi", "Complete")
    assert found["status"]["succeeded"] == 3
    pods = await pods_of(node, "job-name=pi")
    assert [pod["status"]["phase"] for pod in pods] == ["Succeeded"] * 3
    assert not any(pod["metadata"].get("finalizers") for pod in pods)


async def test_a_job_without_retries_fails_with_its_program(node: NodeNamespace) -> None:
    await job(node, "bad", "exit 3", backoffLimit=0)
    found = await finished(node, "bad", "Failed")
    assert found["status"]["failed"] == 1
    assert [one["reason"] for one in found["status"]["conditions"]] == ["BackoffLimitExceeded"] * 2


@pytest.mark.only("overlay", "kubelet")
async def test_indexed_pods_have_their_index_and_name(node: NodeNamespace) -> None:
    await job(
        node,
        "ranks",
        'echo "$JOB_COMPLETION_INDEX $(hostname)"',
        completions=2,
        parallelism=2,
        completionMode="Indexed",
    )
    await finished(node, "ranks", "Complete")
    lines = set()
    for pod in await pods_of(node, "job-name=ranks"):
        lines.add((await node.log(pod["metadata"]["name"])).strip())
    assert {line.split()[0] for line in lines} == {"0", "1"}
    if node.level != "plain":
        assert lines == {"0 ranks-0", "1 ranks-1"}


async def test_the_deadline_of_a_job_ends_its_pods(node: NodeNamespace) -> None:
    await job(node, "slow", "sleep 600", activeDeadlineSeconds=2)
    found = await finished(node, "slow", "Failed")
    assert found["status"]["conditions"][-1]["reason"] == "DeadlineExceeded"
    assert not [pod for pod in await pods_of(node, "job-name=slow") if pod["status"]["phase"] == "Running"]


async def test_suspending_a_job_ends_its_pods_and_resuming_starts_others(node: NodeNamespace) -> None:
    await job(node, "pause", "sleep 600")
    await node.until("pause", lambda found: (found.get("status") or {}).get("ready") == 1, resource=BATCH_JOBS)
    await node.client.patch(BATCH_JOBS, "pause", {"spec": {"suspend": True}}, namespace=node.name)
    await finished(node, "pause", "Suspended")
    await node.until("pause", lambda found: found["status"].get("terminating") == 0, resource=BATCH_JOBS)
    await node.client.patch(BATCH_JOBS, "pause", {"spec": {"suspend": False}}, namespace=node.name)
    found = await node.until("pause", lambda found: found["status"].get("ready") == 1, resource=BATCH_JOBS)
    assert "failed" not in found["status"]


async def test_a_finished_job_is_deleted_after_its_time(node: NodeNamespace) -> None:
    await job(node, "short", "exit 0", ttlSecondsAfterFinished=1)
    await node.until("short", bool, resource=BATCH_JOBS)
    await node.until_gone("short", resource=BATCH_JOBS)


async def test_a_quota_is_free_again_when_pods_have_ended(node: NodeNamespace) -> None:
    await node.make(RESOURCE_QUOTAS, "q", spec={"hard": {"pods": "1"}})
    await node.until("q", lambda found: "used" in (found.get("status") or {}), resource=RESOURCE_QUOTAS)
    await job(node, "queue", "exit 0", completions=2, parallelism=2, backoffLimit=0)
    found = await finished(node, "queue", "Complete")
    assert found["status"]["succeeded"] == 2
