"""The jobs that a user names, `digits` or, as in kubectl, `pytorchjob/digits`: finds them and completes their names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from trainwright.api.kinds import GROUP, KINDS, Kind
from trainwright.cli.errors import CommandError
from trainwright.cli.flags import TargetOptions
from trainwright.cli.jobs.session import Session
from trainwright.cli.spelling import nearest
from trainwright.cli.targets import find_target
from trainwright.kube.client.errors import NotFound
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.paths import value_at

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class JobReference:
    """What a user wrote: the kind, the name, or both."""

    kind: Kind | None
    name: str | None


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job as the cluster has it."""

    kind: Kind
    object: Object
    deleted: bool = False
    """True if it has been deleted since; `object` is its last state."""

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"].get("namespace") or "default")

    @property
    def uid(self) -> str:
        return str(self.object["metadata"]["uid"])

    @property
    def resource_name(self) -> str:
        """`pytorchjob.kubeflow.org/digits`, as kubectl prints it."""
        return f"{self.kind.singular}.{GROUP}/{self.name}"

    @property
    def reference(self) -> str:
        """`pytorchjob/digits`, as a user would write it."""
        return f"{self.kind.singular}/{self.name}"

    @property
    def is_suspended(self) -> bool:
        """Whether the spec asks for it; the pods may still be ending."""
        return bool(value_at(self.object, "spec", "runPolicy", "suspend"))


def kind_named(word: str) -> Kind | None:
    """The kind of `PyTorchJob`, `pytorchjob`, `pytorchjobs` or `pytorchjobs.kubeflow.org`."""
    lower = word.lower().removesuffix(f".v1.{GROUP}").removesuffix(f".{GROUP}")
    return next((kind for kind in KINDS.values() if lower in {kind.singular, kind.plural}), None)


def read_references(words: Sequence[str]) -> list[JobReference]:
    """`digits`, `pytorchjob/digits`, and as in kubectl `pytorchjob digits more`."""
    first = kind_named(words[0]) if words else None
    if first is not None:
        return [JobReference(first, name) for name in words[1:]] or [JobReference(first, None)]
    return [_read_reference(word) for word in words]


def _read_reference(word: str) -> JobReference:
    kind, slash, name = word.rpartition("/")
    if not slash:
        return JobReference(None, word)
    found = kind_named(kind)
    if found is None or not name:
        kinds = ", ".join(kind.singular for kind in KINDS.values())
        raise CommandError(f"{word!r} is not a job: write NAME or KIND/NAME, where KIND is one of {kinds}")
    return JobReference(found, name)


def find_job(session: Session, words: Sequence[str]) -> FoundJob:
    """The one job that the user names."""
    references = read_references(words)
    if len(references) != 1 or references[0].name is None:
        raise CommandError(f"{' '.join(words)!r} does not name one job: write NAME or KIND/NAME")
    return resolve(session, references[0])


def resolve_all(session: Session, words: Sequence[str]) -> list[FoundJob]:
    """The jobs that the user names, each by name: all of them exist."""
    references = read_references(words)
    if not references or any(reference.name is None for reference in references):
        raise CommandError("name the jobs: NAME or KIND/NAME; `trainwright ps` lists them")
    return [resolve(session, reference) for reference in references]


def resolve(session: Session, reference: JobReference) -> FoundJob:
    """The job of a reference; CommandError if there is none, or if several kinds have one of that name."""
    name = reference.name or ""
    kinds = [reference.kind] if reference.kind else KINDS.values()
    found = [job for kind in kinds if (job := _get(session, kind, name))]
    if len(found) > 1:
        candidates = " or ".join(job.reference for job in found)
        raise CommandError(f"several jobs have the name {name} in namespace {session.namespace}: write {candidates}")
    if not found:
        raise CommandError(_not_found(session, reference))
    return found[0]


def list_jobs(
    session: Session, *, kind: Kind | None = None, all_namespaces: bool = False, label_selector: str = ""
) -> list[FoundJob]:
    """The jobs of one kind or of all kinds, by namespace and name. Kinds that the cluster does not serve have none."""
    namespace = None if all_namespaces else session.namespace
    kinds = [kind] if kind else list(KINDS.values())
    jobs: list[FoundJob] = []
    missing: list[Kind] = []
    for wanted in kinds:
        try:
            items = session.client.list(wanted.resource, namespace=namespace, label_selector=label_selector).items
        except NotFound:
            missing.append(wanted)
            continue
        jobs += [FoundJob(wanted, item) for item in items]
    if missing == kinds:
        raise CommandError(
            f"{session.target.name} does not serve {', '.join(unserved.plural for unserved in missing)}: "
            "install the CustomResourceDefinitions with `trainwright crds | kubectl apply --server-side -f -`"
        )
    return sorted(jobs, key=lambda job: (job.namespace, job.name, job.kind.name))


def _get(session: Session, kind: Kind, name: str) -> FoundJob | None:
    try:
        return FoundJob(kind, session.client.get(kind.resource, name, namespace=session.namespace))
    except NotFound:
        return None


def _not_found(session: Session, reference: JobReference) -> str:
    """As kubectl says it, with the nearest name there is."""
    plural = f"{reference.kind.plural}.{GROUP}" if reference.kind else "jobs"
    text = f'{plural} "{reference.name}" not found in namespace {session.namespace}'
    present = list_jobs(session, all_namespaces=True)
    elsewhere = [job for job in present if job.name == reference.name and reference.kind in {None, job.kind}]
    if elsewhere:
        return f"{text}: there is {elsewhere[0].reference} in namespace {elsewhere[0].namespace}, add -n"
    here = [job for job in present if job.namespace == session.namespace]
    if near := nearest(reference.name or "", (job.name for job in here)):
        return f"{text}: did you mean {near}?"
    return f"{text}: `trainwright ps -A{session.target.flags}` lists the jobs"


# Arguments of commands


def job_argument(command: F) -> F:
    """One job: NAME, KIND/NAME, or KIND NAME."""
    return click.argument("job", nargs=-1, required=True, metavar="JOB", shell_complete=complete_jobs)(command)


def jobs_argument(*, required: bool) -> Callable[[F], F]:
    """Any number of jobs."""
    metavar = "JOB…" if required else "[JOB]…"
    return click.argument("jobs", nargs=-1, required=required, metavar=metavar, shell_complete=complete_jobs)


def complete_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of jobs that begin with `incomplete`; KIND/NAME if a kind was begun or two jobs share a name."""
    _ = param
    try:
        names = _job_names(ctx.params)
    except Exception:
        return []
    return [name for name in names if name.startswith(incomplete)]


def _job_names(flags: dict[str, Any]) -> list[str]:
    options = TargetOptions(flags.get("context"), flags.get("kubeconfig"), flags.get("data_dir"))
    target = find_target(options).in_namespace(flags.get("namespace"))
    with SyncClient(target.config, retries=False, timeout=2.0) as client:
        jobs = list_jobs(Session(target, client))
    names = [job.name for job in jobs]
    return [name for name in dict.fromkeys(names) if names.count(name) == 1] + [job.reference for job in jobs]
