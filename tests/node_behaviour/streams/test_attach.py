"""attach and run: the streams of a container's own program."""

import pytest

from tests.support.node.namespace import IMAGE, NodeNamespace, container

OVERRIDES = f"--image={IMAGE}"


async def run(node: NodeNamespace, *flags: str, script: str, stdin: bytes | None = None) -> tuple[int, str, str]:
    options = ("--rm", "--restart=Never", "--quiet", f"--image={IMAGE}", *flags)
    return await node.kubectl("run", "r", *options, "--command", "--", "sh", "-c", script, stdin=stdin)


async def test_run_sends_stdin_and_shows_all_output(node: NodeNamespace) -> None:
    code, output, _ = await run(node, "-i", script="read a; echo got $a; cat; echo end", stdin=b"one\ntwo\nthree\n")
    assert code == 0
    assert output.startswith("got one\ntwo\nthree\nend\n")


@pytest.mark.parametrize("code", [0, 3])
async def test_run_exits_with_the_code_of_the_program(node: NodeNamespace, code: int) -> None:
    found, _, _ = await run(node, "-i", script=f"cat; exit {code}", stdin=b"")
    assert found == code


async def test_run_removes_the_pod(node: NodeNamespace) -> None:
    await run(node, "-i", script="cat", stdin=b"")
    await node.until_gone("r")


async def test_stdin_of_a_container_without_stdin_is_empty(node: NodeNamespace) -> None:
    await node.pod("p", container("cat; echo end"))
    assert await node.output("p") == "end\n"


async def test_stdin_once_ends_with_the_first_session(node: NodeNamespace) -> None:
    await node.pod("p", container("cat; echo end", stdin=True, stdinOnce=True))
    await node.until_container("p", "running")
    await node.kubectl("attach", "-i", "p", stdin=b"first\n")
    assert await node.output("p") == "first\nend\n"


async def test_stdin_stays_open_for_the_next_session(node: NodeNamespace) -> None:
    await node.pod("p", container("read a; echo got $a; read b; echo got $b", stdin=True))
    await node.until_container("p", "running")
    for text, expected in ((b"one\n", "got one"), (b"two\n", "got two")):
        session = await node.start_kubectl("attach", "-i", "p", stdin=True)
        assert session.stdin is not None
        session.stdin.write(text)
        await session.stdin.drain()
        await node.until_log("p", expected)
        if session.returncode is None:
            session.terminate()
        await session.wait()
    await node.until_phase("p", "Succeeded")


async def test_container_with_tty_has_a_terminal(node: NodeNamespace) -> None:
    await node.pod("p", container("test -t 0 && test -t 1 && test -t 2 && echo terminal $TERM", stdin=True, tty=True))
    assert (await node.output("p")).replace("\r", "") == "terminal xterm\n"


async def test_attach_shows_what_is_printed_from_now_on(node: NodeNamespace) -> None:
    mounts, volumes = [{"name": "v", "mountPath": "/v"}], [{"name": "v", "emptyDir": {}}]
    script = (
        "echo before; until [ -e /v/go ]; do sleep 0.05; done; echo after; until [ -e /v/end ]; do sleep 0.05; done"
    )
    await node.pod("p", container(script, volumeMounts=mounts), volumes=volumes)
    await node.until_log("p", "before")
    session = await node.start_kubectl("attach", "p")
    assert session.stderr is not None
    await session.stderr.readline()  # kubectl's warning; then it attaches
    await node.exec("p", "touch", "/v/go")
    await node.until_log("p", "after")
    await node.exec("p", "touch", "/v/end")
    output, _ = await session.communicate()
    assert output in {b"after\n", b""}  # empty if the container was faster than kubectl
