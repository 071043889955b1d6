"""Validates manifests before anything is applied, so that they are applied completely or not at all.

First come the checks of our own kinds. Then every object is created with dryRun on the API server that will store it,
with strict field validation: a misspelled field, also deep in a pod template, is reported with its path.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from trainwright.api.errors import InvalidJob, not_supported
from trainwright.api.job import Job, read_job
from trainwright.api.kinds import GROUP, KINDS, Kind
from trainwright.api.types import CLEAN_POD_POLICIES
from trainwright.cli.errors import CommandError
from trainwright.cli.manifests.decode_errors import explain_type_error
from trainwright.cli.manifests.reader import Document
from trainwright.cli.spelling import did_you_mean, nearest, unknown_fields
from trainwright.kube.client.discovery import discovery_path, read_resources
from trainwright.kube.client.errors import AlreadyExists, ApiError, BadRequest, Invalid, NotFound, is_undecodable
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.paths import value_at
from trainwright.objects.resources import BUILT_IN, NAMESPACES, PODS, Resource

_DRY_RUN = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "trainwright"}
_UNKNOWN_FIELD = "unknown field"
_PLANNED_VERSIONS = frozenset({("MPIJob", f"{GROUP}/v2beta1")})


@dataclass(frozen=True, slots=True)
class ValidObject:
    """A document that has passed validation, with its resource and namespace; `job` if it is a job."""

    document: Document
    resource: Resource
    namespace: str | None
    job: Job | None
    spec: Object | None = None
    """A job's spec as the server would store it, with its defaults."""

    @property
    def title(self) -> str:
        """`pytorchjob.kubeflow.org/digits`, as kubectl prints it."""
        group = f".{self.resource.group}" if self.resource.group else ""
        return f"{self.resource.kind.lower()}{group}/{self.document.name}"


def validate(documents: Iterable[Document], client: SyncClient, namespace: str) -> list[ValidObject]:
    """The validated objects; a CommandError lists every error of every document."""
    mapper = ResourceMapper(client)
    problems: list[str] = []
    items: list[ValidObject] = []
    for document in documents:
        try:
            resource = mapper.resource(document)
        except CommandError as error:
            problems.append(error.message)
            continue
        target = (document.namespace or namespace) if resource.namespaced else None
        try:
            items.append(ValidObject(document, resource, target, _job(document, resource, target)))
        except InvalidJob as invalid:
            # A field may be missing because it is misspelled: misspelled fields come first.
            errors = [(error.path, str(error)) for error in invalid.errors]
            _report(problems, document, [*_misspelled_fields(document, resource, target, client), *errors])
    namespaces = _dry_run_namespaces(items, client)
    validated = [_dry_run(item, client, namespaces, problems) for item in items]
    if problems:
        lines = [line for problem in problems for line in problem.splitlines()]
        raise CommandError("\n  ".join(["nothing was applied:", *lines]) if len(problems) > 1 else problems[0])
    return validated


class ResourceMapper:
    """Finds the resource of a kind by discovery, with one request per group and version."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client
        self._served: dict[str, dict[str, Resource]] = {}

    def resource(self, document: Document) -> Resource:
        if document.api_version not in self._served:
            self._served[document.api_version] = self._discover(document.api_version)
        served = self._served[document.api_version]
        found = served.get(document.kind)
        if found is None:
            raise CommandError(unknown_kind(document, served))
        return found

    def _discover(self, api_version: str) -> dict[str, Resource]:
        try:
            response = self._client.raw("GET", discovery_path(api_version))
        except NotFound:
            return {}
        return {found.resource.kind: found.resource for found in read_resources(api_version, response)}


def unknown_kind(document: Document, served: Mapping[str, Resource]) -> str:
    """The error for a kind that the server does not serve: kubectl's text, and a suggestion."""
    return document.place.error("kind", _unknown_kind(document, served))


def _unknown_kind(document: Document, served: Mapping[str, Resource]) -> str:
    error = f'no matches for kind "{document.kind}" in version "{document.api_version}"'
    ours = KINDS.get(document.kind)
    if ours and document.api_version == ours.resource.api_version:
        return f"{error}: its CRD is not installed; install it with `trainwright operator --install-crds`"
    if ours and (document.kind, document.api_version) in _PLANNED_VERSIONS:
        return f"{error}: this version is not supported yet; write the job for {ours.resource.api_version}"
    known = {resource.kind: resource.api_version for resource in (*_our_resources(), *BUILT_IN, *served.values())}
    if document.kind in known:
        return f"{error}: the apiVersion of {document.kind} is {known[document.kind]}"
    near = nearest(document.kind, known)
    hint = f"did you mean {near} ({known[near]})?" if near else f"known kinds: {', '.join(sorted(known))}"
    return f"{error}: {hint}"


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
        # Operators treat any unknown value as All: `none` would delete the pods and their logs.
        raise InvalidJob([not_supported("spec.runPolicy.cleanPodPolicy", policy, CLEAN_POD_POLICIES)])
    return job


# Dry run


def _dry_run_namespaces(items: Iterable[ValidObject], client: SyncClient) -> dict[str, str]:
    """For each namespace that the manifests will create, the one that is used in its place for the dry run."""
    created = {item.document.name for item in items if item.resource == NAMESPACES}
    substitutes = {}
    for name in created:
        try:
            client.get(NAMESPACES, name)
        except NotFound:
            substitutes[name] = "default"
    return substitutes


