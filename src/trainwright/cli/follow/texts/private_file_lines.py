"""What `run` says about files that only the pods of a job can see. Pure."""

import posixpath
from collections.abc import Sequence

from trainwright.cluster.facade import PrivateFile

_SHOWN = 10


def private_file_lines(files: Sequence[tuple[str, PrivateFile]], *, cp: str, removed: bool = False) -> list[str]:
    """Names private files, each with its pod: path, size, how to fetch one and how to keep them.

    `cp` is the command that fetches files, `trainwright cp` with the flags of the cluster. Nothing can be fetched
    if the job is `removed`.
    """
    if removed and files:
        return ["These files were only in the pods, and are deleted with the job because of --rm:", *_table(files)]
    layers = [(pod, file) for pod, file in files if not file.volume]
    volumes = [(pod, file) for pod, file in files if file.volume]
    lines = []
    if layers:
        pod, biggest = max(layers, key=lambda found: found[1].size)
        places = ", ".join(sorted({_top(file.path) for _, file in layers}))
        lines += [
            f"{_count(layers)} private to {_pods(layers)}, and kept until the job is deleted:",
            *_table(layers),
            f"  fetch one:  {cp} {pod}:{biggest.path} .",
            f"  keep them:  write below your home or the directory of the job, or mount a volume at {places}",
        ]
    if volumes:
        names = ", ".join(sorted({file.volume for _, file in volumes}))
        lines += [
            f"{_count(volumes)} in emptyDir volumes, which are deleted with their pods:",
            *_table(volumes),
            f"  keep them:  use a persistentVolumeClaim or a hostPath for volume {names}",
        ]
    return lines


def format_size(size: int) -> str:
    """`812 B`, `12.3 MiB`."""
    if size < 1024:
        return f"{size} B"
    value, unit = float(size), "B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):  # noqa: B007 (the last one reached)
        value /= 1024
        if value < 1023.95:
            break
    return f"{value:.1f} {unit}"


def _table(files: Sequence[tuple[str, PrivateFile]]) -> list[str]:
    """The biggest files first."""
    shown = sorted(files, key=lambda found: -found[1].size)[:_SHOWN]
    width = max(len(pod) for pod, _ in shown)
    lines = [f"  {pod:<{width}}  {file.path}  {format_size(file.size)}" for pod, file in shown]
    rest = len(files) - len(shown)
    return [*lines, f"  and {rest} more, {format_size(sum(file.size for _, file in files))} in all"] if rest else lines


def _count(files: Sequence[object]) -> str:
    return "1 file is" if len(files) == 1 else f"{len(files)} files are"


def _pods(files: Sequence[tuple[str, PrivateFile]]) -> str:
    return "its pod" if len(files) == 1 else "their pods"


def _top(path: str) -> str:
    """The directory to mount a volume at: /tmp of /tmp/run/model.pt; for a file in / the file itself."""
    parts = posixpath.normpath(path).split("/")
    return f"/{parts[1]}"
