"""The state with which following a job begins: without anything that is slow to import."""

import os
import stat
from pathlib import Path

from trainwright.api.job import read_job
from trainwright.cli.follow.state.job_state import JobState
from trainwright.cli.targets import Target
from trainwright.insight.log_progress import Progress, epochs_in_source
from trainwright.objects import Object
from trainwright.objects.node_annotations import DIRECTORY

_MAX_SOURCE = 1024 * 1024


def state_of(job: Object, target: Target) -> JobState:
    """The state of a job as the cluster has it, before anything is known of its pods."""
    state = JobState(read_job(job), job["metadata"]["uid"], python=target.python)
    if target.embedded and state.progress.epochs is None:
        state.progress = Progress(epochs=_epochs_in_program(state))
    return state


def _epochs_in_program(state: JobState) -> int | None:
    """Read from the program on this machine that the job runs, if there is one."""
    directory = (state.object["metadata"].get("annotations") or {}).get(DIRECTORY) or "/"
    programs = [Path(directory, word) for word in state.command if word.endswith(".py")]
    try:
        return epochs_in_source(_beginning(programs[0])) if programs else None
    except (OSError, ValueError):
        return None


def _beginning(path: Path) -> str:
    """The first bytes of a regular file. The job names it: another one might never end, or wait for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return file.read(_MAX_SOURCE).decode(errors="replace")
