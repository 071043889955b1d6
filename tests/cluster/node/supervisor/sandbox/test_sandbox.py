"""What a container sees at `overlay`, for root and for an ordinary user alike; and what it sees at `plain`."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.cluster.supervised_pods import LAYERED_DIRECTORY, container
from trainwright.cluster.linux.hidden_directories import covered_paths, mounts_inside, possible_aliases
from trainwright.cluster.node.supervisor import pod_process
from trainwright.cluster.node.supervisor.sandbox.detection import Sandbox, SandboxError, choose_sandbox, detect_sandbox


def mount(source: Path, target: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"source": str(source), "target": target, "readOnly": read_only}


def test_volumes_appear_where_the_host_has_nothing(overlay: Any) -> None:
    (overlay.shared / "data").write_text("from the host")
    targets = ["/data/deep/below", "/usr/share/trainwright-test/volume", "/etc/trainwright-test", "/tmp/inside"]
    script = "; ".join(f"cat {target}/data && echo x > {target}/written-{i}" for i, target in enumerate(targets))
    with overlay.run(container(script, mounts=[mount(overlay.shared, target) for target in targets])) as pod:
        pod.wait()
    assert "".join(pod.output()) == "from the host" * len(targets)
    assert {path.name for path in overlay.shared.glob("written-*")} == {f"written-{i}" for i in range(len(targets))}
    assert not any(Path(target).exists() for target in targets)


def test_a_volume_may_lie_in_another_and_a_file_may_be_one(overlay: Any) -> None:
    outer, inner, single = overlay.shared / "outer", overlay.shared / "inner", overlay.shared / "single"
    for path in (outer, inner):
        path.mkdir()
        overlay.user.own(path)
    (inner / "data").write_text("inner")
    single.write_text("single")
    mounts = [mount(inner, "/v/a/b"), mount(single, "/etc/trainwright-test.conf"), mount(outer, "/v")]
    with overlay.run(container("cat /v/a/b/data; echo; cat /etc/trainwright-test.conf", mounts=mounts)) as pod:
        pod.wait()
    assert pod.output() == ["inner", "single"]


def test_a_read_only_volume_cannot_be_written(overlay: Any) -> None:
    with overlay.run(container("echo x > /v/x", mounts=[mount(overlay.shared, "/v", read_only=True)])) as pod:
        pod.wait()
    assert "Read-only file system" in " ".join(pod.output())
    assert list(overlay.shared.iterdir()) == []


def test_writes_outside_of_volumes_do_not_reach_the_host(overlay: Any) -> None:
    paths = ["/etc/trainwright-test", "/trainwright-test", "/tmp/trainwright-test"]
    with overlay.run(container("; ".join(f"echo mine > {path}; cat {path}" for path in paths))) as pod:
        pod.wait()
    assert pod.output() == ["mine"] * len(paths)
    assert not any(Path(path).exists() for path in paths)


def test_a_container_that_wrote_nothing_leaves_nothing(overlay: Any) -> None:
    with overlay.run(container("touch /tmp/empty; mkdir -p /tmp/a/b; ln -s /etc/hosts /tmp/link")) as pod:
        pod.wait()
    assert list((pod.directory / "scratch").iterdir()) == []


# Directories of the host that pods share, and those that they must not see


@dataclass
class Home:
    """A home directory with things to hide."""

    path: Path
    data: Path

    def mounts(self, **mount: Any) -> dict[str, Any]:
        home = {"source": str(self.path), "target": str(self.path), "readOnly": False}
        return {"mounts": [{**home, **mount}]}


@pytest.fixture(params=["/tmp", LAYERED_DIRECTORY])  # the first is private to pods
def home(request: pytest.FixtureRequest, overlay: Any) -> Iterator[Home]:
    with TemporaryDirectory(prefix="home-", dir=request.param) as directory:
        path = Path(directory)
        data = path / ".local/share/trainwright"
        for one in (path, *data.parents[::-1][len(path.parents) + 1 :], data, path / ".kube"):
            one.mkdir(exist_ok=True)
            overlay.user.own(one)
        (data / "token").write_text("secret")
        (path / ".kube/config").write_text("secret")
        (path / "link").symlink_to(path / ".kube")
        yield Home(path, data)


def hidden(home: Home) -> dict[str, Any]:
    return {"hidden": [str(home.data), str(home.path / ".kube")]}


def test_a_shared_home_is_that_of_the_host(overlay: Any, home: Home) -> None:
    (home.path / "dataset").write_text("rows")
    script = f"cd {home.path}; cat dataset; mkdir -p checkpoints; echo weights > checkpoints/model.pt"
    with overlay.run(container(script, **home.mounts()), **hidden(home)) as pod:
        pod.wait()
    assert pod.output() == ["rows"]
    assert (home.path / "checkpoints/model.pt").read_text() == "weights\n"
    assert (home.path / "checkpoints/model.pt").stat().st_uid == home.path.stat().st_uid


@pytest.mark.parametrize("way", ["{home}/.kube", "{home}/link", "{home}/x/../.kube", "{data}", "/proc/self/root{data}"])
def test_hidden_directories_of_a_shared_home_are_empty_by_every_path(overlay: Any, home: Home, way: str) -> None:
    (home.path / "x").mkdir()
    script = f"cd {way.format(home=home.path, data=home.data)} && ls -A | wc -l; echo x > y"
    with overlay.run(container(script, **home.mounts()), **hidden(home)) as pod:
        pod.wait()
    assert pod.output()[0] == "0"
    assert "Read-only file system" in pod.output()[1]
    assert (home.data / "token").exists()


def test_hidden_directories_are_empty_without_a_shared_home_too(overlay: Any, home: Home) -> None:
    with overlay.run(container(f"find {home.path} -name config -o -name token"), **hidden(home)) as pod:
        pod.wait()
    assert not [line for line in pod.output() if "No such file" not in line]


def test_hidden_directories_are_empty_in_a_volume_of_a_directory_above(overlay: Any, home: Home) -> None:
    volume = [mount(home.path, "/v"), mount(home.data.parent, "/w")]
    with overlay.run(container("find /v /w -name config -o -name token", mounts=volume), **hidden(home)) as pod:
        pod.wait()
    assert pod.output() == []


def test_a_volume_of_a_hidden_directory_or_in_it_stays_visible(overlay: Any, home: Home) -> None:
    inner = str(home.data / "volumes/claim")
    mounts = [*home.mounts()["mounts"], mount(home.path / ".kube", "/kube"), mount(overlay.shared, inner)]
    with overlay.run(container(f"cat /kube/config; echo x > {inner}/written", mounts=mounts), **hidden(home)) as pod:
        pod.wait()
    assert pod.output() == ["secret"]
    assert (overlay.shared / "written").exists()


def test_a_home_that_is_a_link_is_shared_and_hides_the_same(overlay: Any, home: Home) -> None:
    with TemporaryDirectory(prefix="homes-", dir=LAYERED_DIRECTORY) as directory:
        Path(directory).chmod(0o755)
        link = Path(directory) / "a/b/c/d/e/me"
        link.parent.mkdir(parents=True)
        link.symlink_to(home.path)
        mounts = home.mounts(source=str(link), target=str(link))
        script = f"echo x > {link}/written; find {link}/ {home.path}/ -name config -o -name token"
        with overlay.run(container(script, **mounts), **hidden(home)) as pod:
            pod.wait()
    assert pod.output() == []
    assert (home.path / "written").exists()


def test_the_paths_that_are_covered() -> None:
    kube, data = "/root/.kube", "/srv/data"
    hidden = [kube, data]
    assert covered_paths(hidden, []) == [(kube, kube, ""), (data, data, "")]
    assert covered_paths(hidden, [("/root", "/root")]) == [(kube, kube, "/root"), (data, data, "")]
    assert covered_paths(hidden, [("/v", "/root"), ("/host", "/")]) == [
        (kube, kube, ""),
        ("/v/.kube", kube, "/v"),
        ("/host/root/.kube", kube, "/host"),
        (data, data, ""),
        ("/host/srv/data", data, "/host"),
    ]
    assert covered_paths(hidden, [("/v", kube)]) == [(kube, kube, ""), (data, data, "")]
    assert covered_paths(hidden, [(kube, "/other"), ("/srv", "/elsewhere")]) == []


def test_a_directory_that_is_mounted_twice_is_hidden_at_both_places() -> None:
    root = ("8:1", "/", "/", "ext4")
    home = ("8:2", "/", "/home", "ext4")
    bound = ("8:2", "/me", "/export/me", "ext4")
    other = ("8:3", "/", "/srv", "ext4")
    kube = ("8:2", "/me/.kube")
    assert possible_aliases(kube, [root, home, bound, other]) == ["/home/me/.kube", "/export/me/.kube"]
    assert possible_aliases(("8:1", "/root/.kube"), [root, home, bound, other]) == ["/root/.kube"]
    assert possible_aliases(("8:1", "/root/.kube"), [("8:1", "/root", "/backup", "ext4")]) == ["/backup/.kube"]
    assert mounts_inside(kube, [root, home, ("8:2", "/me/.kube/cache", "/cache", "ext4")]) == ["/cache"]
    assert mounts_inside(kube, [root, home, bound, other]) == []


# Namespaces


def test_containers_share_memory_and_name_but_not_temporary_files(overlay: Any) -> None:
    writer = container("hostname; echo shared > /dev/shm/x; echo own > /tmp/x", name="writer")
    reader = container("hostname; cat /dev/shm/x; cat /tmp/x 2>/dev/null || echo none")
    with overlay.run(reader, initContainers=[writer], hostname="job-master-0") as pod:
        pod.wait()
    assert pod.output("writer") == ["job-master-0"]
    assert pod.output() == ["job-master-0", "shared", "none"]
    assert not Path("/dev/shm/x").exists()


def test_a_pod_sees_its_own_processes_and_its_own_hosts(overlay: Any) -> None:
    hosts = overlay.shared / "hosts"
    hosts.write_text("127.64.0.9 job-worker-0\n")
    script = "ls /proc | grep -c '^[0-9]*$'; getent hosts job-worker-0; read line; echo $$"
    with overlay.run(container(script, mounts=[mount(hosts, "/etc/hosts", read_only=True)])) as pod:
        pod.wait()
    count, entry, number = pod.output()
    assert int(count) <= 5
    assert entry.split() == ["127.64.0.9", "job-worker-0"]
    assert int(number) < 20


def test_a_hosts_file_that_is_rewritten_in_place_is_seen_by_running_pods(overlay: Any) -> None:
    hosts = overlay.shared / "hosts"
    hosts.write_text("127.64.0.9 early\n")
    script = "echo ready; until getent hosts late; do sleep 0.01; done"
    with overlay.run(container(script, mounts=[mount(hosts, "/etc/hosts", read_only=True)])) as pod:
        pod.until(lambda pod: "ready" in pod.output())
        with hosts.open("r+") as file:
            file.write("127.64.0.10 late\n")
        pod.wait()
    assert pod.output()[1].split() == ["127.64.0.10", "late"]


def test_volumes_of_medium_memory_are_shared_and_end_with_the_pod(overlay: Any) -> None:
    path = overlay.node / "memory"
    path.mkdir()
    overlay.user.own(path)
    mounts = [mount(path, "/m")]
    writer = container("echo x > /m/x; df -P /m | tail -1", name="writer", mounts=mounts)
    volumes = [{"path": str(path), "size": 1 << 20}]
    with overlay.run(container("cat /m/x", mounts=mounts), initContainers=[writer], memoryVolumes=volumes) as pod:
        pod.wait()
    assert pod.output("writer")[0].split()[:2] == ["tmpfs", "1024"]
    assert pod.output() == ["x"]
    assert list(path.iterdir()) == []


@pytest.mark.parametrize("cwd", ["/usr/share/trainwright-test/work", "/usr/share/volume/deep/below"])
def test_a_missing_working_directory_is_created_in_and_outside_of_volumes(overlay: Any, cwd: str) -> None:
    (overlay.shared / "data").write_text("seen")
    mounts = [mount(overlay.shared, "/usr/share/volume")]
    with overlay.run(container("pwd; cat /usr/share/volume/data", cwd=cwd, mounts=mounts)) as pod:
        pod.wait()
    assert pod.output() == [cwd, "seen"]
    assert not Path(cwd).exists()


def test_a_restarted_container_finds_a_fresh_file_system(overlay: Any) -> None:
    mounts = [mount(overlay.shared, "/v")]
    script = "ls /left /tmp/left 2>/dev/null; touch /left /tmp/left; test -e /v/again || { touch /v/again; exit 1; }"
    with overlay.run(container(script, mounts=mounts), restartPolicy="OnFailure") as pod:
        pod.wait()
    assert pod.output(restart=0) == pod.output(restart=1) == []


def test_the_user_is_the_same_inside(overlay: Any) -> None:
    with overlay.run(container("id -u; touch /v/mine", mounts=[mount(overlay.shared, "/v")])) as pod:
        pod.wait()
    owner = (overlay.shared / "mine").stat().st_uid
    assert pod.output() == [str(owner)]
    assert owner == overlay.shared.stat().st_uid


def test_plain_runs_on_the_host_as_it_is(plain: Any) -> None:
    with plain.run(container("pwd; cat /proc/sys/kernel/hostname", cwd=str(plain.shared))) as pod:
        pod.wait()
    assert pod.output() == [str(plain.shared), Path("/proc/sys/kernel/hostname").read_text().strip()]


def test_plain_names_a_working_directory_that_is_missing(plain: Any) -> None:
    with plain.run(container("true", cwd="/no/such/directory")) as pod:
        pod.wait()
    ended = pod.container()["state"]["terminated"]
    assert ended["message"] == "working directory /no/such/directory: no such file or directory"


SHARED_PORTS = {"overlay": "", "plain": "an old kernel"}
WORKS = {"works": True, "userNamespace": True, "sharedPorts": SHARED_PORTS}
FAILS = {"works": False, "reason": "directly: no; in a user namespace: no either", "sharedPorts": SHARED_PORTS}


def test_the_strongest_level_that_works_is_chosen() -> None:
    assert choose_sandbox(None, WORKS) == Sandbox("overlay", user_namespace=True)
    assert choose_sandbox(None, FAILS) == Sandbox("plain", reason=str(FAILS["reason"]), shared_ports="an old kernel")
    assert choose_sandbox("plain", WORKS) == Sandbox("plain", shared_ports="an old kernel")


def test_a_forced_level_that_does_not_work_is_an_error_with_the_reason() -> None:
    with pytest.raises(SandboxError, match=r"overlay does not work on this machine: directly: no.*or use plain"):
        choose_sandbox("overlay", FAILS)


def test_a_python_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    found = detect_sandbox(str(tmp_path), forced=None, python="/no/such/python")
    reason = "/no/such/python cannot be run: No such file or directory"
    assert found == Sandbox("plain", reason=reason, shared_ports=reason)


def test_an_unknown_level_is_named() -> None:
    with pytest.raises(SandboxError, match="unknown sandbox 'mounts': choose one of overlay, plain"):
        choose_sandbox("mounts", WORKS)


def test_overlay_does_not_work_where_containers_could_change_the_python(capsys: pytest.CaptureFixture[str]) -> None:
    pod_process.main(["--detect-sandbox", "/nonexistent"], "memory cannot be executed")
    found = json.loads(capsys.readouterr().out)
    assert (found["works"], found["reason"]) == (False, "memory cannot be executed")
    assert found["sharedPorts"]["plain"] == ""
