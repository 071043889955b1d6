"""Create, update and delete of any object, and the checks of single kinds.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

from tests.support.cluster.raw_api import RawApi
from tests.support.objects.manifests import config_map, pod
from tests.support.objects.widgets import definition, install, widget


class TestObjects:
    async def test_server_sets_system_fields(self, api: RawApi) -> None:
        reply = await api.post(api.path("configmaps"), config_map(data={"a": "b"}, labels={"x": "y"}))
        assert reply.code == 201
        assert reply.body["data"] == {"a": "b"}
        assert reply.metadata["namespace"] == api.namespace
        assert reply.metadata["labels"] == {"x": "y"}
        assert {"uid", "resourceVersion", "creationTimestamp", "managedFields"} <= reply.metadata.keys()
        assert (await api.get(api.path("configmaps", "c"))).body == reply.body

    async def test_second_object_of_a_name_already_exists(self, api: RawApi) -> None:
        await api.post(api.path("configmaps"), config_map())
        reply = await api.post(api.path("configmaps"), config_map())
        assert reply.body == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": 'configmaps "c" already exists',
            "reason": "AlreadyExists",
            "details": {"name": "c", "kind": "configmaps"},
            "code": 409,
        }

    async def test_generated_name_has_its_prefix(self, api: RawApi) -> None:
        body = {"metadata": {"generateName": "made-"}}
        first, second = [await api.post(api.path("configmaps"), body) for _ in range(2)]
        assert first.metadata["name"].startswith("made-")
        assert len(first.metadata["name"]) == len("made-") + 5
        assert first.metadata["name"] != second.metadata["name"]

    async def test_missing_object_is_not_found(self, api: RawApi) -> None:
        for method in ("GET", "DELETE"):
            reply = await api.send(method, api.path("pods", "x"))
            assert (reply.code, reply.message) == (404, 'pods "x" not found')
            assert reply.body["details"] == {"name": "x", "kind": "pods"}

    async def test_missing_namespace_is_not_found(self, api: RawApi) -> None:
        reply = await api.post("/api/v1/namespaces/nowhere/configmaps", config_map())
        assert (reply.code, reply.message) == (404, 'namespaces "nowhere" not found')

    async def test_unknown_resource_is_not_found(self, api: RawApi) -> None:
        reply = await api.get("/api/v1/nothings")
        assert (reply.code, reply.message) == (404, "the server could not find the requested resource")
        unknown_group = await api.get("/apis/nowhere.example/v1/things")
        assert (unknown_group.code, unknown_group.body) == (404, "404 page not found\n")

    async def test_unsupported_method_is_not_allowed(self, api: RawApi) -> None:
        reply = await api.put(api.path("configmaps"), config_map())
        assert reply.code == 405
        assert reply.message == "the server does not allow this method on the requested resource"

    async def test_body_must_match_the_path(self, api: RawApi) -> None:
        other_namespace = await api.post(api.path("configmaps"), config_map(namespace="elsewhere"))
        assert other_namespace.code == 400
        assert other_namespace.message == (
            "the namespace of the provided object does not match the namespace sent on the request"
        )
        await api.post(api.path("configmaps"), config_map())
        other_name = await api.put(api.path("configmaps", "c"), config_map("d"))
        assert other_name.message == "the name of the object (d) does not match the name on the URL (c)"
        other_kind = await api.post(api.path("configmaps"), config_map("e") | {"kind": "Secret"})
        assert other_kind.code == 400
        assert other_kind.message.startswith('Secret in version "v1" cannot be handled as a ConfigMap: ')

    async def test_invalid_bodies_are_rejected(self, api: RawApi) -> None:
        broken = await api.post(api.path("configmaps"), b"{bad")
        assert (broken.code, broken.body["reason"]) == (400, "BadRequest")
        assert broken.message.startswith("the object provided is unrecognized (must be of type ConfigMap): ")
        listed = await api.post(api.path("configmaps"), [])
        assert listed.code == 400
        unknown = await api.send("POST", api.path("configmaps"), b"x", content_type="application/x-unknown")
        assert unknown.code == 415
        assert unknown.message.startswith("the body of the request was in an unknown format - accepted media types")

    async def test_yaml_bodies_are_decoded(self, api: RawApi) -> None:
        text = b"metadata:\n  name: written-in-yaml\ndata: {a: b}\n"
        reply = await api.send("POST", api.path("configmaps"), text, content_type="application/yaml")
        assert (reply.code, reply.body["data"]) == (201, {"a": "b"})

    async def test_large_body_is_rejected(self, api: RawApi) -> None:
        reply = await api.post(api.path("configmaps"), config_map(data={"a": "x" * (3 * 1024 * 1024 + 1)}))
        assert (reply.code, reply.body["reason"]) == (413, "RequestEntityTooLarge")

    async def test_names_are_validated_by_kind(self, api: RawApi) -> None:
        subdomain = await api.post(api.path("configmaps"), config_map("Bad_Name"))
        assert (subdomain.code, subdomain.body["reason"]) == (422, "Invalid")
        assert subdomain.message.startswith(
            'ConfigMap "Bad_Name" is invalid: metadata.name: Invalid value: "Bad_Name": a lowercase RFC 1123 subdomain'
        )
        assert subdomain.body["details"]["causes"][0]["field"] == "metadata.name"
        label = await api.post("/api/v1/namespaces", {"metadata": {"name": "A"}})
        assert "a lowercase RFC 1123 label must consist of" in label.message
        nameless = await api.post(api.path("configmaps"), {"metadata": {}})
        assert "metadata.name: Required value: name or generateName is required" in nameless.message

    async def test_labels_are_validated(self, api: RawApi) -> None:
        reply = await api.post(api.path("configmaps"), config_map(labels={"a b": "c d"}))
        assert reply.code == 422
        assert [cause["field"] for cause in reply.body["details"]["causes"]] == ["metadata.labels", "metadata.labels"]
        assert 'Invalid value: "a b": name part must consist of' in reply.message
        assert 'Invalid value: "c d": a valid label must be' in reply.message

    async def test_dry_run_stores_nothing(self, api: RawApi) -> None:
        reply = await api.post(f"{api.path('configmaps')}?dryRun=All", config_map())
        assert reply.code == 201
        assert (await api.get(api.path("configmaps", "c"))).code == 404
        unsupported = await api.post(f"{api.path('configmaps')}?dryRun=Some", config_map())
        assert unsupported.message == (
            'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All"'
        )


class TestUpdates:
    async def test_stale_resource_version_conflicts(self, api: RawApi) -> None:
        first = (await api.post(api.path("configmaps"), config_map(data={"a": "1"}))).body
        second = await api.put(api.path("configmaps", "c"), first | {"data": {"a": "2"}})
        assert second.code == 200
        assert int(second.metadata["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
        stale = await api.put(api.path("configmaps", "c"), first | {"data": {"a": "3"}})
        assert (stale.code, stale.body["reason"]) == (409, "Conflict")
        assert stale.message == (
            'Operation cannot be fulfilled on configmaps "c": the object has been modified; '
            "please apply your changes to the latest version and try again"
        )
        assert (await api.get(api.path("configmaps", "c"))).body["data"] == {"a": "2"}

    async def test_update_without_a_resource_version_is_unconditional(self, api: RawApi) -> None:
        await api.post(api.path("configmaps"), config_map(data={"a": "1"}))
        reply = await api.put(api.path("configmaps", "c"), config_map(data={"a": "2"}))
        assert (reply.code, reply.body["data"]) == (200, {"a": "2"})

    async def test_update_without_changes_keeps_the_resource_version(self, api: RawApi) -> None:
        first = await api.post(api.path("configmaps"), config_map(data={"a": "1"}))
        again = await api.put(api.path("configmaps", "c"), first.body)
        patched = await api.patch(api.path("configmaps", "c"), {"data": {"a": "1"}})
        assert again.metadata["resourceVersion"] == first.metadata["resourceVersion"]
        assert patched.metadata["resourceVersion"] == first.metadata["resourceVersion"]

    async def test_clients_cannot_change_system_fields(self, api: RawApi) -> None:
        first = (await api.post(api.path("configmaps"), config_map())).metadata
        patch = {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "labels": {"a": "b"}}}
        reply = await api.patch(api.path("configmaps", "c"), patch)
        assert reply.metadata["creationTimestamp"] == first["creationTimestamp"]
        other_uid = await api.put(api.path("configmaps", "c"), config_map(uid="11111111-1111-4111-8111-111111111111"))
        assert other_uid.code == 409
        assert "Precondition failed: UID in precondition: 11111111-1111-4111-8111-111111111111" in other_uid.message

    async def test_status_of_a_pod_is_written_with_its_labels_alone(self, api: RawApi) -> None:
        body = pod()
        body["metadata"]["labels"] = {"a": "1"}
        created = await api.post(api.path("pods"), body)
        sent = pod(image="other")
        sent["metadata"]["labels"] = {"b": "2"}
        for status in ({}, {"status": {"phase": "Running"}}):
            reply = await api.put(api.path("pods", "p", "status"), sent | status)
            assert (reply.code, reply.body["spec"]) == (200, created.body["spec"])
            assert (reply.metadata["labels"], reply.metadata["uid"]) == ({"b": "2"}, created.metadata["uid"])
        assert reply.body["status"]["phase"] == "Running"


class TestDeletion:
    async def test_delete_returns_the_removed_objects_uid(self, api: RawApi) -> None:
        uid = (await api.post(api.path("configmaps"), config_map())).metadata["uid"]
        reply = await api.delete(api.path("configmaps", "c"))
        assert reply.body == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {"name": "c", "kind": "configmaps", "uid": uid},
        }

    async def test_preconditions(self, api: RawApi) -> None:
        created = (await api.post(api.path("configmaps"), config_map())).metadata
        other = await api.delete(api.path("configmaps", "c"), {"preconditions": {"uid": "abc"}})
        assert other.code == 409
        assert other.message == (
            'Operation cannot be fulfilled on ConfigMap "c": the UID in the precondition (abc) does not match the UID '
            f"in record ({created['uid']}). The object might have been deleted and then recreated"
        )
        stale = await api.delete(api.path("configmaps", "c"), {"preconditions": {"resourceVersion": "1"}})
        assert stale.code == 409
        assert "The object might have been modified" in stale.message
        right = {"preconditions": {"uid": created["uid"], "resourceVersion": created["resourceVersion"]}}
        assert (await api.delete(api.path("configmaps", "c"), right)).code == 200

    async def test_finalizers_block_removal(self, api: RawApi) -> None:
        await api.post(api.path("configmaps"), config_map(finalizers=["example.com/hold"]))
        deleted = await api.delete(api.path("configmaps", "c"))
        assert deleted.metadata["finalizers"] == ["example.com/hold"]
        assert "deletionTimestamp" in deleted.metadata
        more = await api.patch(
            api.path("configmaps", "c"), {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
        )
        assert more.message == (
            'ConfigMap "c" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is '
            'being deleted, found new finalizers []string{"example.com/more"}'
        )
        released = await api.patch(api.path("configmaps", "c"), {"metadata": {"finalizers": None}})
        assert released.code == 200
        assert (await api.get(api.path("configmaps", "c"))).code == 404

    async def test_propagation_policy_becomes_a_finalizer(self, api: RawApi) -> None:
        path = await install(api, definition())
        hold = {"metadata": {"finalizers": ["example.com/hold"]}}
        for policy, finalizer in (("Orphan", "orphan"), ("Foreground", "foregroundDeletion")):
            name = policy.lower()
            await api.post(path, widget(name))
            # With another finalizer, because the real garbage collector would remove the object before the assertions.
            await api.patch(f"{path}/{name}", hold)
            reply = await api.delete(f"{path}/{name}", {"propagationPolicy": policy})
            assert reply.metadata["finalizers"] == ["example.com/hold", finalizer]
            assert reply.metadata["generation"] == 2
            await api.patch(f"{path}/{name}", {"metadata": {"finalizers": None}})
        wrong = await api.delete(f"{path}/x", {"propagationPolicy": "Sideways"})
        assert wrong.code == 422
        assert wrong.message == (
            'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Sideways": '
            'supported values: "Foreground", "Background", "Orphan", "nil"'
        )

    async def test_delete_collection_by_selector(self, api: RawApi) -> None:
        for name, label in (("a", "x"), ("b", "x"), ("d", "y")):
            await api.post(api.path("configmaps"), config_map(name, labels={"l": label}))
        reply = await api.delete(f"{api.path('configmaps')}?labelSelector=l%3Dx")
        assert reply.code == 200
        left = (await api.get(f"{api.path('configmaps')}?labelSelector=l")).body["items"]
        assert [item["metadata"]["name"] for item in left] == ["d"]


class TestOtherKinds:
    async def test_services(self, api: RawApi) -> None:
        body = {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": [{"port": 80, "name": "a"}]}}
        reply = await api.post(api.path("services"), body)
        spec = reply.body["spec"]
        assert spec["ports"] == [{"name": "a", "protocol": "TCP", "port": 80, "targetPort": 80}]
        assert (spec["type"], spec["clusterIP"], spec["clusterIPs"]) == ("ClusterIP", "None", ["None"])
        bad = await api.post(api.path("services"), {"metadata": {"name": "S"}, "spec": {}})
        assert [cause["field"] for cause in bad.body["details"]["causes"]] == ["metadata.name", "spec.ports"]
        unnamed = {"metadata": {"name": "t"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}, {"port": 2}]}}
        reply = await api.post(api.path("services"), unnamed)
        assert reply.message == (
            'Service "t" is invalid: [spec.ports[0].name: Required value, spec.ports[1].name: Required value]'
        )

    async def test_secrets(self, api: RawApi) -> None:
        reply = await api.post(api.path("secrets"), {"metadata": {"name": "s"}, "stringData": {"a": "x"}})
        assert (reply.body["data"], reply.body["type"]) == ({"a": "eA=="}, "Opaque")
        assert "stringData" not in reply.body
        changed = await api.patch(api.path("secrets", "s"), {"type": "other"})
        assert changed.message == 'Secret "s" is invalid: type: Invalid value: "other": field is immutable'
        bad = await api.post(api.path("secrets"), {"metadata": {"name": "t"}, "data": {"a": "???"}})
        assert bad.code == 400
        assert "illegal base64 data" in bad.message

    async def test_config_maps(self, api: RawApi) -> None:
        reply = await api.post(api.path("configmaps"), config_map(data={"a b": "c"}))
        assert reply.message.startswith('ConfigMap "c" is invalid: data[a b]: Invalid value: "a b": a valid config key')
        for key, problem in ((".", "must not be '.'"), ("..", "must not be '..'"), ("..x", "must not start with '..'")):
            reply = await api.post(api.path("configmaps"), config_map(data={key: "c"}))
            assert reply.message == f'ConfigMap "c" is invalid: data[{key}]: Invalid value: "{key}": {problem}'
        await api.post(api.path("configmaps"), config_map(data={"a": "1"}) | {"immutable": True})
        fixed = await api.patch(api.path("configmaps", "c"), {"data": {"a": "2"}})
        assert fixed.message == (
            'ConfigMap "c" is invalid: data: Forbidden: field is immutable when `immutable` is set'
        )

    async def test_persistent_volume_claims(self, api: RawApi) -> None:
        bad = await api.post(api.path("persistentvolumeclaims"), {"metadata": {"name": "c"}, "spec": {}})
        assert bad.message == (
            'PersistentVolumeClaim "c" is invalid: [spec.accessModes: Required value: at least 1 access mode is '
            "required, spec.resources[storage]: Required value]"
        )
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        reply = await api.post(api.path("persistentvolumeclaims"), {"metadata": {"name": "c"}, "spec": spec})
        assert (reply.body["spec"]["volumeMode"], reply.body["status"]["phase"]) == ("Filesystem", "Pending")
        changed = await api.patch(api.path("persistentvolumeclaims", "c"), {"spec": {"accessModes": ["ReadWriteMany"]}})
        assert changed.message.startswith('PersistentVolumeClaim "c" is invalid: spec: Forbidden: spec is immutable')

    async def test_event_must_be_in_the_namespace_of_its_object(self, api: RawApi) -> None:
        event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "elsewhere"}, "reason": "R"}
        reply = await api.post(api.path("events"), event)
        assert reply.message == (
            'Event "e" is invalid: involvedObject.namespace: Invalid value: "elsewhere": does not match event.namespace'
        )

    async def test_namespace_terminates_by_its_finalizers(self, api: RawApi) -> None:
        name = f"{api.namespace}-ending"
        created = await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        assert created.body["spec"] == {"finalizers": ["kubernetes"]}
        assert created.body["status"] == {"phase": "Active"}
        assert created.metadata["labels"] == {"kubernetes.io/metadata.name": name}
        deleted = await api.delete(f"/api/v1/namespaces/{name}")
        assert deleted.body["status"]["phase"] == "Terminating"
        refused = await api.post(f"/api/v1/namespaces/{name}/configmaps", config_map())
        # The real namespace controller may have removed it already.
        assert refused.code in {403, 404}
        if refused.code == 403:
            assert refused.message == (
                f'configmaps "c" is forbidden: unable to create new content in namespace {name} '
                "because it is being terminated"
            )
        protected = await api.delete("/api/v1/namespaces/default")
        assert (protected.code, protected.message) == (
            403, 'namespaces "default" is forbidden: this namespace may not be deleted',
        )  # fmt: skip
