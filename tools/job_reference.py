"""Writes the generated blocks of the reference pages of jobs; with --check it only names the pages that are stale.

The prose and the example of a page are written by hand. A block stands between two comments and is generated from what
the code uses: the CRDs, the rows of kinds and roles, plans for the page's example, and admission of broken variants.
"""

import copy
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import yaml
from job_reference_data import ABSENT, CASES, MEANINGS, VARIANTS, WARNINGS, Case

from trainwright.api.crd import render_crd
from trainwright.api.defaults import main_container
from trainwright.api.errors import InvalidJob
from trainwright.api.job import read_job
from trainwright.api.job_admission import review
from trainwright.api.kinds import KINDS, PYTORCH, Kind, Role
from trainwright.api.types import MAX_REPLICAS, AdditionalStatus, EarlierRunPolicy
from trainwright.cluster.apiserver.schema.builtin import definition
from trainwright.cluster.apiserver.schema.decoding import ObjectSchema
from trainwright.engine import Observed, Plan, Settings, plan
from trainwright.objects import Object
from trainwright.objects.kinds.pods import read_pod
from trainwright.objects.times import format_time

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
BLOCK = re.compile(
    r"(?P<begin><!-- made by tools/job_reference\.py: (?P<name>[a-z ]+) -->\n).*?(?P<end><!-- until here -->\n)",
    re.DOTALL,
)
EXAMPLE = re.compile(r"^\$ cat > \w+\.yaml <<'EOF'\n(?P<manifest>(?:> .*\n)+?)> EOF\n", re.MULTILINE)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


# The page and its example


def page_of(kind: Kind) -> Path:
    return REFERENCE / f"{kind.singular}.md"


def example_of(kind: Kind) -> Object:
    """The manifest on the kind's page, as the API server would store it."""
    match = EXAMPLE.search(page_of(kind).read_text())
    assert match, f"{page_of(kind)} has no example"
    manifest: Object = yaml.safe_load(re.sub(r"^> ", "", match["manifest"], flags=re.MULTILINE))
    manifest["metadata"] |= {"namespace": "default", "uid": "uid", "creationTimestamp": format_time(NOW)}
    return manifest


def changed(manifest: Object, changes: Mapping[str, Any]) -> Object:
    result = copy.deepcopy(manifest)
    for path, value in changes.items():
        *parents, last = path.split(".")
        here: Any = result
        for step in parents:
            here = here[int(step)] if isinstance(here, list) else here.setdefault(step, {})
        if value is ABSENT:
            here.pop(last, None)
        else:
            here[last] = value
    return result


# Tables


