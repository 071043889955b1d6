"""The environment variables of a container by Kubernetes' rules: envFrom, env, valueFrom and expansion of $(NAME).

The kernel limits the size of a program's arguments and environment together; this module checks it before the start.
"""

import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping

from trainwright.cluster.node.pod_fields import NodeFields, field_value, resource_value
from trainwright.cluster.node.referenced_objects import (
    PodConfigError,
    ReferencedObjects,
    config_map_text,
    missing,
    secret_data,
)
from trainwright.objects import Object

_REFERENCE = re.compile(r"\$(?:\$|\((?P<name>[^)]*)\))")
MAX_STRING_BYTES = 131_071
"""The size of one argument, or of one variable as `NAME=value`: MAX_ARG_STRLEN without the final zero byte."""
MAX_PROGRAM_BYTES = 2 * 1024 * 1024
"""The size of arguments and environment, with a zero byte and a pointer each: what the kernel allows with the usual
stack limit of 8 MiB."""
MAX_POD_BYTES = 64 * 1024 * 1024
"""The size for all containers of a pod: thousands of containers can share long values."""
MAX_PATH_BYTES = 4095
"""PATH_MAX without the final zero byte."""

_PER_STRING = 1 + 8


def expand(text: str, values: Mapping[str, str], *, what: str = "the text", limit: int = MAX_STRING_BYTES) -> str:
    """Replaces $(NAME). $$ is a dollar sign, and an undefined $(NAME) stays as it is.

    Raises PodConfigError for a result of more than `limit` bytes, without building it: a short text can refer to a long
    value many times.
    """
    # Behind the last parenthesis there is no reference: the pattern would look for its end again and again.
    end = text.rfind(")") + 1
    references, rest = text[:end], text[end:].replace("$$", "$")
    sizes: dict[str, int] = {}
    size = byte_size(references) + byte_size(rest)
    for match in _REFERENCE.finditer(references):
        name = match["name"]
        if name is None:
            size -= 1
        elif name in values:
            if name not in sizes:
                sizes[name] = byte_size(values[name])
            size += sizes[name] - byte_size(match[0])
    check_string(what, size, limit)

    def replacement(match: re.Match[str]) -> str:
        name = match["name"]
        return "$" if name is None else values.get(name, match[0])

    return _REFERENCE.sub(replacement, references) + rest


def expand_arguments(words: Iterable[str], values: Mapping[str, str], *, container: str, field: str) -> list[str]:
    """Raises PodConfigError if they are too long for a program; `field` is that of the container."""
    total = ProgramSize(container)
    expanded = []
    for index, word in enumerate(words):
        place = f"{field}[{index}]"
        result = expand(word, values, what=f'container "{container}": {place}')
        total.add(place, byte_size(result))
        expanded.append(result)
    return expanded


def make_environment(
    container: Object,
    *,
    pod: Object,
    objects: ReferencedObjects,
    node: NodeFields,
    services: Mapping[str, str],
    adapt: Callable[[str], str] = lambda value: value,
) -> dict[str, str]:
    """The variables of `env` and `envFrom`; raises PodConfigError.

    They may refer to those of `services`. `adapt` changes each value before later variables refer to it, but not facts
    about the pod itself: its name is no address. The size is checked with every variable, because values that refer to
    each other grow without end.
    """
    size = ProgramSize(container["name"])
    variables: dict[str, str] = {}
    known = ChainMap(variables, dict(services))

    def put(name: str, value: str) -> None:
        size.add_variable(name, byte_size(value))
        variables[name] = value

    for source in container.get("envFrom") or []:
        for name, text in _all_keys(source, pod, objects).items():
            put(f"{source.get('prefix', '')}{name}", adapt(text))
    for variable in container.get("env") or []:
        name = variable["name"]
        value = _value(variable, container=container, pod=pod, objects=objects, node=node)
        if value is not None:
            if not variable.get("valueFrom"):
                value = expand(value, known, what=f'container "{container["name"]}": env "{name}"')
            put(name, value if _is_about_the_pod(variable) else adapt(value))
    return variables


def _is_about_the_pod(variable: Object) -> bool:
    return not {"fieldRef", "resourceFieldRef"}.isdisjoint(variable.get("valueFrom") or {})


