"""A template for init containers, which replaces the default one: a YAML list of containers with placeholders, as
Kubeflow's operator reads it from `--pytorch-init-container-template-file`."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from trainwright.objects import Object

_PLACEHOLDER = re.compile(r"\{\{-?(?P<inside>.*?)-?\}\}", re.DOTALL)
_KNOWN = ("MasterAddr", "InitContainerImage", "MaxTries")
_MASTER = "trainwright--master--addr"
"""Replaces {{.MasterAddr}} while the text is parsed. It has no special meaning in YAML."""


class InitTemplateError(ValueError):
    """The template is invalid. The message says what to change."""


@dataclass(frozen=True, slots=True)
class InitTemplate:
    text: str

    def render(self, *, master: str, image: str, max_tries: int) -> list[Object]:
        """The containers for a pod that waits for `master`."""
        containers = _read(self.text, image, max_tries)
        return [_with_master(container, master) for container in containers]


def parse_init_template(text: str) -> InitTemplate:
    """Raises InitTemplateError if the text does not describe init containers."""
    containers = _read(text, "image", 1)
    if not isinstance(containers, list) or not containers:
        raise InitTemplateError("must be a YAML list of containers, such as `- name: init-pytorch`")
    names = [_name_of(number, container) for number, container in enumerate(containers)]
    if doubles := sorted({name for name in names if names.count(name) > 1}):
        raise InitTemplateError(f"names must differ: {doubles[0]!r} is used twice")
    return InitTemplate(text)


def _name_of(number: int, container: Any) -> str:
    if not isinstance(container, dict):
        raise InitTemplateError(f"[{number}] must be a container, not {container!r}")
    for field in ("name", "image"):
        if not isinstance(container.get(field), str) or not container[field]:
            raise InitTemplateError(f"[{number}].{field} must be set to a string")
    return str(container["name"])


@lru_cache(maxsize=8)
def _read(text: str, image: str, max_tries: int) -> Any:
    """Fills in the image and the number of tries before parsing, so that they may occur anywhere in the text. The name
    of the master differs between jobs and is filled in after parsing, because the parsed text is cached for all
    jobs."""
    values = {"MasterAddr": _MASTER, "InitContainerImage": image, "MaxTries": str(max_tries)}
    try:
        return yaml.safe_load(_PLACEHOLDER.sub(lambda found: values[_key(found)], text))
    except yaml.YAMLError as error:
        raise InitTemplateError(f"is not YAML: {' '.join(str(error).split())}") from None


def _key(found: re.Match[str]) -> str:
    inside = found["inside"].strip()
    if inside.removeprefix(".") not in _KNOWN or not inside.startswith("."):
        known = ", ".join(f"{{{{.{key}}}}}" for key in _KNOWN)
        raise InitTemplateError(f"{found[0]} is not a placeholder: supported are {known}")
    return inside.removeprefix(".")


def _with_master(value: Any, master: str) -> Any:
    match value:
        case str():
            return value.replace(_MASTER, master)
        case list():
            return [_with_master(item, master) for item in value]
        case dict():
            return {_with_master(key, master): _with_master(item, master) for key, item in value.items()}
        case _:
            return value
