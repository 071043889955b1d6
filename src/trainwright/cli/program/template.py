"""The manifest that `trainwright init` writes: a job with comments, to start from."""

import re

import yaml

from trainwright.api.kinds import KINDS
from trainwright.objects import Object

_COMMENTS = {
    "trainwright.dev/restart-scope": "If one pod fails, all restart: a rank cannot rejoin the others of its group.",
    "backoffLimit": "After so many failures the job fails; 0: at the first one.",
    "nprocPerNode": "Processes per pod, started by torchrun.",
    "slotsPerWorker": "Processes per worker.",
    "successPolicy": "Otherwise the job ends as soon as worker 0 has finished.",
    "Master": "Rank 0. It decides when the job has succeeded.",
    "Launcher": "Runs mpirun, which starts the program in the workers. It decides when the job has succeeded.",
    "Worker": "The other ranks.",
    "restartPolicy": "OnFailure: restart; ExitCode: restart only if a signal ended it; Never: the job fails.",
    "image": "trainwright/host: the files and the Python of this machine. Other clusters need an image.",
    "command": "In the directory of this file.",
    "env": "Secrets do not belong here: `trainwright run --env NAME` passes them.",
}
"""By key, for its first occurrence."""
_GPU = ("# resources:", "#   limits: {nvidia.com/gpu: 1}")
_MOUNT = ("# volumeMounts:", "#   - {name: models, mountPath: /models}")
_VOLUME = ("# volumes:", "#   - {name: models, persistentVolumeClaim: {claimName: models}}")
_KEY = re.compile(r"(?P<indent> *)(?P<item>- )?(?P<key>[\w./-]+):")


def commented_manifest(job: Object, *, title: str) -> str:
    """The job as YAML. `title` is its first line."""
    kind = KINDS[job["kind"]]
    pods = [role.child_name("NAME", 0) for role in kind.roles if role.name in job["spec"][kind.replicas_field]]
    comments = {"name": f"Also the name of its pods: {', '.join(pods)} …", **_COMMENTS}
    text = yaml.safe_dump(job)
    if "Launcher" in text:
        comments["Worker"] = "They wait for mpirun, and have no command."
    elif "Master" not in text:
        comments["Worker"] = "All ranks."
    lines = [f"# {title}", "# Reference: docs/reference/jobs.md; `trainwright run FILE --dry-run` checks it."]
    for line in yaml.dump(job, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000).splitlines():
        match = _KEY.match(line)
        if match and (comment := comments.pop(match["key"], None)):
            lines.append(f"{match['indent']}# {comment}")
        lines.append(line)
    return "\n".join(_with_options(lines)) + "\n"


def _with_options(lines: list[str]) -> list[str]:
    """Adds what many jobs need, as comments, to the first container."""
    start = next(at for at, line in enumerate(lines) if line.lstrip().startswith("containers:"))
    indent = len(lines[start]) - len(lines[start].lstrip())
    rest = range(start + 1, len(lines))
    end = next((at for at in rest if len(lines[at]) - len(lines[at].lstrip()) <= indent), len(lines))
    present = "".join(lines)
    inner = [*(() if "resources:" in present else _GPU), *(() if "volumes:" in present else _MOUNT)]
    outer = () if "volumes:" in present else _VOLUME
    added = [f"{' ' * (indent + 4)}{line}" for line in inner] + [f"{' ' * indent}{line}" for line in outer]
    return [*lines[:end], *added, *lines[end:]]


class _Dumper(yaml.SafeDumper):
    """Indents lists below their key and writes commands in one line."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        _ = indentless
        super().increase_indent(flow, indentless=False)


def _represent_list(dumper: yaml.SafeDumper, items: list[object]) -> yaml.Node:
    words = all(isinstance(item, str) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=words)


_Dumper.add_representer(list, _represent_list)
