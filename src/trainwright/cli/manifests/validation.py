"""Finds everything that is wrong with manifests before anything is applied: nothing is ever half applied.

Our own rules speak first. Then the server that would store the objects is asked to try them without keeping them, so
that a misspelt field, also deep in a pod template, is refused by name.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from trainwright.api.errors import InvalidJob, not_supported
from trainwright.api.job import Job, read_job
from trainwright.api.kinds import GROUP, KINDS, Kind
from trainwright.api.types import CLEAN_POD_POLICIES
from trainwright.cli.errors import Problem
from trainwright.cli.manifests.decode_errors import misfit
from trainwright.cli.manifests.reader import Document
from trainwright.cli.manifests.spelling import did_you_mean, nearest, unknown_fields
from trainwright.kube.client.errors import AlreadyExists, ApiError, BadRequest, Invalid, NotFound
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.paths import value_at
from trainwright.objects.resources import BUILT_IN, NAMESPACES, PODS, Resource

_TRIAL = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "trainwright"}
_UNKNOWN_FIELD = "unknown field"


@dataclass(frozen=True, slots=True)
class Item:
    """A document that has been checked: what it is on the server, where it goes, and the job that it is, if one."""

    document: Document
    resource: Resource
    namespace: str | None
    job: Job | None
    spec: Object | None = None
    """A job's spec as the server would store it, its defaults filled in."""

    @property
    def title(self) -> str:
        """`pytorchjob.kubeflow.org/digits`, as kubectl calls it."""
        group = f".{self.resource.group}" if self.resource.group else ""
        return f"{self.resource.kind.lower()}{group}/{self.document.name}"


def check(documents: Iterable[Document], client: SyncClient, namespace: str) -> list[Item]:
    """The objects as the server will know them, or a Problem with everything that is wrong with them."""
    catalogue = Catalogue(client)
    problems: list[str] = []
    items: list[Item] = []
    for document in documents:
        try:
            resource = catalogue.resource(document)
        except Problem as problem:
            problems.append(problem.message)
            continue
        target = (document.namespace or namespace) if resource.namespaced else None
        try:
            items.append(Item(document, resource, target, _job(document, resource, target)))
        except InvalidJob as refused:
            # What is missing may only be misspelt: that is said first.
            said = [*_misspellings(document, resource, target, client), *map(str, refused.errors)]
            _complain(problems, _title(document), said)
    places = _trial_places(items, client)
    tried = [_tried(item, client, places, problems) for item in items]
    if problems:
        raise Problem("\n  ".join(["nothing was applied:", *problems]) if len(problems) > 1 else problems[0])
    return tried


class Catalogue:
    """The kinds that the server serves, asked for once per group and version."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client
        self._served: dict[str, dict[str, Resource]] = {}

    def resource(self, document: Document) -> Resource:
        served = self._of(document.api_version)
        found = served.get(document.kind)
        if found is None:
            raise Problem(unknown_kind(document, served))
        return found

    def _of(self, api_version: str) -> dict[str, Resource]:
        if api_version not in self._served:
            self._served[api_version] = self._ask(api_version)
        return self._served[api_version]

    def _ask(self, api_version: str) -> dict[str, Resource]:
        group, _, version = api_version.rpartition("/")
        path = f"/apis/{api_version}" if group else f"/api/{version}"
        try:
            answer = msgspec.json.decode(self._client.raw("GET", path))
        except NotFound:
            return {}
        return {
            entry["kind"]: Resource(group, version, entry["name"], entry["kind"], namespaced=bool(entry["namespaced"]))
            for entry in answer.get("resources") or ()
            if "/" not in entry["name"]
        }


def unknown_kind(document: Document, served: Mapping[str, Resource]) -> str:
    """What to say about a kind that the server does not serve."""
    written = f"{document.where}: unknown kind {document.kind} of {document.api_version}"
    ours = KINDS.get(document.kind)
    if ours and document.api_version == ours.resource.api_version:
        return f"{written}: the cluster does not serve it; install it with `trainwright operator --install-crds`"
    known = {resource.kind: resource.api_version for resource in (*_our_resources(), *BUILT_IN, *served.values())}
    if document.kind in known:
        return f"{written}: {document.kind} is of apiVersion {known[document.kind]}"
    near = nearest(document.kind, known)
    hint = f"did you mean {near} ({known[near]})? " if near else ""
    return f"{written}: {hint}Known are {', '.join(sorted(known))}"


def _our_resources() -> list[Resource]:
    return [kind.resource for kind in KINDS.values()]


def _job(document: Document, resource: Resource, namespace: str | None) -> Job | None:
    if resource.group != GROUP or resource.kind not in KINDS:
        return None
    metadata = {**document.object["metadata"], "namespace": namespace}
    metadata.setdefault("name", f"{metadata.get('generateName')}xxxxx")
    job = read_job({**document.object, "metadata": metadata})
    policy = str(job.run_policy.clean_pod_policy)
    if policy not in CLEAN_POD_POLICIES:
        # Operators take any other word for All and delete pods with their output, also if None was meant.
        raise InvalidJob([not_supported("spec.runPolicy.cleanPodPolicy", policy, CLEAN_POD_POLICIES)])
    return job


# Trying on the server


def _trial_places(items: Iterable[Item], client: SyncClient) -> dict[str, str]:
    """Where each namespace's objects are tried: namespaces that these manifests bring themselves are not there yet."""
    brought = {item.document.name for item in items if item.resource == NAMESPACES}
    places = {}
    for name in brought:
        try:
            client.get(NAMESPACES, name)
        except NotFound:
            places[name] = "default"
    return places


