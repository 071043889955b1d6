"""Services, Endpoints and EndpointSlices: defaults, addresses, node ports, refusals.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

import ipaddress
from typing import Any

import pytest

from tests.support.cluster.raw_api import TABLE, RawApi
from trainwright.objects import Object

SLICES = "/apis/discovery.k8s.io/v1"


def service(name: str = "s", *, ports: list[Object] | None = None, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"ports": ports or [{"port": 80}], **spec}}


async def created(api: RawApi, obj: Object) -> Object:
    reply = await api.post(api.path("services"), obj)
    assert reply.code == 201, reply.message
    return dict(reply.body["spec"])


async def refused(api: RawApi, obj: Object) -> str:
    reply = await api.post(api.path("services"), obj)
    assert (reply.code, reply.body["reason"]) == (422, "Invalid")
    return reply.message.removeprefix(f'Service "{obj["metadata"]["name"]}" is invalid: ')


class TestAddresses:
    async def test_a_service_gets_an_address_and_defaults(self, api: RawApi) -> None:
        reply = await api.post(api.path("services"), service(selector={"a": "b"}))
        spec = reply.body["spec"]
        address = spec["clusterIP"]
        assert ipaddress.ip_address(address).version == 4
        assert spec == {
            "clusterIP": address,
            "clusterIPs": [address],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            "selector": {"a": "b"},
            "sessionAffinity": "None",
            "type": "ClusterIP",
        }
        assert reply.body["status"] == {"loadBalancer": {}}
        owned = reply.metadata["managedFields"][0]["fieldsV1"]["f:spec"]
        assert owned.keys() == {"f:internalTrafficPolicy", "f:ports", "f:selector", "f:sessionAffinity", "f:type"}

    async def test_addresses_differ(self, api: RawApi) -> None:
        addresses = {(await created(api, service(f"s{number}")))["clusterIP"] for number in range(5)}
        assert len(addresses) == 5

    async def test_a_headless_service_has_none(self, api: RawApi) -> None:
        spec = await created(api, service(clusterIP="None", selector={"a": "b"}))
        assert (spec["clusterIP"], spec["clusterIPs"]) == ("None", ["None"])
        assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
        without_selector = await created(api, {"metadata": {"name": "t"}, "spec": {"clusterIP": "None"}})
        assert without_selector["ipFamilies"] == ["IPv4", "IPv6"]
        assert without_selector["ipFamilyPolicy"] == "RequireDualStack"

    async def test_an_address_can_be_requested_once(self, api: RawApi) -> None:
        address = (await created(api, service()))["clusterIP"]
        taken = await refused(api, service("t", clusterIP=address))
        problem = f"failed to allocate IP {address}: provided IP is already allocated"
        assert taken == f'spec.clusterIPs: Invalid value: ["{address}"]: {problem}'

        assert (await api.delete(api.path("services", "s"))).code == 200
        assert (await created(api, service("t", clusterIP=address)))["clusterIP"] == address

    async def test_an_address_of_another_network_is_refused(self, api: RawApi) -> None:
        problem = "failed to allocate IP 192.0.2.1: the provided network does not match the current range"
        assert await refused(api, service(clusterIP="192.0.2.1")) == (
            f'spec.clusterIPs: Invalid value: ["192.0.2.1"]: {problem}'
        )

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            (
                {"clusterIP": "x"},
                'spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
            ),
            (
                {"clusterIPs": ["10.0.0.5"]},
                'spec.clusterIPs: Invalid value: ["10.0.0.5"]: must be empty when `clusterIP` is not specified',
            ),
            (
                {"clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.6"]},
                'spec.clusterIPs: Invalid value: ["10.0.0.6"]: first value must match `clusterIP`',
            ),
            (
                {"ipFamilyPolicy": "RequireDualStack"},
                (
                    'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": '
                    "this cluster is not configured for dual-stack services"
                ),
            ),
            ({"ipFamilies": ["IPv6"]}, 'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster'),
            (
                {"ipFamilies": ["IPv5"]},
                'spec.ipFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"',
            ),
            (
                {"ipFamilyPolicy": "Any"},
                (
                    'spec.ipFamilyPolicy: Unsupported value: "Any": '
                    'supported values: "PreferDualStack", "RequireDualStack", "SingleStack"'
                ),
            ),
        ],
    )
    async def test_wrong_addresses_are_refused(self, api: RawApi, spec: Object, message: str) -> None:
        assert await refused(api, service(**spec)) == message

    async def test_dry_run_shows_an_address(self, api: RawApi) -> None:
        reply = await api.post(f"{api.path('services')}?dryRun=All", service())
        assert ipaddress.ip_address(reply.body["spec"]["clusterIP"]).version == 4
        assert (await api.get(api.path("services", "s"))).code == 404


class TestUpdates:
    async def test_a_manifest_without_the_address_keeps_it(self, api: RawApi) -> None:
        before = (await api.post(api.path("services"), service())).body
        changed = await api.put(api.path("services", "s"), service(selector={"a": "b"}))
        assert changed.code == 200
        assert changed.body["spec"] == before["spec"] | {"selector": {"a": "b"}}

    async def test_the_address_may_not_change(self, api: RawApi) -> None:
        await created(api, service())
        address = (await created(api, service("t")))["clusterIP"]
        await api.delete(api.path("services", "t"))
        reply = await api.patch(api.path("services", "s"), {"spec": {"clusterIP": address}})
        assert reply.message == (
            f'Service "s" is invalid: spec.clusterIPs[0]: Invalid value: ["{address}"]: may not change once set'
        )

    async def test_an_external_name_gives_the_address_back(self, api: RawApi) -> None:
        address = (await created(api, service()))["clusterIP"]
        change = {"spec": {"type": "ExternalName", "externalName": "example.com"}}
        spec = (await api.patch(api.path("services", "s"), change)).body["spec"]
        assert not spec.keys() & {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"}
        assert (await created(api, service("t", clusterIP=address)))["clusterIP"] == address

        back = await api.patch(api.path("services", "s"), {"spec": {"type": "ClusterIP", "externalName": None}})
        assert ipaddress.ip_address(back.body["spec"]["clusterIP"]).version == 4

    async def test_a_deleted_service_takes_its_endpoints_along(self, api: RawApi) -> None:
        await created(api, service())
        subsets = [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]
        assert (await api.post(api.path("endpoints"), {"metadata": {"name": "s"}, "subsets": subsets})).code == 201
        await api.delete(api.path("services", "s"))
        assert (await api.get(api.path("endpoints", "s"))).code == 404


class TestNodePorts:
    async def test_a_node_port_is_chosen_from_the_range(self, api: RawApi) -> None:
        spec = await created(api, service(type="NodePort"))
        assert 30000 <= spec["ports"][0]["nodePort"] <= 32767
        assert spec["externalTrafficPolicy"] == "Cluster"

    async def test_tcp_and_udp_of_a_port_share_their_node_port(self, api: RawApi) -> None:
        ports = [{"name": "a", "port": 53}, {"name": "b", "port": 53, "protocol": "UDP"}, {"name": "c", "port": 54}]
        numbers = [port["nodePort"] for port in (await created(api, service(type="NodePort", ports=ports)))["ports"]]
        assert numbers[0] == numbers[1] != numbers[2]

    async def test_a_taken_node_port_is_refused(self, api: RawApi) -> None:
        number = (await created(api, service(type="NodePort")))["ports"][0]["nodePort"]
        again = await refused(api, service("t", type="NodePort", ports=[{"port": 80, "nodePort": number}]))
        assert again == f"spec.ports[0].nodePort: Invalid value: {number}: provided port is already allocated"

    async def test_a_node_port_outside_the_range_is_refused(self, api: RawApi) -> None:
        assert await refused(api, service(type="NodePort", ports=[{"port": 80, "nodePort": 80}])) == (
            "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. "
            "The range of valid ports is 30000-32767"
        )

    async def test_an_update_keeps_the_node_port_by_name(self, api: RawApi) -> None:
        ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
        before = {port["name"]: port for port in (await created(api, service(type="NodePort", ports=ports)))["ports"]}
        changed = await api.put(api.path("services", "s"), service(type="NodePort", ports=[{"name": "b", "port": 82}]))
        assert changed.body["spec"]["ports"][0]["nodePort"] == before["b"]["nodePort"]

    async def test_a_change_to_cluster_ip_drops_the_node_port(self, api: RawApi) -> None:
        number = (await created(api, service(type="NodePort")))["ports"][0]["nodePort"]
        spec = (await api.patch(api.path("services", "s"), {"spec": {"type": "ClusterIP"}})).body["spec"]
        assert "nodePort" not in spec["ports"][0]
        assert "externalTrafficPolicy" not in spec
        await created(api, service("t", type="NodePort", ports=[{"port": 80, "nodePort": number}]))

    async def test_a_load_balancer_has_node_ports_and_stays_pending(self, api: RawApi) -> None:
        reply = await api.post(api.path("services"), service(type="LoadBalancer"))
        spec = reply.body["spec"]
        assert spec["allocateLoadBalancerNodePorts"] is True
        assert 30000 <= spec["ports"][0]["nodePort"] <= 32767
        assert reply.body["status"] == {"loadBalancer": {}}
        without = await created(api, service("t", type="LoadBalancer", allocateLoadBalancerNodePorts=False))
        assert "nodePort" not in without["ports"][0]


class TestRefusals:
    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ({"ports": None}, "spec.ports: Required value"),
            (
                {"type": "Other"},
                (
                    'spec.type: Unsupported value: "Other": '
                    'supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"'
                ),
            ),
            (
                {"sessionAffinity": "Cookie"},
                'spec.sessionAffinity: Unsupported value: "Cookie": supported values: "ClientIP", "None"',
            ),
            (
                {"ports": [{"port": 0}]},
                (
                    "[spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive, "
                    "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive]"
                ),
            ),
            (
                {"ports": [{"port": 80, "targetPort": "-a--b-"}]},
                (
                    '[spec.ports[0].targetPort: Invalid value: "-a--b-": must not contain consecutive hyphens, '
                    'spec.ports[0].targetPort: Invalid value: "-a--b-": must not begin or end with a hyphen]'
                ),
            ),
            (
                {"ports": [{"port": 80, "protocol": "tcp"}]},
                'spec.ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"',
            ),
            (
                {"ports": [{"port": 80, "nodePort": 30001}]},
                "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
            ),
            (
                {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80}]},
                (
                    'spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,'
                    '"TargetPort":0,"NodePort":0}'
                ),
            ),
            (
                {"type": "NodePort", "clusterIP": "None"},
                "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
            ),
            ({"type": "ExternalName"}, "spec.externalName: Required value"),
            (
                {"type": "ExternalName", "externalName": "a.example", "clusterIP": "None"},
                "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
            ),
            (
                {"externalIPs": ["127.0.0.1"]},
                (
                    'spec.externalIPs[0]: Invalid value: "127.0.0.1": '
                    "may not be in the loopback range (127.0.0.0/8, ::1/128)"
                ),
            ),
            (
                {"externalTrafficPolicy": "Local"},
                (
                    'spec.externalTrafficPolicy: Invalid value: "Local": '
                    "may only be set for externally-accessible services"
                ),
            ),
            (
                {"internalTrafficPolicy": "Near"},
                'spec.internalTrafficPolicy: Unsupported value: "Near": supported values: "Cluster", "Local"',
            ),
            (
                {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}},
                (
                    "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: "
                    "must be greater than 0 and less than 86400"
                ),
            ),
            (
                {"loadBalancerClass": "a/b"},
                "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
            ),
        ],
    )
    async def test_the_words_are_those_of_the_real_server(self, api: RawApi, spec: Object, message: str) -> None:
        obj = service()
        assert await refused(api, obj | {"spec": obj["spec"] | spec}) == message

    async def test_client_ip_affinity_has_a_default_timeout(self, api: RawApi) -> None:
        spec = await created(api, service(sessionAffinity="ClientIP"))
        assert spec["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}

    async def test_an_external_name_has_neither_address_nor_ports(self, api: RawApi) -> None:
        obj = {"metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "a.example"}}
        assert await created(api, obj) == {
            "externalName": "a.example", "sessionAffinity": "None", "type": "ExternalName",
        }  # fmt: skip


class TestEndpoints:
    async def test_defaults_and_columns(self, api: RawApi) -> None:
        addresses = [{"ip": f"10.1.2.{number}"} for number in range(1, 5)]
        obj = {"metadata": {"name": "e"}, "subsets": [{"addresses": addresses, "ports": [{"port": 80}]}]}
        reply = await api.post(api.path("endpoints"), obj)
        assert reply.body["subsets"][0]["ports"] == [{"port": 80, "protocol": "TCP"}]
        deprecated = '299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"'
        assert reply.warnings == [deprecated]
        table = await api.send("GET", api.path("endpoints", "e"), accept=TABLE)
        assert [column["name"] for column in table.body["columnDefinitions"]] == ["Name", "Endpoints", "Age"]
        assert table.body["rows"][0]["cells"][1] == "10.1.2.1:80,10.1.2.2:80,10.1.2.3:80 + 1 more..."
        assert table.warnings == [deprecated]
        await api.post(api.path("endpoints"), {"metadata": {"name": "empty"}})
        empty = await api.send("GET", api.path("endpoints", "empty"), accept=TABLE)
        assert empty.body["rows"][0]["cells"][1] == "<none>"

    @pytest.mark.parametrize(
        ("subset", "message"),
        [
            ({}, "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"),
            (
                {"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 1}, {"port": 2}]},
                "[subsets[0].ports[0].name: Required value, subsets[0].ports[1].name: Required value]",
            ),
            (
                {"addresses": [{"ip": "x"}]},
                (
                    '[subsets[0].addresses[0].ip: Invalid value: "x": must be a valid IP address, '
                    '(e.g. 10.9.8.7 or 2001:db8::ffff), subsets[0].addresses[0].ip: Invalid value: "x": '
                    "must be a valid IP address]"
                ),
            ),
            (
                {"addresses": [{"ip": "169.254.1.1"}]},
                (
                    'subsets[0].addresses[0].ip: Invalid value: "169.254.1.1": '
                    "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
                ),
            ),
        ],
    )
    async def test_wrong_subsets_are_refused(self, api: RawApi, subset: Object, message: str) -> None:
        reply = await api.post(api.path("endpoints"), {"metadata": {"name": "e"}, "subsets": [subset]})
        assert reply.message == f'Endpoints "e" is invalid: {message}'


class TestEndpointSlices:
    async def test_defaults_and_columns(self, api: RawApi) -> None:
        path = f"{SLICES}/namespaces/{api.namespace}/endpointslices"
        endpoints = [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}]
        obj = {"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 80}]}
        reply = await api.post(path, obj)
        assert reply.body["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]
        assert reply.metadata["generation"] == 1
        table = await api.send("GET", f"{path}/e", accept=TABLE)
        names = ["Name", "AddressType", "Ports", "Endpoints", "Age"]
        assert [column["name"] for column in table.body["columnDefinitions"]] == names
        assert table.body["rows"][0]["cells"][:4] == ["e", "IPv4", "80", "10.1.2.3"]
        await api.post(path, {"metadata": {"name": "empty"}, "addressType": "IPv4", "endpoints": []})
        empty = await api.send("GET", f"{path}/empty", accept=TABLE)
        assert empty.body["rows"][0]["cells"][2:4] == ["<unset>", "<unset>"]

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            (
                {"addressType": "IPX"},
                'addressType: Unsupported value: "IPX": supported values: "FQDN", "IPv4", "IPv6"',
            ),
            (
                {"endpoints": [{"addresses": []}]},
                "endpoints[0].addresses: Required value: must contain at least 1 address",
            ),
            (
                {"endpoints": [{"addresses": ["::2"]}]},
                'endpoints[0].addresses: Invalid value: "::2": must be an IPv4 address',
            ),
            ({"ports": [{"port": 1}, {"port": 2}]}, 'ports[1].name: Duplicate value: ""'),
        ],
    )
    async def test_wrong_slices_are_refused(self, api: RawApi, fields: Object, message: str) -> None:
        path = f"{SLICES}/namespaces/{api.namespace}/endpointslices"
        reply = await api.post(path, {"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": [], **fields})
        assert reply.message == f'EndpointSlice.discovery.k8s.io "e" is invalid: {message}'

    async def test_the_address_type_may_not_change(self, api: RawApi) -> None:
        path = f"{SLICES}/namespaces/{api.namespace}/endpointslices"
        await api.post(path, {"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": []})
        reply = await api.patch(f"{path}/e", {"addressType": "IPv6"})
        assert reply.message.endswith('addressType: Invalid value: "IPv6": field is immutable')
