"""Deployments, ReplicaSets and Jobs as API objects: defaults, validation, scale, columns.

Every test here passes unchanged on the embedded server and on the real kube-apiserver. The controllers of the real one
run as well, so tests of stored objects use `paused`, `replicas: 0` or `suspend`.
"""

from typing import Any

import pytest

from tests.support.cluster.raw_api import TABLE, RawApi
from tests.support.objects.manifests import batch_job, deployment, replica_set

APPS, BATCH = "apis/apps/v1", "apis/batch/v1"


async def refused(api: RawApi, plural: str, body: dict[str, Any], group: str) -> list[str]:
    """The errors of an object, each with its field."""
    reply = await api.post(api.path(plural, group=group), body)
    assert reply.code == 422, reply.body
    return [f"{cause['field']}: {cause['message']}" for cause in reply.body["details"]["causes"]]


class TestDeployments:
    async def test_defaults(self, api: RawApi) -> None:
        reply = await api.post(f"{api.path('deployments', group=APPS)}?dryRun=All", deployment())
        assert reply.code == 201
        assert reply.body["spec"] == {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "busybox",
                            "resources": {},
                            "terminationMessagePath": "/dev/termination-log",
                            "terminationMessagePolicy": "File",
                            "imagePullPolicy": "Always",
                        }
                    ],
                    "restartPolicy": "Always",
                    "terminationGracePeriodSeconds": 30,
                    "dnsPolicy": "ClusterFirst",
                    "securityContext": {},
                    "schedulerName": "default-scheduler",
                },
            },
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
        }
        assert reply.body["status"] == {}
        assert reply.metadata["generation"] == 1

    async def test_selector_must_match_the_template(self, api: RawApi) -> None:
        assert await refused(api, "deployments", deployment(selector={"matchLabels": {"a": "b"}}), APPS) == [
            'spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`'
        ]
        assert await refused(api, "deployments", deployment(selector=None), APPS) == [
            "spec.selector: Required value",
            'spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`',
        ]
        empty = await refused(api, "deployments", deployment(selector={}), APPS)
        assert empty == ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]

    async def test_invalid_fields_are_named(self, api: RawApi) -> None:
        wrong = deployment(replicas=-1, minReadySeconds=-1, revisionHistoryLimit=-1)
        wrong["spec"]["template"]["spec"] |= {"restartPolicy": "Never", "activeDeadlineSeconds": 5}
        del wrong["spec"]["template"]["spec"]["containers"][0]["image"]
        assert await refused(api, "deployments", wrong, APPS) == [
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            "spec.template.spec.containers[0].image: Required value",
            'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
            "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
            "spec.revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0",
        ]

    @pytest.mark.parametrize(
        ("strategy", "errors"),
        [
            (
                {"type": "Recreate", "rollingUpdate": {}},
                ["spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"],
            ),
            (
                {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}},
                [
                    "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
                ],
            ),
            (
                {"rollingUpdate": {"maxSurge": "x", "maxUnavailable": "101%"}},
                [
                    (
                        'spec.strategy.rollingUpdate.maxSurge: Invalid value: "x": a valid percent string must '
                        "be a numeric "
                        "string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is "
                        "'[0-9]+%')"
                    ),
                    'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%',
                ],
            ),
            (
                {"type": "Sideways"},
                [
                    (
                        'spec.strategy: Unsupported value: {"Type":"Sideways","RollingUpdate":null}: supported values: '
                        '"Recreate", "RollingUpdate"'
                    )
                ],
            ),
        ],
    )
    async def test_strategy_is_validated(self, api: RawApi, strategy: dict[str, Any], errors: list[str]) -> None:
        assert await refused(api, "deployments", deployment(strategy=strategy), APPS) == errors

    async def test_deadline_must_exceed_the_minimum_ready_time(self, api: RawApi) -> None:
        errors = await refused(api, "deployments", deployment(minReadySeconds=5, progressDeadlineSeconds=5), APPS)
        assert errors == ["spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds"]

    async def test_selector_is_immutable(self, api: RawApi) -> None:
        path = api.path("deployments", group=APPS)
        created = (await api.post(path, deployment(paused=True, replicas=0))).body
        labels = {"app": "web", "b": "c"}
        created["spec"]["selector"]["matchLabels"] = labels
        created["spec"]["template"]["metadata"]["labels"] = labels
        del created["metadata"]["resourceVersion"]
        reply = await api.put(f"{path}/web", created)
        assert (reply.code, reply.message) == (
            422,
            (
                'Deployment.apps "web" is invalid: spec.selector: Invalid value: '
                '{"matchLabels":{"app":"web","b":"c"}}: '
                "field is immutable"
            ),
        )

    async def test_generation_counts_spec_and_annotations(self, api: RawApi) -> None:
        path = f"{api.path('deployments', group=APPS)}"
        await api.post(path, deployment(paused=True, replicas=0))
        labelled = await api.patch(f"{path}/web", {"metadata": {"labels": {"a": "b"}}})
        assert labelled.metadata["generation"] == 1
        annotated = await api.patch(f"{path}/web", {"metadata": {"annotations": {"a": "b"}}})
        assert annotated.metadata["generation"] == 2
        scaled = await api.patch(f"{path}/web", {"spec": {"minReadySeconds": 1}})
        assert scaled.metadata["generation"] == 3

    async def test_scale(self, api: RawApi) -> None:
        path = f"{api.path('deployments', group=APPS)}"
        await api.post(path, deployment(paused=True, replicas=1))
        scale = await api.get(f"{path}/web/scale")
        assert (scale.body["kind"], scale.body["apiVersion"]) == ("Scale", "autoscaling/v1")
        assert scale.body["spec"] == {"replicas": 1}
        assert scale.body["status"]["selector"] == "app=web"
        changed = await api.patch(f"{path}/web/scale", {"spec": {"replicas": 3}})
        assert (changed.code, changed.body["spec"]) == (200, {"replicas": 3})
        assert (await api.get(f"{path}/web")).body["spec"]["replicas"] == 3
        negative = await api.patch(f"{path}/web/scale", {"spec": {"replicas": -1}})
        assert (negative.code, negative.message) == (
            422,
            'Scale.autoscaling "web" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0',
        )

    async def test_status_cannot_contradict_itself(self, api: RawApi) -> None:
        path = f"{api.path('deployments', group=APPS)}"
        await api.post(path, deployment(paused=True, replicas=0))
        reply = await api.patch(f"{path}/web/status", {"status": {"replicas": 1, "readyReplicas": 2}})
        assert reply.code == 422
        assert "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas" in reply.message

    async def test_columns(self, api: RawApi) -> None:
        path = f"{api.path('deployments', group=APPS)}"
        await api.post(path, deployment(replicas=0))
        table = (await api.get(path, accept=TABLE)).body
        named = {one["name"]: one for one in table["columnDefinitions"]}
        assert list(named) == [
            "Name", "Ready", "Up-to-date", "Available", "Age", "Containers", "Images", "Selector",
        ]  # fmt: skip
        cells = dict(zip(named, table["rows"][0]["cells"], strict=True))
        assert cells | {"Age": ""} == {
            "Name": "web",
            "Ready": "0/0",
            "Up-to-date": 0,
            "Available": 0,
            "Age": "",
            "Containers": "main",
            "Images": "busybox",
            "Selector": "app=web",
        }
        assert [one["type"] for one in named.values()] == ["string"] * 8
        assert [one["priority"] for one in named.values()] == [0, 0, 0, 0, 0, 1, 1, 1]


