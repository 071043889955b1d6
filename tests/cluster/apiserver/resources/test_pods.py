"""Pods: defaults, validation, status, binding, deletion.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

from typing import Any

import pytest

from tests.support.cluster.raw_api import STRATEGIC, RawApi
from tests.support.objects.manifests import bind, pod


class TestPods:
    async def test_defaults(self, api: RawApi) -> None:
        env = [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
        limits: dict[str, Any] = {"limits": {"cpu": 1, "memory": "1Gi"}}
        spec = {"volumes": [{"name": "v"}, {"name": "c", "configMap": {"name": "x"}}]}
        reply = await api.post(
            api.path("pods"), pod(spec=spec, ports=[{"containerPort": 80}], env=env, resources=limits)
        )
        assert reply.code == 201, reply.body
        spec = reply.body["spec"]
        expected = {
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30,
            "schedulerName": "default-scheduler",
            "enableServiceLinks": True,
            "serviceAccountName": "default",
        }
        assert {key: spec.get(key) for key in expected} == expected
        main = spec["containers"][0]
        assert main["imagePullPolicy"] == "Always"
        assert main["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
        assert main["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
        assert main["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
        volumes = {one["name"]: one for one in spec["volumes"]}
        assert volumes["v"] == {"name": "v", "emptyDir": {}}
        assert volumes["c"]["configMap"]["defaultMode"] == 420
        assert reply.body["status"]["phase"] == "Pending"
        assert reply.body["status"]["qosClass"] == "Guaranteed"
        assert reply.metadata["generation"] == 1

    async def test_paths_out_of_a_volume_are_rejected(self, api: RawApi) -> None:
        items = [{"key": "k", "path": path} for path in ("../../x", "/x", "..x")]
        volumes = [
            {"name": "e", "emptyDir": {}},
            {"name": "h", "hostPath": {"path": "/a/../b"}},
            {"name": "c", "configMap": {"name": "x", "items": [*items, {"key": "", "path": ""}]}},
            {"name": "s", "secret": {"secretName": "x", "items": [{"key": "k", "path": "a/../x"}]}},
            {"name": "t", "hostPath": {"path": "/x", "type": "Bogus"}},
        ]
        mounts = [
            {"name": "e", "mountPath": "/a", "subPath": "../x"},
            {"name": "e", "mountPath": "/b", "subPath": "/x"},
            {"name": "e", "mountPath": "/c", "subPathExpr": "../x"},
            {"name": "e", "mountPath": "/d", "subPathExpr": "a", "subPath": "b"},
        ]
        reply = await api.post(api.path("pods"), pod(spec={"volumes": volumes}, volumeMounts=mounts))
        backstep, absolute = "must not contain '..'", "must be a relative path"
        types = '"", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"'
        assert [(cause["field"], cause["message"]) for cause in reply.body["details"]["causes"]] == [
            ("spec.volumes[1].hostPath.path", f'Invalid value: "/a/../b": {backstep}'),
            ("spec.volumes[2].configMap.items[0].path", f'Invalid value: "../../x": {backstep}'),
            ("spec.volumes[2].configMap.items[1].path", f'Invalid value: "/x": {absolute}'),
            ("spec.volumes[2].configMap.items[2].path", "Invalid value: \"..x\": must not start with '..'"),
            ("spec.volumes[2].configMap.items[3].key", "Required value"),
            ("spec.volumes[2].configMap.items[3].path", "Required value"),
            ("spec.volumes[3].secret.items[0].path", f'Invalid value: "a/../x": {backstep}'),
            ("spec.volumes[4].hostPath.type", f'Unsupported value: "Bogus": supported values: {types}'),
            ("spec.containers[0].volumeMounts.subPath", f'Invalid value: "../x": {backstep}'),
            ("spec.containers[0].volumeMounts.subPath", f'Invalid value: "/x": {absolute}'),
            ("spec.containers[0].volumeMounts.subPathExpr", f'Invalid value: "../x": {backstep}'),
            (
                "spec.containers[0].volumeMounts[3].subPathExpr",
                'Invalid value: "a": subPathExpr and subPath are mutually exclusive',
            ),
        ]

    @pytest.mark.parametrize("kind", ["requests", "limits"])
    async def test_amounts_are_never_negative(self, api: RawApi, kind: str) -> None:
        """They would give a namespace more than its quota."""
        resources = {kind: {"memory": "-10Gi"}}
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}
        reply = await api.post(api.path("pods"), pod)
        assert reply.code == 422
        where = f"spec.containers[0].resources.{kind}[memory]"
        assert f'{where}: Invalid value: "-10Gi": must be greater than or equal to 0' in reply.message
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "-1Gi"}}}
        reply = await api.post(api.path("persistentvolumeclaims"), {"metadata": {"name": "c"}, "spec": claim})
        assert reply.code == 422
        assert 'spec.resources[storage]: Invalid value: "-1Gi": must be greater than zero' in reply.message

    async def test_grace_period_is_never_negative(self, api: RawApi) -> None:
        reply = await api.post(api.path("pods"), pod(spec={"terminationGracePeriodSeconds": -5}))
        assert reply.body["spec"]["terminationGracePeriodSeconds"] == 1

    async def test_invalid_fields_are_reported_one_by_one(self, api: RawApi) -> None:
        empty = await api.post(api.path("pods"), {"metadata": {"name": "p"}, "spec": {}})
        assert (empty.code, empty.message) == (422, 'Pod "p" is invalid: spec.containers: Required value')
        containers = [
            {"image": "a"},
            {"name": "UPPER", "image": ""},
            {
                "name": "x",
                "image": "a",
                "imagePullPolicy": "foo",
                "volumeMounts": [{"name": "v", "mountPath": "/a"}],
                "ports": [{"containerPort": 0}, {"containerPort": 99999, "protocol": "XX"}],
                "env": [{"value": "a"}, {"name": "a=b"}],
                "resources": {"limits": {"cpu": 1}, "requests": {"cpu": 2}},
            },
        ]
        reply = await api.post(api.path("pods"), pod(spec={"containers": containers, "restartPolicy": "foo"}))
        assert reply.code == 422
        found = {cause["field"]: (cause["reason"], cause["message"]) for cause in reply.body["details"]["causes"]}
        unsupported = "FieldValueNotSupported"
        assert found["spec.containers[0].name"] == ("FieldValueRequired", "Required value")
        assert found["spec.containers[1].name"][1].startswith('Invalid value: "UPPER": a lowercase RFC 1123 label')
        assert found["spec.containers[1].image"] == ("FieldValueRequired", "Required value")
        x = "spec.containers[2]"
        assert found[f"{x}.volumeMounts[0].name"] == ("FieldValueNotFound", 'Not found: "v"')
        assert found[f"{x}.ports[0].containerPort"] == ("FieldValueRequired", "Required value")
        assert found[f"{x}.ports[1].containerPort"][1] == "Invalid value: 99999: must be between 1 and 65535, inclusive"
        assert found[f"{x}.ports[1].protocol"] == (
            unsupported, 'Unsupported value: "XX": supported values: "SCTP", "TCP", "UDP"',
        )  # fmt: skip
        assert found[f"{x}.env[0].name"] == ("FieldValueRequired", "Required value")
        assert found[f"{x}.env[1].name"][1].startswith('Invalid value: "a=b": a valid environment variable name must')
        assert found[f"{x}.resources.requests"][1] == 'Invalid value: "2": must be less than or equal to cpu limit of 1'
        assert found[f"{x}.imagePullPolicy"][0] == unsupported
        assert found["spec.restartPolicy"] == (
            unsupported, 'Unsupported value: "foo": supported values: "Always", "OnFailure", "Never"',
        )  # fmt: skip

    async def test_probes_and_hooks_have_defaults(self, api: RawApi) -> None:
        fields: dict[str, Any] = {
            "readinessProbe": {"httpGet": {"port": 80}},
            "livenessProbe": {"grpc": {"port": 80}, "periodSeconds": 0},
            "lifecycle": {"preStop": {"httpGet": {"port": "web", "scheme": "HTTPS"}}},
        }
        (main,) = (await api.post(api.path("pods"), pod(**fields))).body["spec"]["containers"]
        times = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
        assert main["readinessProbe"] == {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, **times}
        assert main["livenessProbe"] == {"grpc": {"port": 80, "service": ""}, **times}
        assert main["lifecycle"] == {"preStop": {"httpGet": {"port": "web", "path": "/", "scheme": "HTTPS"}}}

    async def test_invalid_probes_and_hooks_are_refused(self, api: RawApi) -> None:
        fields: dict[str, Any] = {
            "readinessProbe": {"tcpSocket": {"port": 0}, "terminationGracePeriodSeconds": 5},
            "livenessProbe": {"exec": {}, "successThreshold": 2, "timeoutSeconds": -1},
            "startupProbe": {"httpGet": {"port": 80, "scheme": "FTP"}, "exec": {"command": ["true"]}},
            "lifecycle": {"postStart": {}, "preStop": {"sleep": {"seconds": 31}}},
        }
        setup = {"name": "setup", "image": "a", "startupProbe": {"tcpSocket": {"port": 80}}}
        reply = await api.post(api.path("pods"), pod(spec={"initContainers": [setup]}, **fields))
        assert reply.code == 422
        found = [(cause["field"], cause["message"]) for cause in reply.body["details"]["causes"]]
        main = "spec.containers[0]"
        without = "Forbidden: may not be set for init containers without restartPolicy=Always"
        sleep = "Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)"
        assert sorted(found) == sorted(
            [
                ("spec.initContainers[0].startupProbe", without),
                (f"{main}.lifecycle.postStart", "Required value: must specify a handler type"),
                (f"{main}.lifecycle.preStop.sleep", sleep),
                (f"{main}.livenessProbe.exec.command", "Required value"),
                (f"{main}.livenessProbe.timeoutSeconds", "Invalid value: -1: must be greater than or equal to 0"),
                (f"{main}.livenessProbe.successThreshold", "Invalid value: 2: must be 1"),
                (f"{main}.readinessProbe.tcpSocket.port", "Invalid value: 0: must be between 1 and 65535, inclusive"),
                (
                    f"{main}.readinessProbe.terminationGracePeriodSeconds",
                    "Invalid value: 5: must not be set for readinessProbes",
                ),
                (f"{main}.startupProbe.httpGet", "Forbidden: may not specify more than 1 handler type"),
            ]
        )

    async def test_names_are_unique(self, api: RawApi) -> None:
        twice = [{"name": "x", "image": "a"}, {"name": "x", "image": "b"}]
        reply = await api.post(api.path("pods"), pod(spec={"containers": twice}))
        assert (reply.code, reply.message) == (
            422, 'Pod "p" is invalid: spec.containers[1].name: Duplicate value: "x"',
        )  # fmt: skip

    async def test_spec_is_immutable_except_for_images(self, api: RawApi) -> None:
        created = (await api.post(api.path("pods"), pod())).body
        refused = await api.patch(api.path("pods", "p"), {"spec": {"nodeName": "n"}})
        assert refused.code == 422
        assert refused.message.startswith(
            'Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other'
        )
        created["spec"]["containers"][0]["image"] = "other"
        changed = await api.put(api.path("pods", "p"), created)
        assert (changed.code, changed.metadata["generation"]) == (200, 2)

    async def test_status_and_spec_are_separate_endpoints(self, api: RawApi) -> None:
        created = (await api.post(api.path("pods"), pod() | {"status": {"phase": "Running"}})).body
        assert created["status"]["phase"] == "Pending"
        ignored = await api.patch(api.path("pods", "p"), {"status": {"phase": "Failed"}})
        assert ignored.body["status"]["phase"] == "Pending"
        status = {"phase": "Running", "podIP": "127.64.0.1", "podIPs": [{"ip": "127.64.0.1"}]}
        body = {"status": status, "spec": {"nodeName": "x"}, "metadata": {"labels": {"seen": "yes"}}}
        reply = await api.patch(api.path("pods", "p", "status"), body, STRATEGIC)
        assert reply.code == 200, reply.body
        assert reply.body["status"]["phase"] == "Running"
        assert "nodeName" not in reply.body["spec"]
        assert reply.metadata["generation"] == 1

    async def test_pod_is_bound_once(self, api: RawApi) -> None:
        await api.post(api.path("pods"), pod())
        stale = {"metadata": {"name": "p", "uid": "of-another"}, "target": {"kind": "Node", "name": "n1"}}
        assert (await api.post(api.path("pods", "p", "binding"), stale)).code == 409
        bound = await bind(api)
        assert (bound.code, bound.body["status"]) == (201, "Success")
        reply = (await api.get(api.path("pods", "p"))).body
        assert reply["spec"]["nodeName"] == "n1"
        assert [(c["type"], c["status"]) for c in reply["status"]["conditions"]] == [("PodScheduled", "True")]
        again = await bind(api, node="n2")
        assert (again.code, again.message) == (
            409, 'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"',
        )  # fmt: skip

    async def test_pod_with_scheduling_gates_is_not_bound(self, api: RawApi) -> None:
        await api.post(api.path("pods"), pod(spec={"schedulingGates": [{"name": "example.com/quota"}]}))
        refused = await bind(api)
        assert (refused.code, refused.message) == (
            409, 'Operation cannot be fulfilled on pods/binding "p": pod p has non-empty .spec.schedulingGates',
        )  # fmt: skip

    async def test_unbound_pod_is_removed_at_once(self, api: RawApi) -> None:
        await api.post(api.path("pods"), pod())
        reply = await api.delete(api.path("pods", "p"))
        assert (reply.code, reply.body["kind"]) == (200, "Pod")
        assert (await api.get(api.path("pods", "p"))).code == 404

    async def test_bound_pod_waits_for_the_kubelet(self, api: RawApi) -> None:
        await api.post(api.path("pods"), pod())
        await bind(api)
        first = await api.delete(api.path("pods", "p"))
        assert first.metadata["deletionGracePeriodSeconds"] == 30
        assert (await api.delete(api.path("pods", "p"))).metadata["resourceVersion"] == first.metadata[
            "resourceVersion"
        ]
        shorter = await api.delete(api.path("pods", "p"), {"gracePeriodSeconds": 5})
        assert shorter.metadata["deletionGracePeriodSeconds"] == 5
        assert shorter.metadata["deletionTimestamp"] < first.metadata["deletionTimestamp"]
        assert (await api.get(api.path("pods", "p"))).code == 200
        await api.delete(api.path("pods", "p"), {"gracePeriodSeconds": 0})
        assert (await api.get(api.path("pods", "p"))).code == 404

    async def test_finished_pod_is_removed_at_once(self, api: RawApi) -> None:
        await api.post(api.path("pods"), pod())
        await bind(api)
        await api.patch(api.path("pods", "p", "status"), {"status": {"phase": "Succeeded"}})
        await api.delete(api.path("pods", "p"))
        assert (await api.get(api.path("pods", "p"))).code == 404

    async def test_eviction_deletes_the_pod(self, api: RawApi) -> None:
        await api.post(api.path("pods"), pod())
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        reply = await api.post(api.path("pods", "p", "eviction"), body)
        assert (reply.code, reply.body["status"]) == (201, "Success")
        assert (await api.get(api.path("pods", "p"))).code == 404

    async def test_log_needs_a_known_container(self, api: RawApi) -> None:
        spec = {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]}
        await api.post(api.path("pods"), pod(spec=spec))
        several = await api.get(api.path("pods", "p", "log"))
        assert (several.code, several.message) == (
            400, "a container name must be specified for pod p, choose one of: [a b]",
        )  # fmt: skip
        unknown = await api.get(f"{api.path('pods', 'p', 'log')}?container=c")
        assert (unknown.code, unknown.message) == (400, "container c is not valid for pod p")
