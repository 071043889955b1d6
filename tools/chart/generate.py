"""Writes the parts of the Helm chart that follow from other data.

tools/chart/values.yaml describes the values; the operator's RBAC rules, kinds and CRDs are those of the package. A test
fails if a written file is stale. With --check nothing is written, and stale files are named.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

import trainwright
from trainwright.api.crd import render_crd
from trainwright.api.kinds import GROUP, KINDS, VERSION
from trainwright.operator import rbac
from trainwright.operator.rbac import Rule, job_rules
from trainwright.operator.setup.webhook_installation import webhook_path

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "charts" / "trainwright"
SECTIONS: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "values.yaml").read_text())
VALUES: list[dict[str, Any]] = [value for section in SECTIONS for value in section["values"]]
BUILTIN = ROOT / "src" / "trainwright" / "cluster" / "apiserver" / "schema" / "builtin.json"
"""The types of Kubernetes' own API."""
MADE_BY = "made by tools/chart/generate.py"
BEGIN, END = f"<!-- {MADE_BY} -->\n", "<!-- until here -->\n"


def files() -> dict[Path, str]:
    """The content of each file that is made here."""
    readme = CHART / "README.md"
    section = re.escape(BEGIN) + ".*" + re.escape(END)
    return {
        CHART / "Chart.yaml": chart(),
        CHART / "values.yaml": values(),
        CHART / "values.schema.json": json.dumps(schema(), indent=2, ensure_ascii=False) + "\n",
        CHART / "templates" / "_args.tpl": args(),
        CHART / "templates" / "_rules.tpl": rules(),
        CHART / "templates" / "_kinds.tpl": kinds(),
        CHART / "templates" / "crds.yaml": crds(),
        readme: re.sub(section, lambda _: f"{BEGIN}\n{tables('###')}\n{END}", readme.read_text(), flags=re.DOTALL),
        ROOT / "docs" / "reference" / "chart-values.md": page(),
    }


def chart() -> str:
    crd_kinds = ", ".join(KINDS)
    return f"""# {MADE_BY}
apiVersion: v2
name: trainwright
description: Operator for Kubeflow's training jobs ({crd_kinds})
type: application
version: {trainwright.__version__}
appVersion: "{trainwright.__version__}"
kubeVersion: ">=1.27.0-0"
keywords: [kubeflow, training, pytorch, tensorflow, operator]
"""


# Values


def values() -> str:
    lines = [f"# {MADE_BY}; tools/chart/values.yaml describes the values."]
    again: set[str] = set()
    for section in SECTIONS:
        lines += ["", f"# {section['title']}"]
        seen: tuple[str, ...] = ()
        for value in section["values"]:
            *parents, name = value["path"].split(".")
            common = sum(1 for a, b in zip(seen, parents, strict=False) if a == b)
            opened = [".".join(parents[: depth + 1]) for depth in range(common, len(parents))]
            assert not again.intersection(opened), f"{value['path']} is apart from its neighbours"
            again.update(opened)
            lines += [f"{'  ' * depth}{parents[depth]}:" for depth in range(common, len(parents))]
            indent = "  " * len(parents)
            lines += [f"{indent}# {value['text']}", f"{indent}{name}: {flow(value['default'])}"]
            seen = tuple(parents)
    return "\n".join(lines) + "\n"


def flow(value: Any) -> str:
    """The value in one line of YAML."""
    return json.dumps(value, ensure_ascii=False)


def schema() -> dict[str, Any]:
    root = _closed("http://json-schema.org/draft-07/schema#")
    for value in VALUES:
        *parents, name = value["path"].split(".")
        node = root
        for parent in parents:
            node = node["properties"].setdefault(parent, _closed())
        extra = value.get("schema", {})
        if extra.get("items") == {"enum": "KINDS"}:
            extra = {"items": {"enum": [*KINDS, *(kind.singular for kind in KINDS.values())]}}
        node["properties"][name] = {"type": value["type"], "description": value["text"], **extra, **_typed(value)}
    return root | {"definitions": dict(sorted(_definitions().items()))}


def _typed(value: dict[str, Any]) -> dict[str, Any]:
    if "kubernetes" not in value:
        return {}
    reference = {"$ref": f"#/definitions/{value['kubernetes']}"}
    return {"items": reference} if value["type"] == "array" else {"allOf": [reference]}


def _definitions() -> dict[str, Any]:
    """The types of Kubernetes' API that values have, with all types inside them."""
    known: dict[str, Any] = json.loads(BUILTIN.read_text())
    found: dict[str, Any] = {}
    wanted = [value["kubernetes"] for value in VALUES if "kubernetes" in value]
    while wanted:
        if (name := wanted.pop()) not in found:
            found[name] = _closed_type(known[name], wanted)
    return found


