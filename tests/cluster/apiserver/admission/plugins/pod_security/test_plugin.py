"""Pod Security admission: every test passes unchanged on the embedded server and on the real kube-apiserver."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.support.cluster.raw_api import APPLY, RawApi, Reply
from tests.support.objects.manifests import batch_job, deployment, pod, replica_set
from tests.support.waiting import eventually

PREFIX = "pod-security.kubernetes.io/"
SAFE_CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
SAFE_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
HOST_PATH: dict[str, Any] = {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}
HOST_PATH_VIOLATION = 'PodSecurity "baseline:latest": hostPath volumes (volume "root")'
DRY_RUN = "?dryRun=All"
BASELINE_VIOLATIONS: list[tuple[dict[str, Any], str]] = [
    (
        {"hostNetwork": True, "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]},
        'host namespaces (hostNetwork=true), hostPort (container "c" uses hostPort 80)',
    ),
    (
        {"hostPID": True, "hostIPC": True, **HOST_PATH},
        'host namespaces (hostPID=true, hostIPC=true), hostPath volumes (volume "root")',
    ),
    (
        {"containers": [{"name": name, "image": "i", "securityContext": {"privileged": True}} for name in "ab"]},
        'privileged (containers "a", "b" must not set securityContext.privileged=true)',
    ),
    (
        {"securityContext": {"seLinuxOptions": {"type": "spc_t", "user": "u", "role": "r"}}},
        (
            'seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "spc_t"; user may not be set; '
            "role may not be set)"
        ),
    ),
    (
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}, "sysctls": [{"name": "a.b", "value": "1"}]}},
        (
            'seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined"), '
            "forbidden sysctls (a.b)"
        ),
    ),
    (
        {"initContainers": [{"name": "i", "image": "i", "securityContext": {"capabilities": {"add": ["BPF"]}}}]},
        'non-default capabilities (container "i" must not include "BPF" in securityContext.capabilities.add)',
    ),
]

Enter = Callable[..., Awaitable[RawApi]]


def labels(**modes: str) -> dict[str, str]:
    """`enforce_version="v1.20"` for `pod-security.kubernetes.io/enforce-version: v1.20`."""
    return {PREFIX + mode.replace("_", "-"): value for mode, value in modes.items()}


def namespace(name: str, **modes: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels(**modes)}}


def namespace_path(api: RawApi, *rest: str) -> str:
    return "/".join(["/api/v1/namespaces", api.namespace, *rest])


def warnings(*texts: str) -> list[str]:
    return ['299 - "{}"'.format(text.replace('"', '\\"')) for text in texts]


def restricted(mode: str) -> str:
    """What the pod of `manifests.pod` violates."""
    return (
        f'{mode} PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "main" must set '
        'securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "main" must set '
        'securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "main" must set '
        'securityContext.runAsNonRoot=true), seccompProfile (pod or container "main" must set '
        'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
    )


@pytest.fixture
async def enter(api: RawApi) -> AsyncIterator[Enter]:
    """Creates a namespace with labels of pod security, and makes it that of the test.

    The real server enforces the labels of a new namespace at once, and changes of them with a delay."""
    created = ""

    async def create(**modes: str) -> RawApi:
        nonlocal created
        created = api.namespace = f"{api.namespace}-secured"
        reply = await api.post("/api/v1/namespaces", namespace(created, **modes))
        assert reply.code == 201, reply.body
        await api.post(api.path("serviceaccounts"), {"metadata": {"name": "default"}})
        return api

    yield create
    if created:
        await api.delete(f"/api/v1/namespaces/{created}")


async def relabel(api: RawApi, path: str = "", **modes: str | None) -> Reply:
    changed = {PREFIX + mode.replace("_", "-"): value for mode, value in modes.items()}
    return await api.patch(namespace_path(api) + path, {"metadata": {"labels": changed}})


class TestPods:
    async def test_a_pod_that_violates_the_enforced_level_is_forbidden(self, enter: Enter) -> None:
        api = await enter(enforce="restricted")

        reply = await api.post(api.path("pods"), pod())

        message = f'pods "p" is forbidden: {restricted("violates")}'
        assert reply.warnings == []
        assert reply.body == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": "Forbidden",
            "details": {"name": "p", "kind": "pods"},
            "code": 403,
        }

    async def test_a_pod_that_satisfies_the_level_is_created_without_a_warning(self, enter: Enter) -> None:
        api = await enter(enforce="restricted")

        reply = await api.post(
            api.path("pods"), pod(spec={"securityContext": SAFE_POD}, securityContext=SAFE_CONTAINER)
        )

        assert (reply.code, reply.warnings) == (201, [])

    @pytest.mark.parametrize(("spec", "violation"), BASELINE_VIOLATIONS)
    async def test_violations_of_the_baseline(self, enter: Enter, spec: dict[str, Any], violation: str) -> None:
        api = await enter(enforce="baseline")

        reply = await api.post(api.path("pods"), pod(spec=spec))

        assert reply.message == f'pods "p" is forbidden: violates PodSecurity "baseline:latest": {violation}'

    async def test_the_message_has_the_generated_name(self, enter: Enter) -> None:
        api = await enter(enforce="baseline")
        body = pod(spec=HOST_PATH) | {"metadata": {"generateName": "w-"}}

        reply = await api.post(api.path("pods"), body)

        assert re.fullmatch(rf'pods "w-\w+" is forbidden: violates {re.escape(HOST_PATH_VIOLATION)}', reply.message)

    async def test_a_dry_run_and_server_side_apply_are_refused_too(self, enter: Enter) -> None:
        api = await enter(enforce="baseline")
        message = f'pods "p" is forbidden: violates {HOST_PATH_VIOLATION}'

        dry = await api.post(api.path("pods") + DRY_RUN, pod(spec=HOST_PATH))
        applied = await api.patch(api.path("pods", "p") + "?fieldManager=me", pod(spec=HOST_PATH), APPLY)

        assert (dry.code, dry.message) == (403, message)
        assert (applied.code, applied.message) == (403, message)

    async def test_warn_creates_the_pod_with_a_warning(self, enter: Enter) -> None:
        api = await enter(warn="restricted", audit="restricted")

        reply = await api.post(api.path("pods"), pod())

        assert (reply.code, reply.warnings) == (201, warnings(restricted("would violate")))

    async def test_a_level_can_be_enforced_and_another_warned_about(self, enter: Enter) -> None:
        api = await enter(enforce="baseline", warn="restricted")

        refused = await api.post(api.path("pods"), pod(spec=HOST_PATH))
        warned = await api.post(api.path("pods"), pod())

        assert (refused.code, refused.warnings) == (403, [])
        assert refused.message.endswith(HOST_PATH_VIOLATION)
        assert (warned.code, warned.warnings) == (201, warnings(restricted("would violate")))

    async def test_audit_alone_changes_no_response(self, enter: Enter) -> None:
        api = await enter(audit="restricted", audit_version="v1.20")

        reply = await api.post(api.path("pods"), pod(spec=HOST_PATH))

        assert (reply.code, reply.warnings) == (201, [])

    @pytest.mark.parametrize("version", ["v1.0", "v1.7", "v1.24", "v1.33", "v1.35", "v1.99", "latest"])
    async def test_the_checks_are_those_of_the_version(self, enter: Enter, version: str) -> None:
        api = await enter(enforce="restricted", enforce_version=version)
        annotated = pod(readinessProbe={"httpGet": {"port": 80, "host": "10.0.0.1"}})
        annotated["metadata"]["annotations"] = {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}

        reply = await api.post(api.path("pods"), annotated)

        escalation, capabilities, root, seccomp = restricted("violates").split(": ", 1)[1].split("), ")
        host = 'probe or lifecycle host (container "main" uses probe or lifecycle host "10.0.0.1"'
        annotation = 'seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined"'
        found = {
            "v1.0": [annotation, root],
            "v1.7": [annotation, root],
            "v1.24": [escalation, capabilities, root, seccomp.removesuffix(")")],
            "v1.33": [escalation, capabilities, root, seccomp.removesuffix(")")],
        }.get(version, [host, escalation, capabilities, root, seccomp.removesuffix(")")])
        expected = "".join(f"{violation}), " for violation in found).removesuffix(", ")
        assert reply.message == f'pods "p" is forbidden: violates PodSecurity "restricted:{version}": {expected}'

    async def test_a_pod_in_a_user_namespace_may_run_as_root(self, enter: Enter) -> None:
        api = await enter(enforce="restricted")
        context = {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}}
        spec = {"securityContext": context, "hostUsers": False}

        reply = await api.post(api.path("pods"), pod(spec=spec, securityContext=SAFE_CONTAINER))
        refused = await api.post(
            api.path("pods"), pod("q", spec=spec | {"hostUsers": True}, securityContext=SAFE_CONTAINER)
        )

        assert reply.code == 201, reply.body
        assert "runAsUser=0 (pod must not set runAsUser=0)" in refused.message

    async def test_long_warnings_are_shortened(self, enter: Enter) -> None:
        api = await enter(warn="baseline")
        context = {"securityContext": {"privileged": True}}
        many = [{"name": f"container-with-a-long-name-{n}", "image": "i", **context} for n in range(150)]

        reply = await api.post(api.path("pods"), pod(spec={"containers": many}))

        names = ", ".join(f'"{container["name"]}"' for container in many)
        full = f'would violate PodSecurity "baseline:latest": privileged (containers {names}'
        assert (reply.code, reply.warnings) == (201, warnings(full[:256]))


class TestUpdatesOfPods:
    @pytest.fixture
    async def secured(self, api: RawApi) -> RawApi:
        """A namespace that enforces a level since after the pod was created."""
        assert (await api.post(api.path("pods"), pod(spec=HOST_PATH))).code == 201
        await relabel(api, enforce="baseline")

        async def enforced() -> int:
            return (await api.post(api.path("pods") + DRY_RUN, pod("other", spec=HOST_PATH))).code

        await eventually(enforced, lambda code: code == 403)
        return api

    async def test_another_image_is_forbidden(self, secured: RawApi) -> None:
        image = {"spec": {"containers": [{"name": "main", "image": "other"}]}}

        reply = await secured.patch(
            secured.path("pods", "p"), image, content_type="application/strategic-merge-patch+json"
        )

        assert (reply.code, reply.message) == (403, f'pods "p" is forbidden: violates {HOST_PATH_VIOLATION}')

    async def test_other_changes_are_allowed(self, secured: RawApi) -> None:
        path = secured.path("pods", "p")

        labelled = await secured.patch(path, {"metadata": {"labels": {"a": "b"}}})
        deadline = await secured.patch(path, {"spec": {"activeDeadlineSeconds": 5}})
        status = await secured.patch(f"{path}/status", {"status": {"message": "m"}})
        deleted = await secured.delete(path, {"gracePeriodSeconds": 0})

        assert [reply.code for reply in (labelled, deadline, status, deleted)] == [200] * 4
        assert labelled.warnings == deadline.warnings == status.warnings == []


class TestWorkloads:
    @staticmethod
    def workloads() -> list[tuple[str, str, dict[str, Any]]]:
        """Group, resource and object, all with a hostPath."""
        template = {"spec": {**pod()["spec"], **HOST_PATH}, "metadata": {"labels": {"app": "web"}}}
        return [
            ("apis/apps/v1", "deployments", deployment(template=template)),
            ("apis/apps/v1", "replicasets", replica_set(template=template)),
            ("apis/apps/v1", "statefulsets", replica_set(template=template) | {"kind": "StatefulSet"}),
            ("apis/apps/v1", "daemonsets", deployment(template=template) | {"kind": "DaemonSet"}),
            ("apis/batch/v1", "jobs", batch_job(template=HOST_PATH)),
        ]

    @pytest.mark.parametrize("number", range(5))
    async def test_a_workload_is_created_with_a_warning(self, enter: Enter, number: int) -> None:
        api = await enter(enforce="baseline")
        group, plural, body = self.workloads()[number]
        if plural == "daemonsets":
            body["spec"].pop("replicas", None)

        reply = await api.post(api.path(plural, group=group) + DRY_RUN, body)

        assert (reply.code, reply.warnings) == (201, warnings(f"would violate {HOST_PATH_VIOLATION}")), reply.body

    async def test_warn_privileged_silences_the_warning(self, enter: Enter) -> None:
        api = await enter(enforce="baseline", warn="privileged")

        reply = await api.post(api.path("deployments", group="apis/apps/v1"), self.workloads()[0][2])

        assert (reply.code, reply.warnings) == (201, [])

    async def test_every_update_warns_and_scaling_does_not(self, enter: Enter) -> None:
        api = await enter(warn="baseline")
        path = api.path("deployments", "web", group="apis/apps/v1")
        await api.post(api.path("deployments", group="apis/apps/v1"), self.workloads()[0][2])

        paused = await api.patch(path, {"spec": {"paused": True}})
        same = await api.patch(path, {"spec": {"paused": True}})
        scaled = await api.patch(f"{path}/scale", {"spec": {"replicas": 0}})

        expected = warnings(f"would violate {HOST_PATH_VIOLATION}")
        assert (paused.warnings, same.warnings, scaled.warnings) == (expected, expected, [])
        assert scaled.code == 200


class TestNamespaces:
    async def test_invalid_labels_of_a_new_namespace_are_refused(self, api: RawApi) -> None:
        modes = {"enforce": "strict", "enforce_version": "1.20", "audit": "Baseline", "warn_version": "v2.0"}

        reply = await api.post("/api/v1/namespaces", namespace("secured", **modes))

        def cause(label: str, value: str, detail: str) -> dict[str, str]:
            path = f"metadata.labels[{PREFIX}{label}]"
            return {"reason": "FieldValueInvalid", "message": f'Invalid value: "{value}": {detail}', "field": path}

        levels, versions = "must be one of privileged, baseline, restricted", 'must be "latest" or "v1.x"'
        causes = [
            cause("enforce", "strict", levels),
            cause("enforce-version", "1.20", versions),
            cause("audit", "Baseline", levels),
            cause("warn-version", "v2.0", versions),
        ]
        assert (reply.code, reply.body["details"]) == (
            422,
            {"name": "secured", "kind": "Namespace", "causes": causes},
        )
        listed = ", ".join(f"{one['field']}: {one['message']}" for one in causes)
        assert reply.message == f'Namespace "secured" is invalid: [{listed}]'

    async def test_invalid_labels_cannot_be_set_later(self, api: RawApi) -> None:
        reply = await relabel(api, enforce="none")

        path, detail = f"metadata.labels[{PREFIX}enforce]", "must be one of privileged, baseline, restricted"
        message = f'Namespace "{api.namespace}" is invalid: {path}: Invalid value: "none": {detail}'
        assert (reply.code, reply.message) == (422, message)

    async def test_old_invalid_labels_may_stay_and_count_as_restricted(self, api: RawApi) -> None:
        assert (await relabel(api, "/status", enforce="none")).code == 200  # admission does not check subresources

        kept = await api.patch(namespace_path(api), {"metadata": {"labels": {"team": "a"}}})
        other = await relabel(api, enforce="nothing")

        async def refusal() -> Any:
            return (await api.post(api.path("pods") + DRY_RUN, pod())).body.get("message")

        expected = f'pods "p" is forbidden: {restricted("violates")}'
        assert await eventually(refusal, lambda message: message is not None) == expected
        assert (kept.code, other.code) == (200, 422)
        assert (await relabel(api, enforce=None)).code == 200

    async def test_a_stricter_level_warns_about_existing_pods(self, api: RawApi) -> None:
        for name in ("b", "a", "c"):
            await api.post(api.path("pods"), pod(name, spec=HOST_PATH))
        await api.post(api.path("pods"), pod("d", spec={"hostPID": True}))
        await api.post(api.path("pods"), pod("fine"))

        async def dry_run() -> list[str]:
            return (await relabel(api, DRY_RUN, enforce="baseline")).warnings

        head = f'existing pods in namespace "{api.namespace}" violate the new PodSecurity enforce level'
        expected = warnings(f'{head} "baseline:latest"', "a (and 2 other pods): hostPath volumes", "d: host namespaces")
        await eventually(dry_run, lambda found: found == expected)
        assert (await relabel(api, enforce="baseline")).warnings == expected
        again = await relabel(api, enforce="baseline", warn="restricted")
        relaxed = await relabel(api, enforce="privileged")
        assert (again.warnings, relaxed.warnings) == ([], [])
        version = await relabel(api, enforce="baseline", enforce_version="v1.20")
        assert version.warnings[0] == warnings(f'{head} "baseline:v1.20"')[0]

    async def test_the_same_version_at_a_lower_level_is_not_checked(self, api: RawApi) -> None:
        await api.post(api.path("pods"), pod(spec=HOST_PATH))
        await relabel(api, enforce="restricted", enforce_version="v1.30")

        reply = await relabel(api, enforce="baseline")

        assert (reply.code, reply.warnings) == (200, [])
