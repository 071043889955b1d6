"""From the flags of `run train.py` to the document that is applied. Reads the caller's files and asks no cluster."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from trainwright.api.annotations import PROGRAM
from trainwright.cli.errors import CommandError
from trainwright.cli.machine import has_gpu
from trainwright.cli.manifests.positions import Place
from trainwright.cli.manifests.reader import JOB_LABEL, Document, OwnedObject, is_unicode
from trainwright.cli.program.digests import digests, encoded
from trainwright.cli.program.job import FRAMEWORKS, JobRequest, Mount, code_key, job_name, make_job
from trainwright.cli.program.source import FrameworkGuess, Program, guess_framework
from trainwright.objects import Object
from trainwright.objects.node_annotations import HOST_IMAGE
from trainwright.objects.resources import CONFIG_MAPS

_MAX_CODE = 1 << 20
_REMOTE_WORKDIR = "/trainwright"
_EXAMPLE_IMAGES = {"pytorch": "pytorch/pytorch", "tensorflow": "tensorflow/tensorflow", "paddle": "paddlepaddle/paddle"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFlags:
    """The flags of `run` and `init` that describe a job without a manifest; None or empty: not given."""

    workers: int | None = None
    nproc: str | None = None
    gpus: int | None = None
    framework: str | None = None
    image: str | None = None
    name: str | None = None
    mounts: tuple[str, ...] = ()
    host_network: bool | None = None
    max_restarts: int | None = None

    def given(self) -> list[str]:
        """The flags that were given, as the user wrote them."""
        names = (field.name for field in fields(self) if getattr(self, field.name) not in (None, ()))
        return [f"--{name.replace('mounts', 'mount').replace('_', '-')}" for name in names]


def program_job(
    program: Program,
    flags: ProgramFlags,
    *,
    workdir: Path | None = None,
    python: Path | None = None,
    context: str | None = None,
) -> tuple[Document, list[str]]:
    """The job of a program, and notes about it for the user.

    `context`: the cluster has other nodes than this machine, so that the program travels with the job.
    `python` is the Python of the pods on this machine.
    """
    guess = guess_framework(program, flags.framework)
    request = _request(program, flags, guess)
    directory = (workdir or Path.cwd()).absolute()
    owned: tuple[OwnedObject, ...] = ()
    if context is None:
        request = _on_this_machine(request, flags, directory, python)
    else:
        request, owned = _on_a_cluster(request, flags, workdir, context)
    job = make_job(request)
    job["metadata"]["annotations"][PROGRAM] = encoded(digests(program))
    document = Document(Place(program.name, 0), directory, job, owned)
    # An imported framework explains itself.
    notes = [] if flags.framework or guess.module else [_explanation(program, guess)]
    if context is not None and not flags.mounts:
        notes.append("Files that the program writes are lost with its pods: --mount CLAIM:/path keeps them in a volume")
    if context is None and flags.gpus is None and has_gpu():
        notes.append("The program sees no GPU of this machine: --gpus 1 gives one to each pod")
    return document, notes


def _explanation(program: Program, guess: FrameworkGuess) -> str:
    kind = FRAMEWORKS[guess.framework].with_article
    return f"{program.name} imports no known framework: it runs as {kind} (see --framework)"


def _request(program: Program, flags: ProgramFlags, guess: FrameworkGuess) -> JobRequest:
    """What is the same wherever the job runs."""
    passed_on = ("workers", "nproc", "gpus", "host_network", "max_restarts")
    given = {name: value for name in passed_on if (value := getattr(flags, name)) is not None}
    return JobRequest(
        program=program,
        framework=guess.framework,
        starts_processes=guess.starts_processes,
        uses_mpi4py=guess.module == "mpi4py",
        name=flags.name or job_name(program),
        image=flags.image or HOST_IMAGE,
        script=program.name,
        **given,
    )


# On the embedded cluster


def local_job(program: Program, flags: ProgramFlags, guess: FrameworkGuess, *, script: str) -> Object:
    """The job for a manifest: in the directory of the manifest, without what is true for this caller alone."""
    mounts = tuple(_local_mount(word) for word in flags.mounts)
    return make_job(replace(_request(program, flags, guess), script=script, mounts=mounts))


def _on_this_machine(request: JobRequest, flags: ProgramFlags, directory: Path, python: Path | None) -> JobRequest:
    program, port = request.program, FRAMEWORKS[request.framework].port
    if flags.host_network and flags.workers not in {None, 1} and port:
        raise CommandError(
            f"--host-network --workers {flags.workers}: every pod would have port {port} of this machine, which has "
            "one: leave out --host-network, or start the processes in one pod with --nproc"
        )
    mounts = [_local_mount(word) for word in flags.mounts]
    root = program.root.resolve()
    if program.file and not _is_visible(root, directory):
        mounts.append(Mount(str(root), str(root)))
    return replace(
        request,
        script=program.name if program.is_module or directory == Path.cwd() else str(program.file or program.name),
        python=python.name if python else "python3",
        workdir=str(directory),
        mounts=tuple(mounts),
    )


def _is_visible(path: Path, directory: Path) -> bool:
    """Whether pods have a path of this machine as it is: below the working directory and the home directory."""
    return any(path.is_relative_to(shared.resolve()) for shared in (directory, Path.home()))


def _local_mount(word: str) -> Mount:
    source, target, read_only = _parts(word)
    path = Path(source).expanduser()
    if path.exists():
        return Mount(str(path.absolute()), target, read_only)
    if "/" in source or source.startswith((".", "~")):
        raise CommandError(f"--mount {word}: {path.absolute()} does not exist: create it first")
    return Mount(source, target, read_only, is_claim=True)


def _parts(word: str) -> tuple[str, str, bool]:
    if not is_unicode(word):
        raise CommandError(f"--mount {word!r} is not UTF-8 text: a job cannot contain it")
    parts = word.split(":")
    mode = parts.pop() if len(parts) == 3 else "rw"
    if len(parts) != 2 or not all(parts) or mode not in {"ro", "rw"}:
        raise CommandError(f"--mount {word}: write SOURCE:/path or SOURCE:/path:ro")
    source, target = parts
    if not target.startswith("/") or target.rstrip("/") == "":
        raise CommandError(f"--mount {word}: {target} must be an absolute path below /")
    return source, target.rstrip("/"), mode == "ro"


# On other clusters


def _on_a_cluster(
    request: JobRequest, flags: ProgramFlags, workdir: Path | None, context: str
) -> tuple[JobRequest, tuple[OwnedObject, ...]]:
    program = request.program
    if not flags.image:
        example = _EXAMPLE_IMAGES.get(request.framework, "python")
        raise CommandError(
            f"--image is required for context {context}: name an image with Python and the packages that "
            f"{program.name} imports, such as {example}"
        )
    if workdir and not workdir.is_absolute():
        raise CommandError(f"--workdir {workdir}: for context {context} it must be an absolute path in the pods")
    code = _code(program, request.name, flags.image, context) if program.file else None
    request = replace(
        request,
        script=program.name if program.is_module or program.file is None else program.file.resolve().name,
        workdir=str(workdir or _REMOTE_WORKDIR) if code else str(workdir) if workdir else None,
        mounts=tuple(_claim_mount(word, context) for word in flags.mounts),
        code=code["metadata"]["name"] if code else None,
    )
    return request, (OwnedObject(CONFIG_MAPS, code),) if code else ()


def _claim_mount(word: str, context: str) -> Mount:
    source, target, read_only = _parts(word)
    if "/" in source or source.startswith((".", "~")):
        raise CommandError(
            f"--mount {word}: {source} is a path of this machine, which pods of context {context} do not have: name a "
            "PersistentVolumeClaim"
        )
    return Mount(source, target, read_only, is_claim=True)


def _code(program: Program, job: str, image: str, context: str) -> Object:
    sources = {str(path): text for path, text in program.sources().items()}
    size = sum(len(text) + len(path) for path, text in sources.items())
    if size > _MAX_CODE:
        raise CommandError(_too_large(program, len(sources) - 1, size, image, context))
    texts = {code_key(path): _text(content) for path, content in sources.items()}
    binary = {code_key(path): base64.b64encode(content).decode() for path, content in sources.items()}
    data = {key: text for key, text in texts.items() if text is not None}
    rest = {key: binary[key] for key, text in texts.items() if text is None}
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {"name": f"{job}-code", "labels": {JOB_LABEL: job}},
        "data": data,
        **({"binaryData": rest} if rest else {}),
    }


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _too_large(program: Program, modules: int, size: int, image: str, context: str) -> str:
    word = f"-m {program.name}" if program.is_module else program.name
    files = f"{program.name} and the {modules} modules that it imports have {size / (1 << 20):.1f} MiB"
    return "\n".join(
        [
            f"{files}, and a ConfigMap holds 1 MiB: build an image with them. The Dockerfile:",
            f"  FROM {image}",
            "  WORKDIR /app",
            "  COPY . .",
            "and the commands, with a NAME that the cluster can pull:",
            "  docker build -t NAME . && docker push NAME",
            f"  trainwright init {word} --image NAME -o job.yaml && trainwright run --context {context} job.yaml",
        ]
    )


# What the command prints


def dry_run_text(documents: Sequence[Document], output: str, *, namespace: str | None = None) -> str:
    """The objects as they would be applied. Secrets are left out: their values must not be printed."""
    shown = [
        _in_namespace(obj, namespace)
        for document in documents
        for obj in (*(owned.object for owned in document.owned if owned.resource == CONFIG_MAPS), document.object)
    ]
    if output == "json":
        value = shown[0] if len(shown) == 1 else {"apiVersion": "v1", "kind": "List", "items": shown}
        return json.dumps(value, indent=2, ensure_ascii=False)
    import yaml

    secrets = [owned.object for document in documents for owned in document.owned if owned.resource != CONFIG_MAPS]
    comments = [
        f"# Secret {secret['metadata']['name']} (not shown) has the values of {', '.join(secret['data'])}"
        for secret in secrets
    ]
    texts = [yaml.safe_dump(obj, sort_keys=False, allow_unicode=True, width=10_000) for obj in shown]
    return "\n".join([*comments, "---\n".join(texts).rstrip("\n")])


def _in_namespace(obj: Object, namespace: str | None) -> Object:
    metadata = obj["metadata"]
    if not namespace or metadata.get("namespace"):
        return obj
    name = {key: metadata[key] for key in ("name", "generateName") if key in metadata}
    return {**obj, "metadata": {**name, "namespace": namespace, **metadata}}
