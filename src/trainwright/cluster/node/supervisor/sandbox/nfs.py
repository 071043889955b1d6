"""Mounts the NFS volumes of a pod in its mount namespace, so that they end with it. Standard library only."""

from __future__ import annotations

import os
import select
import signal

TYPE_CHECKING = False  # importing typing takes four milliseconds
if TYPE_CHECKING:
    from trainwright.cluster.node.supervisor.pod_json import NfsVolumeJson

_SECONDS = 60.0


def mount_all(program: str, volumes: list[NfsVolumeJson]) -> str:
    """As root, in the namespaces of the pod. Returns the failure in the kubelet's words, in one line; empty if none."""
    for volume in volumes:
        arguments = [program, volume["source"], volume["path"], "-o", volume["options"]]
        reader, writer = os.pipe()
        child = os.posix_spawn(
            program,
            arguments,
            {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
            file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, writer, 2)],
            setsigmask=[],
        )
        os.close(writer)
        output = _read(reader, child)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            text = " ".join(output.decode(errors="replace").split())
            command = f"Mounting command: mount.nfs Mounting arguments: {' '.join(arguments[1:])} Output: {text}"
            return (
                f'MountVolume.SetUp failed for volume "{volume["name"]}" : mount failed: exit status {status} {command}'
            )
    return ""


def _read(reader: int, child: int) -> bytes:
    """The output of the child, which is killed if it takes too long."""
    output = b""
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], _SECONDS)[0]:
            piece = pipe.read(4096)
            if not piece:
                return output
            output += piece
    os.kill(child, signal.SIGKILL)
    return output + b"timed out"