def table(head: str, rows: Iterable[Iterable[str]]) -> str:
    columns = head.split("|")
    lines = [columns, ["---"] * len(columns), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def code(value: str) -> str:
    return f"`{value}`"


_NAMES_IN_TEXT = re.compile(
    r"\b(?:spec|status)(?:\.\w+)+|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b|\b[a-z]+[A-Z]\w*|\b[\w.-]+\.(?:org|io)/[\w-]+"
)


def prose(text: str) -> str:
    """A description of the CRD with its names of fields and variables as code."""
    return _NAMES_IN_TEXT.sub(lambda match: code(match[0]), text)


_DEFAULT = re.compile(r"\s?Defaults to (?P<default>.+?)\.(?=\s|$)")


def default_of(description: str) -> tuple[str, str]:
    """The default in a description, and the rest of it."""
    match = _DEFAULT.search(description)
    if match is None:
        return "", description
    default = match["default"]
    literal = re.fullmatch(r"[\w./-]+", default) and default != "empty"
    return code(default) if literal else prose(default), _DEFAULT.sub("", description)


def fields(schema: Object, path: str, *, required: bool = False) -> Iterator[tuple[str, Object, bool]]:
    """All fields below a path: `ROLE` stands for the keys of a map of objects, `[]` for the items of a list."""
    yield path, schema, required
    if path.endswith((".template", ".metrics", ".labelSelector")):
        return  # types of Kubernetes
    for name, part in (schema.get("properties") or {}).items():
        yield from fields(part, f"{path}.{name}", required=name in (schema.get("required") or ()))
    for name, below in (("items", "[]"), ("additionalProperties", ".ROLE")):
        inner = schema.get(name) or {}
        for one in fields(inner, f"{path}{below}") if "properties" in inner else ():
            if one[0] != f"{path}{below}":
                yield one


def type_of(path: str, schema: Object) -> str:
    if path.endswith(".template"):
        return "PodTemplateSpec"
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    match schema.get("type"):
        case "array":
            return "list of " + ("MetricSpec" if path.endswith(".metrics") else plural(schema["items"]))
        case "object" if "additionalProperties" in schema:
            return f"map of {plural(schema['additionalProperties'])}"
        case kind:
            return "time" if schema.get("format") == "date-time" else str(kind)


def plural(schema: Object) -> str:
    return "quantities" if schema.get("x-kubernetes-int-or-string") else f"{schema.get('type')}s"


def field_rows(found: Iterable[tuple[str, Object, bool]]) -> Iterator[list[str]]:
    for path, schema, required in found:
        default, meaning = default_of(str(schema.get("description", "")))
        yield [code(path), type_of(path, schema), "required" if required else default, prose(meaning)]


def schema_of(kind: Kind) -> Object:
    (version,) = render_crd(kind)["spec"]["versions"]
    properties: Object = version["schema"]["openAPIV3Schema"]["properties"]
    return properties


# Blocks of the page about all kinds


def kinds_block() -> str:
    rows = (
        [
            f"[{kind.name}]({kind.singular}.md)",
            ", ".join(role.name for role in kind.roles),
            code(kind.container) if kind.container else "the first one",
            f"`{kind.port_name}` {kind.port}" if kind.port else "none",
            ", ".join(dict.fromkeys(code(kind.restart_policy_of(role)) for role in kind.roles)),
            kind.scaled_role or "no",
        ]
        for kind in KINDS.values()
    )
    return table("kind|roles, the deciding one first|container|port|default restart policy|`kubectl scale`", rows)


def run_policy_block() -> str:
    spec = schema_of(PYTORCH)["spec"]
    return table("field|type|default|meaning", field_rows(fields(spec["properties"]["runPolicy"], "spec.runPolicy")))


def earlier_block() -> str:
    spec = schema_of(PYTORCH)["spec"]["properties"]
    names = [one.encode_name for one in msgspec.structs.fields(EarlierRunPolicy)]
    rows = field_rows((f"spec.{name}", spec[name], False) for name in names)
    return table("field|type|meaning", ([path, type_, meaning] for path, type_, _, meaning in rows))


def status_block() -> str:
    ours = {*(one.encode_name for one in msgspec.structs.fields(AdditionalStatus)), "failure"}
    found = [one for one in fields(schema_of(PYTORCH)["status"], "status") if one[0] != "status"]
    rows = (
        [path, type_, "no" if path.strip("`").split(".")[1] in ours else "yes", meaning]
        for path, type_, _, meaning in field_rows(found)
    )
    return table("field|type|in upstream's CRD|meaning", rows)


def labels_block() -> str:
    """The labels of the first and of the last pod of each kind's example, with placeholders for values."""
    seen: dict[tuple[str, str], dict[str, list[str]]] = {}
    for kind in KINDS.values():
        example = example_of(kind)
        first, *_, last = pods_of(planned(example))
        for pod, which in ((first, "the master's"), (last, "all")):
            labels = pod["metadata"]["labels"]
            role = labels["training.kubeflow.org/replica-type"]
            values = {example["metadata"]["name"]: "JOB", role: "ROLE", kind.controller: "KIND-controller"}
            for key, value in labels.items():
                shown = "INDEX" if key.endswith("replica-index") else values.get(value, value)
                shown = value if key.endswith("job-role") else shown
                seen.setdefault((key, shown), {}).setdefault(kind.name, []).append(which)
    rows = []
    for (key, value), kinds in seen.items():
        pods = "all" if all("all" in which for which in kinds.values()) else "the master's"
        rows.append([code(key), code(value), pods, "all" if len(kinds) == len(KINDS) else ", ".join(kinds)])
    return table("label|value|pods|kinds", rows)


# Blocks of a kind's page


def roles_block(kind: Kind) -> str:
    rows = (
        [
            role.name,
            code(f"JOB-{role.label}-INDEX") if role.indexed else code(f"JOB-{role.label}"),
            _number(role),
            str(role.default_replicas),
            code(kind.restart_policy_of(role)),
        ]
        for role in kind.roles
    )
    children = "pods and Services" if any(role.has_service for role in kind.roles) else "pods"
    (version,) = render_crd(kind)["spec"]["versions"]
    columns = version["additionalPrinterColumns"]
    shown = [[one["name"].upper() for one in columns if bool(one.get("priority")) is wide] for wide in (False, True)]
    scale = (
        f"`kubectl scale {kind.singular} NAME --replicas=N` changes the number of {kind.scaled_role} pods."
        if "scale" in version["subresources"]
        else "It has no scale subresource: edit `replicas` instead."
    )
    return (
        table(f"role|{children}|number|default number|default restart policy", rows)
        + f"\n{_main_container(kind)}\n\n`kubectl get {kind.plural}` shows {' and '.join(shown[0])}, with `-o wide` "
        f"also {', '.join(shown[1])}. {scale}\n"
    )


def _main_container(kind: Kind) -> str:
    if not kind.container:
        return "The main container is the first one."
    return (
        f"The main container is named `{kind.container}`. It has the port `{kind.port_name}`, {kind.port} unless the "
        "template declares another."
    )


def _number(role: Role) -> str:
    if role.exactly is not None:
        return f"exactly {role.exactly}"
    return f"at least {role.at_least}" if role.at_least else "any"


def fields_block(kind: Kind) -> str:
    spec = schema_of(kind)["spec"]
    earlier = {one.encode_name for one in msgspec.structs.fields(EarlierRunPolicy)}
    common = {"runPolicy", *earlier} - {one.encode_name for one in msgspec.structs.fields(kind.fields)}
    names = [kind.replicas_field, *(name for name in spec["properties"] if name not in {*common, kind.replicas_field})]
    found = [
        one
        for name in names
        for one in fields(spec["properties"][name], f"spec.{name}", required=name in spec["required"])
    ]
    return table("field|type|default|meaning", field_rows(found))


def planned(manifest: Object, settings: Settings = Settings(), observed: Observed = Observed()) -> Plan:  # noqa: B008
    return plan(read_job(manifest), observed, settings, NOW)


def pods_of(made: Plan) -> list[Object]:
    return [one.render() for one in made.creates if one.resource.kind == "Pod"]


def environment_block(kind: Kind, variant: str = "") -> str:
    manifest = example_of(kind)
    if variant:
        VARIANTS[variant](manifest["spec"])
    values: dict[str, dict[str, list[str]]] = {}
    pods = pods_of(planned(manifest))
    for pod in pods:
        container = main_container(pod["spec"]["containers"], kind.container)
        for entry in container.get("env") or ():
            value = entry.get("value", "the pod's IP address" if "valueFrom" in entry else "")
            rank = pod["metadata"]["name"].removeprefix(f"{manifest['metadata']['name']}-")
            values.setdefault(entry["name"], {}).setdefault(value, []).append(rank)
    rows = []
    for variable, by_value in values.items():
        for position, (value, ranks) in enumerate(by_value.items()):
            where = "all" if len(ranks) == len(pods) else ", ".join(ranks)
            shown = value if value.startswith("the ") else code(value) if value else ""
            meaning = MEANINGS.get(f"{kind.name} {variable}") or MEANINGS[variable]
            name, meaning = ("", "") if position else (code(variable), meaning)
            rows.append([name, shown, where, meaning])
    return table("variable|value|pods|meaning", rows)


def limit_block(kind: Kind) -> str:
    """The largest number of workers that admission accepts for the example."""

    def accepted(workers: int) -> bool:
        path = f"spec.{kind.replicas_field}.Worker.replicas"
        return review(kind, changed(example_of(kind), {path: workers})).allowed

    low, high = 1, MAX_REPLICAS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if accepted(middle) else (low, middle - 1)
    return f"The example could have at most {low} Workers. The longer the names of job and namespace, the fewer.\n"


def states_block(kind: Kind) -> str:
    """What the planner makes of the example's pods in several states."""
    rows = [_state("no pod runs yet", example_of(kind), {}), _state("all pods run", example_of(kind), {}, "Running")]
    roles = list(read_job(example_of(kind)).replicas)
    for role in roles:
        others = ", all others run" if len(roles) > 1 else ""
        rows.append(
            _state(f"all pods of {role} have succeeded{others}", example_of(kind), {role: "Succeeded"}, "Running")
        )
    for policy in ("Never", "OnFailure"):
        for role in roles:
            path = f"spec.{kind.replicas_field}.{role}.restartPolicy"
            job = changed(example_of(kind), {path: policy})
            rows.append(_state(f"a pod of {role} fails, restart policy `{policy}`", job, {role: "Failed"}, "Running"))
    return table("pods of the example|STATE|reason|message", rows)


def _state(title: str, manifest: Object, phases: Mapping[str, str], others: str = "") -> list[str]:
    job = read_job(manifest)
    pods = []
    for rendered in pods_of(planned(manifest)) if others else ():
        labels = rendered["metadata"]["labels"]
        role = next(one for one in job.replicas if one.lower() == labels["training.kubeflow.org/replica-type"])
        phase = phases.get(role, others)
        if phase == "Failed" and labels.get("training.kubeflow.org/replica-index", "0") != "0":  # launchers have none
            phase = others
        pods.append(_pod(rendered, phase))
    conditions = (planned(manifest, observed=Observed(tuple(pods))).status or {})["conditions"]
    last = [one for one in conditions if one["status"] == "True"][-1]
    return [title, last["type"], code(last["reason"]), code(last["message"])]


def _pod(rendered: Object, phase: str) -> Any:
    metadata = {**rendered["metadata"], "uid": rendered["metadata"]["name"], "creationTimestamp": format_time(NOW)}
    ended = {"exitCode": 1 if phase == "Failed" else 0, "finishedAt": format_time(NOW)}
    state = {"running": {}} if phase == "Running" else {"terminated": ended}
    names = [one["name"] for one in rendered["spec"]["containers"]]
    statuses = [{"name": name, "state": state, "ready": phase == "Running"} for name in names]
    return read_pod({**rendered, "metadata": metadata, "status": {"phase": phase, "containerStatuses": statuses}})


# Errors and warnings


def errors_block(kind: Kind, cases: Iterable[Case]) -> str:
    return table("rule|CRD|webhook|operator|message", (_error_row(kind, case) for case in cases))


def _error_row(kind: Kind, case: Case) -> list[str]:
    new = changed(example_of(kind), case.changes)
    old = changed(example_of(kind), case.before) if case.before else None
    schema = ObjectSchema({"type": "object", "properties": schema_of(kind)}, definition)
    found = schema.decode(copy.deepcopy(new))
    by_crd = [f'unknown field "{name}"' for name in found.unknown] + [str(error) for error in found.errors]
    by_crd += [str(error) for error in schema.transition_errors(new, old)] if old else []
    by_webhook = [str(error) for error in review(kind, new, old).errors]
    by_operator, verdict = _operator_errors(new) if old is None else ([], "")
    message = (by_webhook or by_crd or by_operator)[0]
    crd = "yes" if by_crd[len(found.unknown) :] else "strict" if by_crd else ""
    return [case.rule, crd, "yes" if by_webhook else "", verdict, code(message)]


def _operator_errors(manifest: Object) -> tuple[list[str], str]:
    try:
        job = read_job(manifest)
    except InvalidJob as invalid:
        return [str(error) for error in invalid.errors], "yes"
    if job.managed_elsewhere:
        return [], "ignores the job"
    return [], f"event: {code(job.warnings[0])}" if job.warnings else ""


def warnings_block(kind: Kind, cases: Iterable[Case]) -> str:
    rows = []
    for case in cases:
        manifest = changed(example_of(kind), case.changes)
        rows += [[case.rule, code(warning)] for warning in review(kind, manifest).warnings]
    return table("written|warning", rows)


# Pages


def blocks_of(page: Path) -> dict[str, Callable[[], str]]:
    if page.stem == "jobs":
        return {
            "kinds": kinds_block,
            "run policy": run_policy_block,
            "earlier fields": earlier_block,
            "status": status_block,
            "labels": labels_block,
            "errors": partial(errors_block, PYTORCH, CASES["jobs"]),
            "warnings": partial(warnings_block, PYTORCH, WARNINGS["jobs"]),
        }
    (kind,) = [one for one in KINDS.values() if page_of(one) == page]
    return {
        "roles": partial(roles_block, kind),
        "fields": partial(fields_block, kind),
        "environment": partial(environment_block, kind),
        **{f"environment {variant}": partial(environment_block, kind, variant) for variant in VARIANTS},
        "limit": partial(limit_block, kind),
        "states": partial(states_block, kind),
        "errors": partial(errors_block, kind, CASES.get(kind.name, [])),
        "warnings": partial(warnings_block, kind, WARNINGS.get(kind.name, [])),
    }


def pages() -> list[Path]:
    return [REFERENCE / "jobs.md", *map(page_of, KINDS.values())]


def rendered(page: Path) -> str:
    """The page with its blocks generated anew."""
    blocks = blocks_of(page)
    return BLOCK.sub(lambda found: f"{found['begin']}\n{blocks[found['name']]()}\n{found['end']}", page.read_text())


def main() -> None:
    stale = {page: text for page in pages() if (text := rendered(page)) != page.read_text()}
    if "--check" in sys.argv:
        for page in stale:
            print(f"{page} is stale")
        sys.exit(bool(stale))
    for page, text in stale.items():
        page.write_text(text)


if __name__ == "__main__":
    main()
