"""Upstream's cases of the Pod Security Standards. `make kubernetes` fetches them for the version that it builds."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from trainwright.objects import Object

_MODULE = re.compile(r"k8s\.io/pod-security-admission => k8s\.io/pod-security-admission (v[0-9.]+)")
_GO_MODULES = Path(__file__).parents[3] / "tools" / "kubernetes" / "go.mod"
_FILE = re.compile(r"(baseline|restricted)/v1\.(\d+)/(pass|fail)/([a-z_]+?)\d*\.yaml")


@dataclass(frozen=True)
class Case:
    """A pod that a level in a version allows or not. `check` is the lower-case id of the check that it is about."""

    file: str
    level: str
    minor: int
    allowed: bool
    check: str
    pod: Object


def pod_security_cases() -> Iterator[Case]:
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = _MODULE.search(_GO_MODULES.read_text())
    directory = cache_home / "trainwright" / "pod-security" / (found[1] if found else "")
    if not (directory / "complete").exists():
        raise RuntimeError(f"no cases in {directory}: run `make kubernetes`")
    for path in sorted(directory.glob("*/*/*/*.yaml")):
        file = str(path.relative_to(directory))
        match = _FILE.fullmatch(file)
        assert match, f"{file} is not named as expected"
        level, minor, outcome, check = match.groups()
        yield Case(file, level, int(minor), outcome == "pass", check, _pod(path.read_text()))


@cache
def _pod(text: str) -> Object:
    """Most pods are the same in many versions. Do not change them."""
    pod: Object = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (a safe loader)
    return pod
