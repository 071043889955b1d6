"""The hosts files on the disk, and addresses that stay."""

from pathlib import Path

from trainwright.cluster.node.network.pod_network import PodNetwork
from trainwright.objects import Object


def pod(name: str, *, uid: str = "", **labels: str) -> Object:
    metadata = {"name": name, "namespace": "default", "uid": uid or name, "labels": labels}
    return {"metadata": metadata, "spec": {"containers": []}}


def service(name: str, **selector: str) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": selector}}


def new_network(directory: Path) -> PodNetwork:
    return PodNetwork(directory, machine_hosts=lambda: "10.0.0.5 nas\n")


def test_a_file_is_rewritten_in_place_and_only_when_names_change(tmp_path: Path) -> None:
    network = new_network(tmp_path)
    path = network.hosts_file("default")
    address = network.add_pod(pod("master", role="master"))
    assert network.write_hosts_files()
    inode = path.stat().st_ino
    assert f"{address} master\n" in path.read_text()
    network.update_service(None, service("job-master-0", role="master"))
    assert network.write_hosts_files()
    assert f"{address} master job-master-0 job-master-0.default " in path.read_text()
    assert not network.write_hosts_files()
    network.remove_pod("master")
    network.update_service(service("job-master-0", role="master"), None)
    assert network.write_hosts_files()
    assert path.read_text().splitlines()[2:] == ["10.0.0.5 nas"]
    assert path.stat().st_ino == inode


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