class TestReplicaSets:
    async def test_defaults_and_columns(self, api: RawApi) -> None:
        path = api.path("replicasets", group=APPS)
        body = replica_set(replicas=0, selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]})
        reply = await api.post(path, body)
        assert (reply.code, reply.body["status"]) == (201, {"replicas": 0})
        table = (await api.get(path, accept=TABLE)).body
        names = [one["name"] for one in table["columnDefinitions"]]
        assert names == ["Name", "Desired", "Current", "Ready", "Age", "Containers", "Images", "Selector"]
        cells = table["rows"][0]["cells"]
        assert [*cells[:4], *cells[5:]] == ["web", 0, 0, 0, "main", "busybox", "app"]

    async def test_expressions_are_validated(self, api: RawApi) -> None:
        terms = [{"key": "a", "operator": "In"}, {"key": "b", "operator": "Exists", "values": ["c"]}]
        errors = await refused(api, "replicasets", replica_set(selector={"matchExpressions": terms}), APPS)
        assert errors[:2] == [
            (
                "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is "
                "'In' or "
                "'NotIn'"
            ),
            (
                "spec.selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is "
                "'Exists' or "
                "'DoesNotExist'"
            ),
        ]
        assert errors[2].startswith("spec.selector: Invalid value: ")
        assert errors[2].endswith(": invalid label selector")


