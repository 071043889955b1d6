"""What the checks of the Pod Security Standards have in common: their form, and the parts of a pod that they read."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from trainwright.objects import Object


@dataclass(frozen=True, slots=True)
class Violation:
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})"


PodCheck = Callable[[Object, Object], Violation | None]
"""From the metadata and the spec of a pod, or of a pod template."""


@dataclass(frozen=True, slots=True)
class Check:
    id: str
    versions: tuple[tuple[int, PodCheck], ...]
    """In rising order: the first minor version of Kubernetes 1, and what is checked from it on."""
    overrides: str = ""
    """The baseline check that a restricted check takes the place of."""

    def at(self, minor: int) -> PodCheck | None:
        return next((check for first, check in reversed(self.versions) if first <= minor), None)


def containers(spec: Object) -> Iterator[Object]:
    for group in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(group) or ()


def security_context(holder: Object) -> Object:
    """The securityContext of a pod's spec or of a container; empty if there is none."""
    return holder.get("securityContext") or {}


def quoted_list(items: Iterable[str]) -> str:
    return ", ".join(f'"{item}"' for item in items)


def plural(singular: str, several: str, count: int) -> str:
    return singular if count == 1 else several


def named(noun: str, names: list[str]) -> str:
    """`container "a"`, or `containers "a", "b"`."""
    return f"{plural(noun, noun + 's', len(names))} {quoted_list(names)}"


def bad_containers(spec: Object, is_bad: Callable[[Object], bool]) -> list[str]:
    """The names of the containers whose securityContext is bad."""
    return [container.get("name", "") for container in containers(spec) if is_bad(security_context(container))]


def bad_setters(spec: Object, is_bad: Callable[[Object], bool]) -> list[str]:
    """`pod` and `container "a"` if their securityContext is bad."""
    names = bad_containers(spec, is_bad)
    return [*(["pod"] if is_bad(security_context(spec)) else []), *([named("container", names)] if names else [])]


def contexts(spec: Object) -> Iterator[Object]:
    """The securityContext of the pod, then of each container."""
    yield security_context(spec)
    for container in containers(spec):
        yield security_context(container)


def has_user_namespace(spec: Object) -> bool:
    return spec.get("hostUsers") is False


def is_windows(spec: Object) -> bool:
    return (spec.get("os") or {}).get("name") == "windows"
