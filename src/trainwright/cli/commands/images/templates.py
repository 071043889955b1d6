"""What Docker's users write most after `--format`: `json`, `{{.Field}}`, `{{.A.B}}` and `{{json .Field}}`."""

import json
import re
from collections.abc import Mapping
from typing import Any

from trainwright.cli.errors import CommandError

_ACTION = re.compile(r"\{\{-?\s*(?P<content>.*?)\s*-?\}\}")
_FIELD = re.compile(r"(?P<json>json\s+)?\.(?P<path>\w+(?:\.\w+)*)?")


def render(template: str, value: Mapping[str, Any]) -> str:
    if template == "json":
        template = "{{json .}}"

    def replace(match: re.Match[str]) -> str:
        action = _FIELD.fullmatch(match["content"])
        if action is None:
            raise CommandError(
                f"--format {match[0]} is not supported: write {{{{.Field}}}} or {{{{json .Field}}}}, or use -o json"
            )
        found = _lookup(value, action["path"] or "")
        return json.dumps(found, ensure_ascii=False) if action["json"] else _text(found)

    return _ACTION.sub(replace, template.replace("\\t", "\t").replace("\\n", "\n"))


def _lookup(value: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        if not isinstance(value, Mapping) or name not in value:
            known = f": it has {', '.join(value)}" if isinstance(value, Mapping) else ""
            raise CommandError(f"--format has no field {name!r}{known}")
        value = value[name]
    return value


def _text(value: Any) -> str:
    """As Go prints values."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{name}:{_text(item)}' for name, item in sorted(value.items()))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_text, value))}]"
    return "<no value>" if value is None else str(value)
