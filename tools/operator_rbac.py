"""Prints the operator's RBAC rules for docs/how-to/run-the-operator.md; with --write puts them into the page.

A test compares the page with what this prints.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from trainwright.api.kinds import KINDS
from trainwright.operator.rbac import FEATURES, Feature, Rule, job_rules

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "run-the-operator.md"
BEGIN, END = "<!-- made by tools/operator_rbac.py -->\n", "<!-- until here -->\n"


def section() -> str:
    features = "".join(map(_row, FEATURES))
    groups = {"running jobs": job_rules(KINDS.values()), **{one.name.replace("`", ""): one.rules for one in FEATURES}}
    return f"""{BEGIN}
| Feature | Rules | In upstream's ClusterRole | Without them |
|---|---|---|---|
{features}
```yaml
{_role("ClusterRole", groups, own_namespace=False)}---
{_role("Role", groups, own_namespace=True)}```

{END}"""


def _row(feature: Feature) -> str:
    granted = "yes" if feature.in_upstream_role else "no"
    return f"| {feature.name} | {'; '.join(map(_short, feature.rules))} | {granted} | {feature.without} |\n"


def _short(rule: Rule) -> str:
    group = f"{rule.resource.group} " if rule.resource.group else ""
    where = " (in the operator's namespace)" if rule.own_namespace else ""
    return f"`{group}{rule.resources}`: {', '.join(rule.verbs)}{where}"


def _role(kind: str, groups: dict[str, Iterable[Rule]], *, own_namespace: bool) -> str:
    lines = ["apiVersion: rbac.authorization.k8s.io/v1", f"kind: {kind}", "metadata:", "  name: trainwright-operator"]
    if own_namespace:
        lines += ["  namespace: kubeflow"]
    lines += ["rules:"]
    for title, rules in groups.items():
        if chosen := [one for one in rules if one.own_namespace == own_namespace]:
            lines += [f"# {title}", *(line for one in chosen for line in _lines(one))]
    return "\n".join(lines) + "\n"


def _lines(rule: Rule) -> Iterable[str]:
    yield f'- apiGroups: ["{rule.resource.group}"]  # {rule.reason}'
    yield f"  resources: [{rule.resources}]"
    yield f"  verbs: [{', '.join(rule.verbs)}]"


def main() -> None:
    if "--write" in sys.argv:
        pattern = re.escape(BEGIN) + ".*" + re.escape(END)
        PAGE.write_text(re.sub(pattern, lambda _: section(), PAGE.read_text(), flags=re.DOTALL))
    else:
        print(section(), end="")


if __name__ == "__main__":
    main()
