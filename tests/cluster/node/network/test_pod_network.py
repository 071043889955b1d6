"""The hosts files on the disk, and addresses that stay."""

import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trainwright.cluster.address_range import AddressRange
from trainwright.cluster.node.network.pod_network import PodNetwork
from trainwright.objects import Object

NETWORK = AddressRange(7).pods


def pod(name: str, *, uid: str = "", host_network: bool = False, **labels: str) -> Object:
    metadata = {"name": name, "namespace": "default", "uid": uid or name, "labels": labels}
    return {"metadata": metadata, "spec": {"containers": [], "hostNetwork": host_network}}


def service(name: str, **selector: str) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": selector}}


def new_network(directory: Path) -> PodNetwork:
    return PodNetwork(directory, NETWORK, machine_hosts=lambda: "10.0.0.5 nas\n")


def names_in(path: Path) -> dict[str, set[str]]:
    """Name -> addresses, as a resolver reads them."""
    found: dict[str, set[str]] = {}
    for line in path.read_text().splitlines():
        address, *names = line.split()
        for name in names:
            found.setdefault(name, set()).add(address)
    return found


def test_new_names_are_appended_and_old_ones_removed_in_place(tmp_path: Path) -> None:
    network = new_network(tmp_path)
    address = network.add_pod(pod("master", role="master"))
    path = network.hosts_file(pod("master", role="master"))
    inode = path.stat().st_ino
    assert f"{address} master\n" in path.read_text()
    network.update_service(None, service("job-master-0", role="master"))
    assert network.write_hosts_files()
    assert f"{address} job-master-0 job-master-0.default " in path.read_text().splitlines()[-1]
    assert not network.write_hosts_files()

    network.add_pod(pod("other"))
    network.remove_pod("master")
    network.update_service(service("job-master-0", role="master"), None)
    assert network.write_hosts_files()
    assert names_in(path).keys() == {"localhost", "ip6-localhost", "ip6-loopback", "nas", "other"}
    assert path.stat().st_ino == inode


def test_files_with_old_names_are_rewritten_from_time_to_time(tmp_path: Path) -> None:
    times = iter(range(0, 10_000, 1))
    network = PodNetwork(tmp_path, NETWORK, machine_hosts=str, clock=lambda: float(next(times)))
    network.add_pod(pod("kept"))
    path = network.hosts_file(pod("kept"))
    for name in ("a", "b"):
        network.add_pod(pod(name))
        network.remove_pod(name)
        network.write_hosts_files()
    assert "b" in names_in(path)
    delay = network.rewrite_delay
    assert delay is not None
    assert delay > 5

    for _ in range(int(delay)):
        network.write_hosts_files()
    assert "b" not in names_in(path)
    assert network.rewrite_delay is None


def test_a_name_that_gets_another_address_has_only_that(tmp_path: Path) -> None:
    network = PodNetwork(tmp_path, NETWORK, machine_hosts=str, clock=lambda: 0.0)
    network.add_pod(pod("kept"))
    path = network.hosts_file(pod("kept"))
    first = network.add_pod(pod("p", uid="1"))
    network.remove_pod("1")
    network.reserve("elsewhere", first)
    second = network.add_pod(pod("p", uid="2"))
    network.write_hosts_files()
    assert first != second
    assert names_in(path)["p"] == {second}


def test_a_service_with_an_address_has_its_names_there(tmp_path: Path) -> None:
    network = new_network(tmp_path)
    network.add_pod(pod("p", app="a"))
    path = network.hosts_file(pod("p", app="a"))
    obj = service("web", app="a")
    obj["spec"]["clusterIP"] = "127.16.1.2"
    network.update_service(None, obj)
    network.write_hosts_files()
    long = ["web.default", "web.default.svc", "web.default.svc.cluster.local"]
    assert {names_in(path)[name].pop() for name in ["web", *long]} == {"127.16.1.2"}


def test_an_external_name_of_the_cluster_is_another_name_for_it(tmp_path: Path) -> None:
    network = new_network(tmp_path)
    network.add_pod(pod("p", app="a"))
    path = network.hosts_file(pod("p", app="a"))
    target, alias, other = service("web"), service("alias"), service("far")
    target["spec"]["clusterIP"] = "127.16.1.2"
    alias["spec"] = {"type": "ExternalName", "externalName": "web.default.svc"}
    other["spec"] = {"type": "ExternalName", "externalName": "example.com"}
    for one in (alias, other, target):
        network.update_service(None, one)
    network.write_hosts_files()
    assert names_in(path)["alias.default.svc"] == {"127.16.1.2"}
    assert "far" not in names_in(path)


def test_host_aliases_are_in_a_file_of_the_pod_alone(tmp_path: Path) -> None:
    network = new_network(tmp_path)
    plain, aliased = pod("plain"), pod("aliased")
    aliased["spec"]["hostAliases"] = [{"ip": "10.1.2.3", "hostnames": ["db", "plain"]}]
    for one in (plain, aliased):
        network.add_pod(one)
    shared, own = network.hosts_file(plain), network.hosts_file(aliased)
    address = network.add_pod(pod("late"))
    network.write_hosts_files()
    assert "db" not in names_in(shared)
    assert names_in(own)["db"] == {"10.1.2.3"}
    assert own.read_text().splitlines()[2] == "10.1.2.3 db plain", "aliases win over names of the cluster"
    assert names_in(own)["late"] == names_in(shared)["late"] == {address}
    network.remove_pod("aliased")
    assert not own.exists()