class TestJobs:
    async def test_defaults_and_generated_selector(self, api: RawApi) -> None:
        reply = await api.post(f"{api.path('jobs', group=BATCH)}", batch_job(suspend=True))
        assert reply.code == 201
        uid, spec = reply.metadata["uid"], reply.body["spec"]
        template = spec.pop("template")
        assert spec == {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 6,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
            "manualSelector": False,
            "completionMode": "NonIndexed",
            "suspend": True,
            "podReplacementPolicy": "TerminatingOrFailed",
        }
        labels = {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": "pi",
            "controller-uid": uid,
            "job-name": "pi",
        }
        assert template["metadata"]["labels"] == reply.metadata["labels"] == labels
        assert reply.body["status"] == {}

    async def test_job_has_the_labels_of_its_template(self, api: RawApi) -> None:
        body = batch_job(suspend=True)
        body["spec"]["template"]["metadata"] = {"labels": {"a": "b"}}
        reply = await api.post(f"{api.path('jobs', group=BATCH)}", body)
        assert reply.metadata["labels"] == reply.body["spec"]["template"]["metadata"]["labels"]
        assert reply.metadata["labels"]["a"] == "b"

    @pytest.mark.parametrize(
        ("body", "errors"),
        [
            (
                batch_job(restart_policy="Always"),
                ['spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'],
            ),
            (
                batch_job(parallelism=-1, completions=-1, backoffLimit=-1),
                [
                    "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
                    "spec.completions: Invalid value: -1: must be greater than or equal to 0",
                    "spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0",
                ],
            ),
            (
                batch_job(completionMode="Indexed", parallelism=1),
                ["spec.completions: Required value: when completion mode is Indexed"],
            ),
            (
                batch_job(completionMode="Sorted"),
                ['spec.completionMode: Unsupported value: "Sorted": supported values: "NonIndexed", "Indexed"'],
            ),
            (
                batch_job(backoffLimitPerIndex=1),
                ["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"],
            ),
            (
                batch_job(podFailurePolicy={"rules": [{"action": "FailJob"}]}),
                [
                    (
                        "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and "
                        "OnPodConditions "
                        "is required"
                    )
                ],
            ),
            (
                batch_job(
                    podFailurePolicy={
                        "rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3, 0]}}]
                    }
                ),
                [
                    (
                        'spec.podFailurePolicy.rules[0].action: Invalid value: "FailIndex": requires the '
                        "backoffLimitPerIndex to be set"
                    ),
                    (
                        "spec.podFailurePolicy.rules[0].onExitCodes.values[1]: Invalid value: 0: must not be 0 "
                        "for the In "
                        "operator"
                    ),
                    "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [3,0]: must be ordered",
                ],
            ),
        ],
    )
    async def test_validation(self, api: RawApi, body: dict[str, Any], errors: list[str]) -> None:
        assert await refused(api, "jobs", body, BATCH) == errors

    async def test_labels_that_contradict_the_generated_selector_are_refused(self, api: RawApi) -> None:
        body = batch_job()
        body["spec"]["template"]["metadata"] = {"labels": {"job-name": "other"}}
        (error,) = await refused(api, "jobs", body, BATCH)
        assert error.startswith("spec.template.metadata.labels[job-name]: Invalid value: {")
        assert error.endswith(": must be 'pi'")

    async def test_template_is_immutable(self, api: RawApi) -> None:
        path = api.path("jobs", group=BATCH)
        await api.post(path, batch_job(suspend=True, completions=2))
        image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "other"}]
        reply = await api.patch(f"{path}/pi", image, "application/json-patch+json")
        assert reply.code == 422
        assert 'Job.batch "pi" is invalid: spec.template: Invalid value: ' in reply.message
        assert reply.message.endswith(": field is immutable")
        completions = await api.patch(f"{path}/pi", {"spec": {"completions": 3}})
        assert completions.message == (
            'Job.batch "pi" is invalid: spec.completions: Invalid value: 3: field is immutable'
        )
        parallelism = await api.patch(f"{path}/pi", {"spec": {"parallelism": 2}})
        assert (parallelism.code, parallelism.metadata["generation"]) == (200, 2)

    async def test_delete_without_a_policy_orphans_the_pods(self, api: RawApi) -> None:
        path = api.path("jobs", group=BATCH)
        await api.post(path, batch_job(suspend=True))
        reply = await api.delete(f"{path}/pi", {})
        assert reply.metadata["finalizers"] == ["orphan"]

    async def test_columns(self, api: RawApi) -> None:
        path = api.path("jobs", group=BATCH)
        await api.post(path, batch_job(completions=3, parallelism=0))
        table = (await api.get(path, accept=TABLE)).body
        names = [one["name"] for one in table["columnDefinitions"]]
        assert names == ["Name", "Status", "Completions", "Duration", "Age", "Containers", "Images", "Selector"]
        cells = dict(zip(names, table["rows"][0]["cells"], strict=True))
        assert (cells["Name"], cells["Status"], cells["Completions"]) == ("pi", "Running", "0/3")
        assert cells["Selector"].startswith("batch.kubernetes.io/controller-uid=")