def _dry_run(item: ValidObject, client: SyncClient, namespaces: Mapping[str, str], problems: list[str]) -> ValidObject:
    """Adds the server's errors about the object and a job's pod templates to `problems`; returns it with its spec."""
    namespace = namespaces.get(item.namespace or "", item.namespace)
    report = partial(_report, problems, item.document)
    stored: Object = {}
    try:
        stored = msgspec.json.decode(
            client.raw("POST", item.resource.path(namespace), params=_DRY_RUN, body=_dry_run_object(item, namespace))
        )
    except AlreadyExists:
        pass  # apply handles existing objects
    except NotFound as error:
        if namespace and error.resource == NAMESPACES.plural:
            fix = f"create it with `kubectl create namespace {namespace}`"
            report([("", f'namespace "{namespace}" not found: {fix}')])
        else:
            report([("", error.message)])
        return item
    except (BadRequest, Invalid) as error:
        report(_error_lines(error, item.resource, item.document.object))
    except ApiError as error:
        report([("", error.message)])
        return item
    if item.job:
        report(_template_errors(item.document, item.job.kind, client, namespace))
    return replace(item, spec=stored.get("spec"))


_Error = tuple[str, str]
"""The path of a field, and the whole message about it; an empty path: the error is about the object."""


def _report(problems: list[str], document: Document, errors: Iterable[_Error]) -> None:
    title = f"{document.kind} {document.name}: "
    problems += [document.place.error(path, message, title=title) for path, message in errors]


def _dry_run_object(item: ValidObject, namespace: str | None) -> Object:
    """The object for the dry run. A job gets a generated name, so that an existing job is no conflict."""
    metadata = {**item.document.object["metadata"]}
    if namespace:
        metadata["namespace"] = namespace
    if item.job and metadata.pop("name", None):
        metadata["generateName"] = f"{item.job.name}-"
    return {**item.document.object, "metadata": metadata}


def _misspelled_fields(
    document: Document, resource: Resource, namespace: str | None, client: SyncClient
) -> Iterator[_Error]:
    """The unknown fields of an invalid job."""
    obj = {**document.object, "metadata": {"generateName": "trial-"}}
    try:
        client.raw("POST", resource.path(namespace), params=_DRY_RUN, body=obj)
    except ApiError as error:
        if unknown_fields(error.message):
            yield from _error_lines(error, resource, obj)
    for path, message in _template_errors(document, KINDS[resource.kind], client, namespace):
        if message.startswith(_UNKNOWN_FIELD):
            yield path, message


def _template_errors(document: Document, kind: Kind, client: SyncClient, namespace: str | None) -> Iterator[_Error]:
    """Errors in a job's pod templates, which its CRD leaves open: each template is tried as a pod."""
    tried: list[Object] = []
    for path, spec in _templates(document.object, kind):
        if spec in tried:
            continue  # roles often share a template
        tried.append(spec)
        pod = {
            "apiVersion": PODS.api_version,
            "kind": PODS.kind,
            "metadata": {"generateName": "trial-", "namespace": namespace},
            "spec": spec,
        }
        try:
            client.raw("POST", PODS.path(namespace), params=_DRY_RUN, body=pod)
        except (BadRequest, Invalid) as error:
            if isinstance(error, Invalid) or is_undecodable(error) or unknown_fields(error.message):
                yield from _error_lines(error, PODS, pod, path)
        except ApiError:
            # Permissions, quotas and admission of pods concern the operator, not the user who creates the job.
            continue


def _templates(job: Object, kind: Kind) -> Iterator[tuple[str, Object]]:
    """Path and pod spec of each pod template; malformed ones are skipped."""
    replicas = value_at(job, "spec", kind.replicas_field)
    for role, replica in replicas.items() if isinstance(replicas, dict) else ():
        spec = value_at(replica, "template", "spec")
        if isinstance(spec, dict):
            yield f"spec.{kind.replicas_field}[{role}].template.", spec


def _error_lines(error: ApiError, resource: Resource, obj: Object, prefix: str = "") -> Iterator[_Error]:
    """The errors in the server's answer one by one, with full paths and suggestions for misspelled fields."""
    fields = unknown_fields(error.message)
    for path in fields:
        near = _suggestion(path, resource)
        hint = f"did you mean `{near}`?" if near else "remove it, or check its place and indentation"
        yield f"{prefix}{path}", f"{_UNKNOWN_FIELD} `{prefix}{path}`: {hint}"
    if fields:
        return
    for cause in error.causes:
        yield f"{prefix}{cause.field}", f"{prefix}{cause.field}: {cause.message}"
    if error.causes:
        return
    if type_error := explain_type_error(error.message, obj):
        yield f"{prefix}{type_error.partition(': ')[0]}", f"{prefix}{type_error}"
    else:
        template = prefix.rstrip(".")
        yield template, f"{template}: {error.message}" if template else error.message


def _suggestion(path: str, resource: Resource) -> str | None:
    # Imported here because schemas are only needed after an error.
    from trainwright.api.crd import render_crd
    from trainwright.cluster.facade import builtin_schema

    if resource in BUILT_IN:
        return did_you_mean(path, builtin_schema(resource.kind), builtin_schema)
    if resource in _our_resources():
        version: Object = render_crd(KINDS[resource.kind])["spec"]["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        # The schema of a CRD does not contain the fields of metadata.
        properties = {**schema["properties"], "metadata": {"$ref": "ObjectMeta"}}
        return did_you_mean(path, {**schema, "properties": properties}, builtin_schema)
    return None
