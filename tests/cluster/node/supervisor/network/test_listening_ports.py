"""When the ports of a pod are looked at."""

from collections.abc import Collection

from trainwright.cluster.node.supervisor.network.listening_ports import ListeningPorts


class Machine:
    def __init__(self) -> None:
        self.listening: set[int] = set()
        self.looks = 0

    def find(self, ports: Collection[int]) -> set[int]:
        self.looks += 1
        return self.listening & set(ports)


def test_a_bound_port_is_listed_when_a_program_listens() -> None:
    machine = Machine()
    ports = ListeningPorts(machine.find)
    ports.bound(8000, 10.0)
    assert ports.next_at == 10.02
    assert not ports.tick(10.0)
    assert not ports.tick(10.02)
    machine.listening.add(8000)
    assert ports.tick(10.2)
    assert ports.ports == [8000]
    assert ports.next_at is None


def test_a_port_on_which_no_program_listens_is_forgotten_after_some_seconds() -> None:
    machine = Machine()
    ports = ListeningPorts(machine.find)
    ports.bound(8000, 0.0)
    now = 0.0
    while (at := ports.next_at) is not None:
        now = at
        assert not ports.tick(now)
    assert now == 5.0
    assert machine.looks == 4
    assert ports.ports == []


def test_ports_of_an_ended_container_are_removed() -> None:
    machine = Machine()
    machine.listening = {8000, 8001}
    ports = ListeningPorts(machine.find)
    for port in (8000, 8001):
        ports.bound(port, 0.0)
    assert ports.tick(1.0)
    machine.listening = {8001}
    assert ports.container_ended()
    assert ports.ports == [8001]
    assert not ports.container_ended()


def test_a_program_that_binds_thousands_of_ports_is_not_followed() -> None:
    machine = Machine()
    ports = ListeningPorts(machine.find)
    for port in range(2000, 4000):
        ports.bound(port, 0.0)
        machine.listening.add(port)
    ports.tick(1.0)
    assert len(ports.ports) == 100


def test_an_end_without_listeners_costs_nothing() -> None:
    machine = Machine()
    assert not ListeningPorts(machine.find).container_ended()
    assert machine.looks == 0
