"""Commands and files in the containers of running pods, by exec: on any cluster that the user may exec in."""

import asyncio
import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from trainwright.cli.errors import CommandError
from trainwright.cli.jobs.pods.ranks import RankPod
from trainwright.cli.jobs.references import FoundJob
from trainwright.cli.jobs.session import Session
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.exec_session import ExecResult

_CHUNK = 64 * 1024
_NO_COMMAND = (126, 127)


def run_in_pod(session: Session, job: FoundJob, pod: RankPod, *command: str) -> ExecResult:
    return session.client.exec(pod.name, command, namespace=job.namespace, container=job.kind.container)


def fetch(session: Session, job: FoundJob, pod: RankPod, path: str, base: Path) -> Iterator[tuple[str, Path]]:
    """Copies a file, or a directory, to `base`; yields each path in the pod and the new file. Links are followed."""
    place = PurePosixPath(path)
    with tempfile.TemporaryFile() as archive:
        _transfer(session, job, pod, ["tar", "chf", "-", "-C", str(place.parent), place.name or "."], output=archive)
        archive.seek(0)
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            for member in tar:
                inner = PurePosixPath(member.name).relative_to(place.name or ".")
                if member.isfile() and ".." not in inner.parts:
                    target = base / inner if inner.parts else base
                    target.parent.mkdir(parents=True, exist_ok=True)
                    content = tar.extractfile(member)
                    with target.open("wb") as file:
                        shutil.copyfileobj(content or io.BytesIO(), file)
                    yield str(place / inner), target


def send(session: Session, job: FoundJob, pod: RankPod, source: Path, path: str) -> str:
    """Copies a file, or a directory, into the pod; returns its path there."""
    place = PurePosixPath(path)
    if path.endswith("/") or run_in_pod(session, job, pod, "test", "-d", path).exit_code == 0:
        place /= source.resolve().name
    with tempfile.TemporaryFile() as archive:
        with tarfile.open(fileobj=archive, mode="w:", dereference=True) as tar:
            tar.add(source, arcname=place.name)
        archive.seek(0)
        _transfer(session, job, pod, ["tar", "xmf", "-", "-C", str(place.parent)], source=archive)
    return str(place)


def _transfer(
    session: Session,
    job: FoundJob,
    pod: RankPod,
    command: list[str],
    *,
    output: IO[bytes] | None = None,
    source: IO[bytes] | None = None,
) -> None:
    """Runs tar in the pod; the archive goes through a file, because models are larger than memory."""

    async def transfer() -> tuple[int, str]:
        errors = []
        async with (
            Client(session.target.config) as client,
            client.start_exec(
                pod.name, command, namespace=job.namespace, container=job.kind.container, stdin=source is not None
            ) as running,
            asyncio.TaskGroup() as tasks,
        ):

            async def write(file: IO[bytes]) -> None:
                while chunk := file.read(_CHUNK):
                    await running.write(chunk)
                await running.close_stdin()

            writing = tasks.create_task(write(source)) if source else None
            async for part in running.output():
                if part.is_error:
                    errors.append(part.data)
                elif output is not None:
                    output.write(part.data)
            if writing is not None:
                writing.cancel()
            return running.exit_code, b"".join(errors).decode(errors="replace").strip()
        raise AssertionError  # the context managers suppress nothing

    code, error = asyncio.run(transfer())
    if code in _NO_COMMAND:
        raise CommandError(f"{pod.rank} has no tar, which copies files: install it in the image ({error})")
    if code:
        raise CommandError(f"tar failed in {pod.rank} with exit code {code}: {error}")