def _closed_type(node: Any, wanted: list[str]) -> Any:
    """The schema with references to definitions, which are added to `wanted`, and without unknown fields."""
    if isinstance(node, list):
        return [_closed_type(one, wanted) for one in node]
    if not isinstance(node, dict):
        return node
    if isinstance(name := node.get("$ref"), str):
        wanted.append(name)
        return {"$ref": f"#/definitions/{name}"}
    kept = {key: one for key, one in node.items() if key != "format" and not key.startswith("x-kubernetes-")}
    if "properties" in kept:
        fields = {field: _closed_type(one, wanted) for field, one in kept.pop("properties").items()}
        kept |= {"properties": fields, "additionalProperties": False}
        return kept
    return {key: _closed_type(one, wanted) for key, one in kept.items()}


def _closed(draft: str = "") -> dict[str, Any]:
    return ({"$schema": draft} if draft else {}) | {"type": "object", "additionalProperties": False, "properties": {}}


def tables(heading: str) -> str:
    return "\n".join(f"{heading} {section['title']}\n\n{_table(section['values'])}" for section in SECTIONS)


def _table(rows: Iterable[dict[str, Any]]) -> str:
    lines = ["| Value | Default | Meaning |", "|---|---|---|"]
    for row in rows:
        flag = f" Sets `{row['flag']}`." if "flag" in row else ""
        lines.append(f"| `{row['path']}` | `{flow(row['default'])}` | {row['text']}{flag} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    return f"""<!-- {MADE_BY} -->
# Values of the Helm chart

`helm install --set PATH=VALUE` or `--values FILE` sets them; a misspelt or wrong value is refused with its name.
[Install the operator](../how-to/install.md) shows how they are used, [flags of the operator](operator-flags.md)
explains the flags.

{tables("##")}"""


# Arguments


def args() -> str:
    blocks = [_argument(value) for value in VALUES if "flag" in value and not value.get("by_hand")]
    return f'{{{{/* {MADE_BY} */}}}}\n{{{{- define "trainwright.args" -}}}}\n{"".join(blocks)}{{{{- end }}}}\n'


def _argument(value: dict[str, Any]) -> str:
    path, flag, default = f".Values.{value['path']}", value["flag"], value["default"]
    match value["type"]:
        case "string":
            condition, argument = f"ne {path} {json.dumps(default)}", f'{{{{ printf "{flag}=%s" {path} | quote }}}}'
        case "boolean":
            assert default is False, path
            condition, argument = path, flag
        case "integer":
            condition, argument = f"ne (int64 {path}) {default}", f"{flag}={{{{ int64 {path} }}}}"
        case "number":
            condition, argument = f"ne (float64 {path}) {float(default)}", f"{flag}={{{{ {path} }}}}"
        case ["integer", "null"]:
            condition, argument = f'not (kindIs "invalid" {path})', f"{flag}={{{{ int64 {path} }}}}"
        case ["boolean", "null"]:
            condition, argument = f'not (kindIs "invalid" {path})', f"{flag}={{{{ {path} }}}}"
        case "array":
            return f"{{{{- range {path} }}}}\n- {flag}={{{{ . }}}}\n{{{{- end }}}}\n"
        case other:
            raise NotImplementedError(f"{path} of type {other}")
    return f"{{{{- if {condition} }}}}\n- {argument}\n{{{{- end }}}}\n"


# Rules, kinds, CRDs

_NAMESPACED = [
    ("", job_rules(KINDS.values())),
    ("", rbac.SERVICE_ADOPTION.rules),
    ("", rbac.AUTOSCALING.rules),
    (".Values.gangScheduler.name", rbac.GANG_SCHEDULING.rules),
    (".Values.jobs.readFailedPodLogs", rbac.FAILED_POD_LOGS.rules),
]
_CLUSTER = [
    (".Values.rbac.clusterResources", rbac.NODE_STATUS.rules),
    ("and .Values.rbac.clusterResources .Values.gangScheduler.name", rbac.PRIORITIES.rules),
    (".Values.webhook.enabled", [one for one in rbac.WEBHOOKS.rules if not one.own_namespace]),
    (".Values.operator.installCrds", rbac.CRD_INSTALLATION.rules),
]
_OWN = [
    (".Values.webhook.enabled", [one for one in rbac.WEBHOOKS.rules if one.own_namespace]),
    (".Values.webhook.enabled", rbac.WEBHOOK_SECRET.rules),
]
_LEASE = [("", rbac.LEADER_ELECTION.rules)]
"""Each list of rules with the condition under which a role has them."""


def rules() -> str:
    named = {
        "jobs": ("for running jobs: in the ClusterRole, or in a Role of scope.namespace", _NAMESPACED),
        "cluster": ("for what belongs to no namespace", _CLUSTER),
        "own": ("in the operator's namespace", _OWN),
        "lease": ("in the namespace of the Lease", _LEASE),
    }
    text = f"{{{{/* {MADE_BY} from operator/rbac.py */}}}}\n"
    for name, (where, groups) in named.items():
        body = "".join(_conditional(condition, "".join(map(_rule, some))) for condition, some in groups)
        text += f'{{{{/* Rules {where}. */}}}}\n{{{{- define "trainwright.rules.{name}" -}}}}\n{body}{{{{- end }}}}\n'
    return text


def _conditional(condition: str, body: str) -> str:
    return f"{{{{- if {condition} }}}}\n{body}{{{{- end }}}}\n" if condition else body


def _rule(rule: Rule) -> str:
    return (
        f'- apiGroups: ["{rule.resource.group}"]  # {rule.reason}\n'
        f"  resources: [{rule.resources}]\n"
        f"  verbs: [{', '.join(rule.verbs)}]\n"
    )


def kinds() -> str:
    jobs = [kind.plural for kind in KINDS.values()]
    status = [f"{name}/status" for name in jobs]
    scale = [f"{kind.plural}/scale" for kind in KINDS.values() if kind.scaled_role]
    edit = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    roles: dict[str, list[tuple[list[str], list[str]]]] = {
        "admin": [(jobs, ["*"]), (status, ["get"]), (scale, ["get", "patch", "update"])],
        "edit": [(jobs, edit), (status, ["get"]), (scale, ["get", "patch", "update"])],
        "view": [(jobs, ["get", "list", "watch"]), (status, ["get"]), (scale, ["get"])],
    }
    text = f"{{{{/* {MADE_BY} */}}}}\n"
    for name, granted in roles.items():
        body = "".join(
            f"- apiGroups: [{GROUP}]\n  resources: [{', '.join(some)}]\n  verbs: [{', '.join(map(_quoted, verbs))}]\n"
            for some, verbs in granted
            if some
        )
        text += f'{{{{- define "trainwright.rules.{name}" -}}}}\n{body}{{{{- end }}}}\n'
    plurals = " ".join(json.dumps(f"{name}.{GROUP}") for name in jobs)
    text += f'{{{{- define "trainwright.crds" -}}}}\n{{{{- list {plurals} | toJson }}}}\n{{{{- end }}}}\n'
    text += '{{- define "trainwright.webhooks" -}}\n' + "".join(_webhooks()) + "{{- end }}\n"
    return text


def _quoted(verb: str) -> str:
    return '"*"' if verb == "*" else verb


def _webhooks() -> Iterator[str]:
    for kind in KINDS.values():
        yield f"""- name: validator.{kind.singular}.training-operator.kubeflow.org
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: {{{{ .Values.webhook.failurePolicy }}}}
  timeoutSeconds: {{{{ .Values.webhook.timeoutSeconds }}}}
  {{{{- with .Values.scope.namespace }}}}
  namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{{{ . }}}}
  {{{{- end }}}}
  clientConfig:
    service:
      name: {{{{ include "trainwright.serviceName" . }}}}
      namespace: {{{{ .Values.namespace.name }}}}
      path: {webhook_path(kind.name)}
  rules:
  - apiGroups: [{GROUP}]
    apiVersions: [{VERSION}]
    operations: [CREATE, UPDATE]
    resources: [{kind.plural}]
"""


def crds() -> str:
    text = f"{{{{- /* {MADE_BY} from api/crd.py */ -}}}}\n{{{{- if .Values.crds.enabled }}}}\n"
    for kind in KINDS.values():
        definition = render_crd(kind)
        spec = yaml.safe_dump({"spec": definition["spec"]}, sort_keys=False, width=200, allow_unicode=True)
        assert "{{" not in spec, kind.name
        text += f"""---
apiVersion: {definition["apiVersion"]}
kind: {definition["kind"]}
metadata:
  name: {definition["metadata"]["name"]}
  labels:
    {{{{- include "trainwright.labels" . | nindent 4 }}}}
  {{{{- if .Values.crds.keep }}}}
  annotations:
    helm.sh/resource-policy: keep
  {{{{- end }}}}
{spec}"""
    return text + "{{- end }}\n"


def main() -> None:
    made = files()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        if stale:
            names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
            sys.exit(f"stale: {names}; run .venv/bin/python tools/chart/generate.py")
        return
    for path in stale:
        path.write_text(made[path])
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
