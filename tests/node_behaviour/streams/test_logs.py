"""`pods/log`: what it returns of which run, and how it is limited."""

from datetime import UTC, datetime

import pytest

from tests.support.node.namespace import NodeNamespace, container, python
from trainwright.kube.client.errors import BadRequest
from trainwright.objects.times import parse_time

MEMORY = [{"name": "memory", "emptyDir": {}}]
MOUNT = [{"name": "memory", "mountPath": "/memory"}]


async def test_both_streams_are_logged(node: NodeNamespace) -> None:
    await node.pod("p", container("echo out; echo err >&2"))
    assert sorted((await node.output("p")).splitlines()) == ["err", "out"]


async def test_a_last_line_without_newline_is_logged(node: NodeNamespace) -> None:
    await node.pod("p", container("printf 'one\\ntwo'"))
    assert await node.output("p") == "one\ntwo"


async def test_tail_lines(node: NodeNamespace) -> None:
    await node.pod("p", container("for i in 1 2 3 4 5; do echo $i; done"))
    await node.until_phase("p", "Succeeded")
    assert await node.log("p", tail_lines=2) == "4\n5\n"
    assert await node.log("p", tail_lines=0) == ""
    assert await node.log("p", tail_lines=9) == "1\n2\n3\n4\n5\n"


async def test_limit_bytes(node: NodeNamespace) -> None:
    await node.pod("p", container("echo 123456789"))
    await node.until_phase("p", "Succeeded")
    assert await node.log("p", limit_bytes=4) == "1234"


async def test_lines_since_a_time(node: NodeNamespace) -> None:
    await node.pod("p", container("echo old; sleep 1.1; echo new"))
    await node.until_phase("p", "Succeeded")
    times = [parse_time(line.split()[0]) for line in (await node.log("p", timestamps=True)).splitlines()]
    assert await node.log("p", since_time=times[1]) == "new\n"
    assert await node.log("p", since_time=datetime(2099, 1, 1, tzinfo=UTC)) == ""


async def test_lines_have_timestamps_on_request(node: NodeNamespace) -> None:
    await node.pod("p", container("echo one"))
    pod = await node.until_phase("p", "Succeeded")
    stamp, text = (await node.log("p", timestamps=True)).split(" ", 1)
    assert text == "one\n"
    assert parse_time(pod["metadata"]["creationTimestamp"]) <= parse_time(stamp)


async def test_the_log_of_the_previous_run(node: NodeNamespace) -> None:
    script = "echo x >> /memory/runs; echo run $(wc -l < /memory/runs); [ $(wc -l < /memory/runs) -gt 1 ] && sleep 600"
    await node.pod("p", container(script, volumeMounts=MOUNT), volumes=MEMORY, restartPolicy="OnFailure")
    await node.until_log("p", "run 2")
    assert await node.log("p") == "run 2\n"
    assert await node.log("p", previous=True) == "run 1\n"


async def test_a_first_run_has_no_previous_log(node: NodeNamespace) -> None:
    await node.pod("p", container("sleep 600"))
    await node.until_phase("p", "Running")
    with pytest.raises(BadRequest) as refused:
        await node.log("p", previous=True)
    assert str(refused.value).endswith('previous terminated container "main" in pod "p" not found')


async def test_a_log_is_followed_to_its_end(node: NodeNamespace) -> None:
    await node.pod("p", container("echo one; sleep 0.5; echo two"))
    await node.until("p", lambda pod: pod["status"]["phase"] != "Pending")
    assert await node.log("p", follow=True) == "one\ntwo\n"


async def test_a_container_that_has_not_started_has_no_log(node: NodeNamespace) -> None:
    await node.pod("p", container("exit 0"), initContainers=[container("sleep 600", name="init")])
    await node.until_container("p", "running", container="init")
    await node.until_container("p", "waiting")
    with pytest.raises(BadRequest) as refused:
        await node.log("p")
    assert str(refused.value).endswith('container "main" in pod "p" is waiting to start: PodInitializing')


async def test_the_container_must_be_named_if_there_are_several(node: NodeNamespace) -> None:
    await node.pod("p", container("echo 1"), container("echo 2", name="other"))
    await node.until_phase("p", "Succeeded")
    assert await node.log("p", "other") == "2\n"
    with pytest.raises(BadRequest) as refused:
        await node.log("p", "")
    assert "a container name must be specified for pod p, choose one of: [main other]" in str(refused.value)


async def test_a_long_line_stays_one_line(node: NodeNamespace) -> None:
    await node.pod("p", python("print('x' * 100_000); print('end')"))
    assert [len(line) for line in (await node.output("p")).splitlines()] == [100_000, 3]


async def test_bytes_that_are_not_text_are_kept(node: NodeNamespace) -> None:
    await node.pod("p", python(r"import sys; sys.stdout.buffer.write(b'\x00\xff\n')"))
    await node.until_phase("p", "Succeeded")
    raw = [line async for line in node.client.logs("p", namespace=node.name)]
    assert b"".join(raw) == b"\x00\xff\n"