def test_pods_on_the_network_of_the_machine_share_its_address(tmp_path: Path) -> None:
    network = new_network(tmp_path)
    network.update_service(None, service("both", role="server"))
    for name in ("one", "other"):
        assert network.add_pod(pod(name, host_network=True, role="server")) == "127.0.0.1"
    path = network.hosts_file(pod("one", host_network=True))
    assert {"one", "other", "both"} <= names_in(path).keys()

    network.remove_pod("one")
    network.write_hosts_files()
    found = names_in(path)
    assert "one" not in found
    assert found["other"] == found["both"] == found["localhost"] - {"::1"} == {"127.0.0.1"}


def test_files_of_an_earlier_agent_are_kept_up_to_date(tmp_path: Path) -> None:
    network = new_network(tmp_path)
    network.add_pod(pod("old"))
    path = network.hosts_file(pod("old"))

    later = new_network(tmp_path)
    later.add_pod(pod("old"))
    later.add_pod(pod("new"))
    later.write_hosts_files()
    assert {"old", "new"} <= names_in(path).keys()


LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("01"), max_size=2)


class NetworkHistory(RuleBasedStateMachine):
    """Whatever comes and goes: the names that can be looked up, and after a rewrite the files, are those of the pods
    and Services that exist."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.now = 0.0
        self.network = PodNetwork(Path(self.directory.name), NETWORK, machine_hosts=str, clock=lambda: self.now)
        self.pods: dict[str, Object] = {}
        self.services: dict[str, Object] = {}
        self.add_pod("first", {})
        self.path = self.network.hosts_file(self.pods["first"])

    @rule(name=st.sampled_from("pqr"), labels=LABELS)
    def add_pod(self, name: str, labels: dict[str, str]) -> None:
        self.pods[name] = pod(name, host_network=name in "qr", **labels)
        self.network.add_pod(self.pods[name])

    @rule(name=st.sampled_from("pqr"))
    def remove_pod(self, name: str) -> None:
        self.pods.pop(name, None)
        self.network.remove_pod(name)

    @rule(name=st.sampled_from("st"), selector=LABELS, address=st.sampled_from(["", "None", "127.16.0.9"]))
    def put_service(self, name: str, selector: dict[str, str], address: str) -> None:
        changed = service(name, **selector)
        changed["spec"]["clusterIP"] = address
        self.network.update_service(self.services.get(name), changed)
        self.services[name] = changed

    @rule(name=st.sampled_from("st"))
    def remove_service(self, name: str) -> None:
        if name in self.services:
            self.network.update_service(self.services.pop(name), None)

    @rule()
    def write(self) -> None:
        self.network.write_hosts_files()
        missing = {name: where - names_in(self.path).get(name, set()) for name, where in self.expected().items()}
        assert not any(missing.values()), "a name is there at once"

    @rule()
    def rewrite(self) -> None:
        self.now += 1000
        self.network.write_hosts_files()
        found = names_in(self.path)
        assert {name: found[name] for name in found if not name.startswith(("localhost", "ip6"))} == self.expected()

    @invariant()
    def names_resolve(self) -> None:
        expected = self.expected()
        found = self.network.addresses_in("default")
        assert found.keys() == expected.keys()
        assert all(found[name] in expected[name] for name in expected)

    def expected(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for one in self.pods.values():
            found.setdefault(one["metadata"]["name"], set()).add(self.network.add_pod(one))
        for one in self.services.values():
            name, spec = one["metadata"]["name"], one["spec"]
            if spec["clusterIP"] not in {"", "None"}:
                addresses = {spec["clusterIP"]}
            else:
                addresses = {
                    self.network.add_pod(other)
                    for other in self.pods.values()
                    if spec["selector"] and spec["selector"].items() <= other["metadata"]["labels"].items()
                }
            if addresses:
                for suffix in ("", ".default", ".default.svc", ".default.svc.cluster.local"):
                    found.setdefault(f"{name}{suffix}", set()).update(addresses)
        return found

    def teardown(self) -> None:
        self.directory.cleanup()


TestNetworkHistory = NetworkHistory.TestCase


def test_an_address_stays_while_the_pod_lives_and_after_the_agent(tmp_path: Path) -> None:
    network = new_network(tmp_path)
    address = network.add_pod(pod("p"))
    assert network.add_pod(pod("p")) == address
    later = new_network(tmp_path)
    later.reserve("old", address)
    assert later.add_pod(pod("p", uid="new")) != address
    assert later.add_pod(pod("p", uid="old")) == address


def test_names_of_a_namespace_for_pods_without_hosts_file(tmp_path: Path) -> None:
    network = new_network(tmp_path)
    address = network.add_pod(pod("p"))
    assert network.addresses_in("default") == {"p": address}
    assert network.addresses_in("other") == {}


def test_the_names_of_the_last_pods_that_ended_are_kept_until_they_are_deleted(tmp_path: Path) -> None:
    network = new_network(tmp_path)
    for number in range(100):
        network.add_pod(pod(f"p{number}"))
        network.finish_pod(f"p{number}")
    network.finish_pod("never added")
    assert list(network.addresses_in("default")) == sorted(f"p{number}" for number in range(36, 100))
    network.remove_pod("p99")
    assert "p99" not in network.addresses_in("default")