def _value(
    variable: Object,
    *,
    container: Object,
    pod: Object,
    objects: ReferencedObjects,
    node: NodeFields,
) -> str | None:
    reference = variable.get("valueFrom")
    if not reference:
        return str(variable.get("value") or "")
    if "configMapKeyRef" in reference:
        return _one_key("ConfigMap", reference["configMapKeyRef"], objects, config_map_text, pod)
    if "secretKeyRef" in reference:
        return _one_key("Secret", reference["secretKeyRef"], objects, secret_data, pod)
    if "fieldRef" in reference:
        return field_value(pod, str(reference["fieldRef"].get("fieldPath")), node)
    if "resourceFieldRef" in reference:
        return resource_value(reference["resourceFieldRef"], container, pod, node)
    raise PodConfigError(f'env "{variable["name"]}": valueFrom.{next(iter(reference))} is not supported on this node')


def _all_keys(source: Object, pod: Object, objects: ReferencedObjects) -> dict[str, str]:
    from_config_map = "configMapRef" in source
    kind, field_name = ("configmap", "configMapRef") if from_config_map else ("secret", "secretRef")
    read = config_map_text if from_config_map else secret_data
    reference = source.get(field_name) or {}
    found = (objects.config_maps if from_config_map else objects.secrets).get(reference.get("name", ""))
    if found is None:
        if reference.get("optional"):
            return {}
        raise missing(kind, reference.get("name", ""), pod["metadata"]["namespace"])
    return {key: value.decode(errors="surrogateescape") for key, value in objects.decoded(read, found).items()}


def _one_key(
    kind: str,
    reference: Object,
    objects: ReferencedObjects,
    read: Callable[[Object], dict[str, bytes]],
    pod: Object,
) -> str | None:
    name, key = reference.get("name", ""), reference["key"]
    found = (objects.config_maps if kind == "ConfigMap" else objects.secrets).get(name)
    if found is None:
        if reference.get("optional"):
            return None
        raise missing(kind.lower(), name, pod["metadata"]["namespace"])
    data = objects.decoded(read, found)
    value = data.get(key)
    if value is None:
        if reference.get("optional"):
            return None
        keys = ", ".join(sorted(data)) or "none"
        raise PodConfigError(f"couldn't find key {key} in {kind} {pod['metadata']['namespace']}/{name}: it has {keys}")
    return value.decode(errors="surrogateescape")


def byte_size(text: str) -> int:
    """As the kernel counts it."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def check_string(what: str, size: int, limit: int = MAX_STRING_BYTES) -> None:
    """Raises PodConfigError; `what` names the container and the field."""
    if size > limit:
        raise PodConfigError(
            f"{what} has {size:,} bytes, and Linux allows {limit:,}: shorten it, or put the value into a file "
            "of a volume"
        )


class ProgramSize:
    """Counts arguments and environment of one program while they are made."""

    def __init__(self, container: str) -> None:
        self._container = container
        self._total = 0

    def add(self, field: str, size: int) -> None:
        """Counts one string; raises PodConfigError if the string or all of them are too long."""
        what = f'container "{self._container}": {field}'
        check_string(what, size)
        self._total += size + _PER_STRING
        if self._total > MAX_PROGRAM_BYTES:
            raise PodConfigError(
                f"{what}: arguments and environment together have more than {MAX_PROGRAM_BYTES:,} bytes, the limit of "
                "Linux: use fewer or shorter values, or put them into files of a volume"
            )

    def add_variable(self, name: str, value_size: int) -> None:
        self.add(f'env "{name}"', byte_size(name) + 1 + value_size)

    @property
    def total(self) -> int:
        return self._total


def check_program(container: str, arguments: Iterable[str], environment: Mapping[str, str]) -> int:
    """The number of bytes; raises PodConfigError if the kernel would not start such a program."""
    size = ProgramSize(container)
    for name, value in environment.items():
        size.add_variable(name, byte_size(value))
    for index, argument in enumerate(arguments):
        size.add(f"argument {index}", byte_size(argument))
    return size.total


def check_pod(size: int) -> None:
    """Raises PodConfigError; `size` is that of the programs of its containers so far."""
    if size > MAX_POD_BYTES:
        raise PodConfigError(
            f"arguments and environment of the containers of this pod have more than {MAX_POD_BYTES:,} bytes together: "
            "use fewer containers or shorter values"
        )
