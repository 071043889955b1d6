"""securityContext, what a container can reach, and the limits of its resources."""

from typing import Any

import pytest

from tests.support.node.namespace import NodeNamespace, container, python, terminated

as_root = pytest.mark.as_root  # an ordinary user cannot change the user of its processes


@as_root
async def test_user_group_and_further_groups(node: NodeNamespace) -> None:
    context = {"runAsUser": 4711, "runAsGroup": 4712, "supplementalGroups": [4713], "fsGroup": 4714}
    await node.pod("p", container("id -u; id -g; id -G"), securityContext=context)
    user, group, groups = (await node.output("p")).splitlines()
    assert (user, group) == ("4711", "4712")
    assert set(groups.split()) == {"4712", "4713", "4714"}


@as_root
async def test_the_container_overrides_the_pod(node: NodeNamespace) -> None:
    main = container("id -u", securityContext={"runAsUser": 4711})
    await node.pod("p", main, securityContext={"runAsUser": 1, "runAsGroup": 1})
    assert await node.output("p") == "4711\n"


@as_root
@pytest.mark.only("overlay", "kubelet")
async def test_a_volume_belongs_to_the_group_of_the_pod(node: NodeNamespace) -> None:
    mounts = [{"name": "v", "mountPath": "/v"}]
    main = container("touch /v/x; stat -c %g /v /v/x", volumeMounts=mounts)
    context = {"runAsUser": 4711, "fsGroup": 4714}
    await node.pod("p", main, securityContext=context, volumes=[{"name": "v", "emptyDir": {}}])
    assert await node.output("p") == "4714\n4714\n"


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"runAsUser": 0}, "container's runAsUser breaks non-root policy"),
        pytest.param({}, "container has runAsNonRoot and image will run as root", marks=as_root),
    ],
)
async def test_a_container_that_must_not_be_root_does_not_start_as_root(
    node: NodeNamespace, context: dict[str, Any], message: str
) -> None:
    pod = await node.pod("p", container("id -u", securityContext={"runAsNonRoot": True, **context}))
    waiting = await node.until_container("p", "waiting", reason="CreateContainerConfigError")
    uid = pod["metadata"]["uid"]
    assert waiting["message"] == f'{message} (pod: "p_{node.name}({uid})", container: main)'


@pytest.mark.only("overlay", "kubelet")
async def test_a_read_only_root_leaves_volumes_writable(node: NodeNamespace) -> None:
    mounts = [{"name": "v", "mountPath": "/v"}]
    script = "for path in / /etc /usr /v; do (echo x > $path/f) 2>/dev/null && echo $path; done; true"
    main = container(script, volumeMounts=mounts, securityContext={"readOnlyRootFilesystem": True})
    await node.pod("p", main, volumes=[{"name": "v", "emptyDir": {}}])
    assert await node.output("p") == "/v\n"


@as_root
@pytest.mark.parametrize(
    ("spec", "present", "absent"),
    [
        ({}, 0, 21),  # CHOWN, and not SYS_ADMIN
        ({"drop": ["ALL"]}, None, 0),
        ({"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}, 10, 0),
        ({"add": ["IPC_LOCK"]}, 14, 21),
        ({"drop": ["CHOWN"]}, 5, 0),
    ],
)
@pytest.mark.only("overlay", "kubelet")
async def test_capabilities(node: NodeNamespace, spec: dict[str, Any], present: int | None, absent: int) -> None:
    await node.pod("p", container("grep CapEff /proc/self/status", securityContext={"capabilities": spec}))
    mask = int((await node.output("p")).split()[1], 16)
    assert present is None or mask >> present & 1
    assert not mask >> absent & 1


async def test_privileges_cannot_be_gained_where_that_is_forbidden(node: NodeNamespace) -> None:
    main = container("grep NoNewPrivs /proc/self/status", securityContext={"allowPrivilegeEscalation": False})
    await node.pod("p", main)
    assert (await node.output("p")).split() == ["NoNewPrivs:", "1"]


@pytest.mark.only("overlay", "kubelet")
async def test_a_container_has_devices_of_its_own(node: NodeNamespace) -> None:
    await node.pod(
        "p", container("cd /dev; ls; echo x > null; head -c 2 zero | wc -c; ls -d /dev/kmsg /dev/vda || true")
    )
    found = (await node.output("p")).split("\n")
    assert {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd", "stdin"} <= set(found)
    assert "/dev/kmsg" not in found
    assert "/dev/vda" not in found


@pytest.mark.only("overlay", "kubelet")
async def test_other_processes_and_the_kernel_are_closed(node: NodeNamespace) -> None:
    script = """
    (ls /proc/1/root/.. > /dev/null; true) 2>/dev/null
    (echo x > /proc/sys/kernel/domainname) 2>/dev/null && echo changed
    (mount -t tmpfs x /mnt) 2>/dev/null && echo mounted
    true
    """
    await node.pod("p", container(script))
    assert await node.output("p") == ""


@as_root
async def test_a_container_beyond_its_memory_limit_is_killed(node: NodeNamespace) -> None:
    program = "data = [bytearray(1 << 20) for _ in range(400)]; print('survived')"
    resources = {"limits": {"memory": "64Mi"}, "requests": {"cpu": "10m", "memory": "16Mi"}}
    await node.pod("p", python(program, resources=resources))
    ended = terminated(await node.until_phase("p", "Failed"))
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)


@as_root
async def test_a_container_within_its_memory_limit_runs(node: NodeNamespace) -> None:
    program = "data = [bytearray(1 << 20) for _ in range(20)]; print('survived')"
    resources = {"limits": {"memory": "128Mi"}, "requests": {"cpu": "10m", "memory": "16Mi"}}
    await node.pod("p", python(program, resources=resources))
    assert await node.output("p") == "survived\n"


@as_root
async def test_the_cpu_limit_is_enforced(node: NodeNamespace) -> None:
    program = """
import time
began, cpu = time.monotonic(), time.process_time()
while time.monotonic() - began < 1.5: pass
print((time.process_time() - cpu) / (time.monotonic() - began) < 0.5)
"""
    resources = {"limits": {"cpu": "200m"}, "requests": {"cpu": "10m"}}
    await node.pod("p", python(program, resources=resources))
    assert await node.output("p") == "True\n"
