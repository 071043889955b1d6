"""`--env`: variables for the training containers, in a Secret that belongs to the job. Values are never printed."""

import base64
import copy
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from trainwright.api.kinds import Kind
from trainwright.cli.errors import CommandError
from trainwright.cli.manifests.reader import JOB_LABEL, Document, OwnedObject
from trainwright.objects import Object
from trainwright.objects.paths import value_at
from trainwright.objects.resources import SECRETS

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def read_variables(words: Iterable[str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The values of `NAME` (from the caller's environment) and `NAME=VALUE`."""
    variables = {}
    for word in words:
        name, given, value = word.partition("=")
        if not _NAME.fullmatch(name):
            # Not quoted: without a name the word may be a value.
            raise CommandError("--env: write NAME or NAME=VALUE; a name has letters, digits and underscores")
        if not given and name not in environment:
            raise CommandError(f"--env {name}: the variable is not set here: export it, or write --env {name}=VALUE")
        variables[name] = value if given else environment[name]
    return variables


def with_variables(documents: Iterable[Document], variables: Mapping[str, str]) -> list[Document]:
    """The documents, with the variables in the training containers of all jobs."""
    documents = list(documents)
    if not variables:
        return documents
    if not any(document.job_kind for document in documents):
        raise CommandError("--env is for jobs: the manifests contain none")
    return [_with_variables(document, variables) for document in documents]


def _with_variables(document: Document, variables: Mapping[str, str]) -> Document:
    kind = document.job_kind
    if kind is None:
        return document
    metadata = document.object["metadata"]
    # With generateName the name of the job is not known yet.
    name = f"{metadata['name']}-env" if metadata.get("name") else f"{document.name}env-{secrets.token_hex(3)}"
    secret: Object = {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.kind,
        "metadata": {"name": name, "labels": {JOB_LABEL: _label(document.name)}},
        "data": {key: base64.b64encode(os.fsencode(value)).decode() for key, value in variables.items()},
    }
    job = copy.deepcopy(document.object)
    for container in _training_containers(job, kind):
        others = [entry for entry in container.get("env") or () if value_at(entry, "name") not in variables]
        container["env"] = others + [
            {"name": key, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}} for key in variables
        ]
    return replace(document, object=job, owned=(*document.owned, OwnedObject(SECRETS, secret)))


def _training_containers(job: Object, kind: Kind) -> Iterator[Object]:
    """The main container of every role; malformed parts of the job are skipped, because validation reports them."""
    replicas = value_at(job, "spec", kind.replicas_field)
    for name, replica in replicas.items() if isinstance(replicas, dict) else ():
        role, containers = kind.role(str(name)), value_at(replica, "template", "spec", "containers")
        if role is None or not isinstance(containers, list):
            continue
        main = kind.container_of(role)
        found = [
            container
            for container in containers
            if isinstance(container, dict) and (not main or container.get("name") == main)
        ]
        yield from found[:1]


def _label(name: str) -> str:
    """Values of labels have at most 63 characters and end with a letter or digit."""
    return name[:63].rstrip("-.")
