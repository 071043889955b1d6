"""Which endpoints follow from a Service and its pods."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.controllers.endpoints import (
    EndpointPod,
    make_endpoints,
    plan_mirrored_slices,
    plan_slices,
)
from trainwright.objects import Object


def service(**spec: Any) -> Object:
    metadata = {"name": "s", "namespace": "default", "uid": "service", "labels": {"team": "a"}}
    ports = [{"name": "web", "port": 80, "targetPort": "http", "protocol": "TCP"}]
    return {"metadata": metadata, "spec": {"clusterIP": "127.16.1.1", "ports": ports, **spec}}


def pod(
    number: int, *, ready: bool = True, terminating: bool = False, phase: str = "Running", port: int = 8080
) -> EndpointPod:
    metadata: Object = {"name": f"p{number}", "namespace": "default", "uid": f"u{number}"}
    if terminating:
        metadata["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return msgspec.convert(
        {
            "metadata": metadata,
            "spec": {"nodeName": "n", "containers": [{"ports": [{"name": "http", "containerPort": port}]}]},
            "status": {"phase": phase, "podIP": f"127.64.0.{number}", "conditions": [condition]},
        },
        EndpointPod,
    )


def addresses(endpoints: Object, field: str = "addresses") -> list[str]:
    return [one["ip"] for subset in endpoints.get("subsets", []) for one in subset.get(field, [])]


class TestEndpoints:
    def test_pods_are_ready_or_not_by_their_condition(self) -> None:
        endpoints = make_endpoints(service(), [pod(2), pod(1), pod(3, ready=False)])
        assert addresses(endpoints) == ["127.64.0.1", "127.64.0.2"]
        assert addresses(endpoints, "notReadyAddresses") == ["127.64.0.3"]
        assert endpoints["subsets"][0]["ports"] == [{"name": "web", "port": 8080, "protocol": "TCP"}]
        assert endpoints["subsets"][0]["addresses"][0] == {
            "ip": "127.64.0.1",
            "nodeName": "n",
            "targetRef": {"kind": "Pod", "namespace": "default", "name": "p1", "uid": "u1"},
        }
        assert endpoints["metadata"]["labels"] == {
            "team": "a", "endpoints.kubernetes.io/managed-by": "endpoint-controller",
        }  # fmt: skip

    def test_not_ready_addresses_are_published_on_request(self) -> None:
        published = service(publishNotReadyAddresses=True)
        assert addresses(make_endpoints(published, [pod(1, ready=False), pod(2, terminating=True)])) == [
            "127.64.0.1", "127.64.0.2",
        ]  # fmt: skip

    def test_finished_and_terminating_pods_and_those_without_address_have_none(self) -> None:
        without = msgspec.structs.replace(pod(4), status=msgspec.structs.replace(pod(4).status, pod_ip=""))
        pods = [pod(1, phase="Succeeded"), pod(2, phase="Failed"), pod(3, terminating=True), without]
        assert "subsets" not in make_endpoints(service(), pods)

    def test_pods_with_different_ports_are_different_subsets(self) -> None:
        endpoints = make_endpoints(service(), [pod(1), pod(2, port=9090), pod(3)])
        found = {subset["ports"][0]["port"]: addresses({"subsets": [subset]}) for subset in endpoints["subsets"]}
        assert found == {8080: ["127.64.0.1", "127.64.0.3"], 9090: ["127.64.0.2"]}

    def test_ports_of_the_same_pods_share_a_subset(self) -> None:
        ports = [{"name": "a", "port": 1, "targetPort": 11}, {"name": "b", "port": 2, "targetPort": "http"}]
        endpoints = make_endpoints(service(ports=ports), [pod(1), pod(2)])
        assert [[port["port"] for port in subset["ports"]] for subset in endpoints["subsets"]] == [[11, 8080]]

    def test_a_target_port_that_no_container_names_has_no_endpoints(self) -> None:
        ports = [{"port": 80, "targetPort": "other"}]
        assert "subsets" not in make_endpoints(service(ports=ports), [pod(1)])

    def test_a_headless_service_needs_no_ports(self) -> None:
        endpoints = make_endpoints(service(clusterIP="None", ports=[]), [pod(1)])
        assert addresses(endpoints) == ["127.64.0.1"]
        assert endpoints["metadata"]["labels"]["service.kubernetes.io/headless"] == ""

    def test_more_than_a_thousand_are_truncated(self) -> None:
        pods = [pod(number) for number in range(1200)]
        endpoints = make_endpoints(service(), pods)
        assert len(addresses(endpoints)) == 1000
        assert endpoints["metadata"]["annotations"] == {"endpoints.kubernetes.io/over-capacity": "truncated"}


class TestSlices:
    def test_a_service_without_pods_has_an_empty_slice(self) -> None:
        (created,) = plan_slices(service(), [], []).create
        assert (created["endpoints"], created["ports"]) == ([], [])
        assert created["metadata"]["ownerReferences"][0]["kind"] == "Service"
        assert created["metadata"]["generateName"] == "s-"
        assert created["metadata"]["labels"] == {
            "team": "a",
            "kubernetes.io/service-name": "s",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }

    def test_terminating_pods_are_shown_but_not_ready(self) -> None:
        (created,) = plan_slices(service(), [pod(1, terminating=True)], []).create
        assert created["endpoints"][0]["conditions"] == {"ready": False, "serving": True, "terminating": True}

    def test_manual_endpoints_are_mirrored(self) -> None:
        subset = {"addresses": [{"ip": "10.1.2.3"}], "notReadyAddresses": [{"ip": "10.1.2.4"}], "ports": [{"port": 1}]}
        metadata = {"name": "s", "namespace": "default", "uid": "e"}
        (created,) = plan_mirrored_slices({"metadata": metadata, "subsets": [subset]}, []).create
        assert [(one["addresses"], one["conditions"]["ready"]) for one in created["endpoints"]] == [
            (["10.1.2.3"], True), (["10.1.2.4"], False),
        ]  # fmt: skip
        assert created["ports"] == [{"name": "", "protocol": "TCP", "port": 1}]
        assert created["metadata"]["ownerReferences"][0]["kind"] == "Endpoints"
        skipped = metadata | {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}
        assert not plan_mirrored_slices({"metadata": skipped, "subsets": [subset]}, []).create


PODS = st.builds(
    pod,
    st.integers(1, 250),
    ready=st.booleans(),
    terminating=st.booleans(),
    phase=st.sampled_from(["Running", "Pending", "Failed"]),
    port=st.sampled_from([1, 2]),
)


@given(st.lists(st.lists(PODS, max_size=130, unique_by=lambda one: one.metadata.uid), max_size=4))
def test_slices_show_every_endpoint_once_and_settle(generations: list[list[EndpointPod]]) -> None:
    existing: list[Object] = []
    for pods in generations:
        existing = applied(plan_slices(service(), pods, existing), existing)
        shown = [
            (endpoint["addresses"][0], one["ports"][0]["port"], endpoint["conditions"]["ready"])
            for one in existing
            for endpoint in one["endpoints"]
        ]
        wanted = [
            (
                one.status.pod_ip,
                one.spec.containers[0].ports[0].container_port,
                one.status.ready and not one.metadata.terminating,
            )
            for one in pods
            if one.status.is_reachable
        ]
        assert sorted(shown) == sorted(wanted)
        assert all(len(one["endpoints"]) <= 100 for one in existing)
        again = plan_slices(service(), pods, existing)
        assert [*again.create, *again.update, *again.delete] == []


def port_of(one: EndpointPod) -> int:
    return one.spec.containers[0].ports[0].container_port


def applied(plan: Any, existing: list[Object]) -> list[Object]:
    """The slices after the changes."""
    by_name = {one["metadata"]["name"]: one for one in existing}
    for one in plan.delete:
        del by_name[one["metadata"]["name"]]
    for one in plan.update:
        assert one["metadata"]["name"] in by_name
        by_name[one["metadata"]["name"]] = one
    number = 0
    for one in plan.create:
        while f"s-{number}" in by_name:
            number += 1
        by_name[f"s-{number}"] = one | {"metadata": one["metadata"] | {"name": f"s-{number}"}}
    return list(by_name.values())


@given(st.lists(PODS, max_size=30, unique_by=lambda one: one.metadata.uid), st.booleans())
def test_endpoints_show_every_pod_once(pods: list[EndpointPod], publish: bool) -> None:
    endpoints = make_endpoints(service(publishNotReadyAddresses=publish), pods)
    listed = [one for one in pods if one.status.is_reachable and (publish or not one.metadata.terminating)]
    assert sorted(addresses(endpoints)) == sorted(one.status.pod_ip for one in listed if publish or one.status.ready)
    not_ready = [one.status.pod_ip for one in listed if not publish and not one.status.ready]
    assert sorted(addresses(endpoints, "notReadyAddresses")) == sorted(not_ready)