def _tried(item: Item, client: SyncClient, places: Mapping[str, str], problems: list[str]) -> Item:
    """Adds what the server says against the object, and against each pod template of a job; the item with its spec."""
    namespace = places.get(item.namespace or "", item.namespace)
    complain = partial(_complain, problems, _title(item.document))
    stored: Object = {}
    try:
        stored = msgspec.json.decode(
            client.raw("POST", item.resource.path(namespace), params=_TRIAL, body=_on_trial(item, namespace))
        )
    except AlreadyExists:
        pass  # what is there already is dealt with when it is applied
    except NotFound as error:
        missing = f"the namespace {namespace} does not exist; create it with `kubectl create namespace {namespace}`"
        complain([missing if namespace and "namespaces" in error.message else error.message])
        return item
    except (BadRequest, Invalid) as error:
        complain(_refusals(error, item.resource, item.document.object))
    except ApiError as error:
        complain([error.message])
        return item
    if item.job:
        complain(_templates_tried(item.document, item.job.kind, client, namespace))
    return replace(item, spec=stored.get("spec"))


def _complain(problems: list[str], title: str, said: Iterable[str]) -> None:
    problems += [f"{title}: {text}" for text in said]


def _on_trial(item: Item, namespace: str | None) -> Object:
    """The object as it is tried: a job under no name, so that one that is there already is not in the way."""
    metadata = {**item.document.object["metadata"]}
    if namespace:
        metadata["namespace"] = namespace
    if item.job and metadata.pop("name", None):
        metadata["generateName"] = f"{item.job.name}-"
    return {**item.document.object, "metadata": metadata}


def _misspellings(document: Document, resource: Resource, namespace: str | None, client: SyncClient) -> Iterator[str]:
    """The unknown fields of a job that is not fit to be tried otherwise."""
    obj = {**document.object, "metadata": {"generateName": "trial-"}}
    try:
        client.raw("POST", resource.path(namespace), params=_TRIAL, body=obj)
    except ApiError as error:
        if unknown_fields(error.message):
            yield from _refusals(error, resource, obj)
    for said in _templates_tried(document, KINDS[resource.kind], client, namespace):
        if said.startswith(_UNKNOWN_FIELD):
            yield said


def _templates_tried(document: Document, kind: Kind, client: SyncClient, namespace: str | None) -> Iterator[str]:
    """A job's schema leaves pod templates open; as a pod, each of them is checked to the last field."""
    for place, spec in _templates(document.object, kind):
        pod = {
            "apiVersion": PODS.api_version,
            "kind": PODS.kind,
            "metadata": {"generateName": "trial-", "namespace": namespace},
            "spec": spec,
        }
        try:
            client.raw("POST", PODS.path(namespace), params=_TRIAL, body=pod)
        except (BadRequest, Invalid) as error:
            undecodable = f"cannot be handled as a {PODS.kind}" in error.message
            if isinstance(error, Invalid) or undecodable or unknown_fields(error.message):
                yield from _refusals(error, PODS, pod, place)
        except ApiError:
            # Rights, quotas and admission of pods are the operator's affair, not that of whoever brings the job.
            continue


def _templates(job: Object, kind: Kind) -> Iterator[tuple[str, Object]]:
    """Where the job's pod templates stand and the pod specs in them, as far as the job makes sense."""
    replicas = value_at(job, "spec", kind.replicas_field)
    for role, replica in replicas.items() if isinstance(replicas, dict) else ():
        spec = value_at(replica, "template", "spec")
        if isinstance(spec, dict):
            yield f"spec.{kind.replicas_field}[{role}].template.", spec


def _refusals(error: ApiError, resource: Resource, obj: Object, place: str = "") -> Iterator[str]:
    """The server's complaints one by one, each with its full path and, for a misspelt field, what may be meant."""
    fields = unknown_fields(error.message)
    for path in fields:
        near = _meant(path, resource)
        hint = f"did you mean `{near}`?" if near else "remove it, or check its place and indentation"
        yield f"{_UNKNOWN_FIELD} `{place}{path}`: {hint}"
    if fields:
        return
    causes: list[Object] = value_at(error.status, "details", "causes", default=[])
    for cause in causes:
        yield f"{place}{cause.get('field', '')}: {cause.get('message', '')}"
    if causes:
        return
    told = misfit(error.message, obj)
    whole = f"{place.rstrip('.')}: " if place else ""
    yield f"{place}{told}" if told else f"{whole}{error.message}"


def _meant(path: str, resource: Resource) -> str | None:
    # Imported here: schemas are only needed to explain a mistake.
    from trainwright.api.crd import render_crd
    from trainwright.cluster.embedded import builtin_schema

    if resource in BUILT_IN:
        return did_you_mean(path, builtin_schema(resource.kind), builtin_schema)
    if resource in _our_resources():
        version: Object = render_crd(KINDS[resource.kind])["spec"]["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        # A CRD does not spell out the metadata that all kinds share.
        shared = {**schema["properties"], "metadata": {"$ref": "ObjectMeta"}}
        return did_you_mean(path, {**schema, "properties": shared}, builtin_schema)
    return None


def _title(document: Document) -> str:
    return f"{document.where}: {document.kind} {document.name}"
