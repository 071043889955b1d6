"""The policy of a namespace: which level of the Pod Security Standards its labels choose for each mode.

Invalid labels of old namespaces count as the strictest policy that is enforced, and as none that warns or audits.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from trainwright.objects.field_errors import FieldError, invalid
from trainwright.objects.kinds.pod_security import POD_SECURITY_PREFIX as PREFIX

_VERSION = re.compile(r"v1\.([0-9]|[1-9][0-9]*)")
_GREATEST_INTEGER = 2**63 - 1


class Level(IntEnum):
    """A higher level allows less."""

    PRIVILEGED = 0
    BASELINE = 1
    RESTRICTED = 2


_LEVELS = {level.name.lower(): level for level in Level}


@dataclass(frozen=True, slots=True)
class LevelVersion:
    level: Level
    minor: int | None = None
    """The version of Kubernetes whose checks apply, such as 25 for v1.25; None for the latest."""

    def __str__(self) -> str:
        version = "latest" if self.minor is None else f"v1.{self.minor}"
        return f"{self.level.name.lower()}:{version}"


_NO_LIMITS = LevelVersion(Level.PRIVILEGED)


@dataclass(frozen=True, slots=True)
class Policy:
    enforce: LevelVersion = _NO_LIMITS
    warn: LevelVersion = _NO_LIMITS


def policy_of(labels: Mapping[str, str]) -> tuple[Policy, list[FieldError]]:
    """The policy, and the errors of its labels.

    What is enforced is warned about too, unless a label says otherwise. The mode `audit` has valid labels and no other
    effect, because there is no audit log.
    """
    if not any(key.startswith(PREFIX) for key in labels):
        return Policy(), []
    enforce, enforce_errors = _mode(labels, "enforce", Level.RESTRICTED)
    _, audit_errors = _mode(labels, "audit", Level.PRIVILEGED)
    warn, warn_errors = _mode(labels, "warn", Level.PRIVILEGED)
    if PREFIX + "warn" not in labels and labels.get(PREFIX + "enforce") in _LEVELS:
        minor = warn.minor if PREFIX + "warn-version" in labels else enforce.minor
        warn = warn if enforce.level == Level.PRIVILEGED else LevelVersion(enforce.level, minor)
    return Policy(enforce, warn), [*enforce_errors, *audit_errors, *warn_errors]


def _mode(labels: Mapping[str, str], mode: str, fallback: Level) -> tuple[LevelVersion, list[FieldError]]:
    """The level and version of a mode. An invalid level counts as `fallback`, an invalid version as the latest."""
    chosen, found = _NO_LIMITS, []
    if (level := labels.get(PREFIX + mode)) is not None:
        if level not in _LEVELS:
            found.append(_label_error(mode, level, f"must be one of {', '.join(_LEVELS)}"))
        chosen = replace(chosen, level=_LEVELS.get(level, fallback))
    version_label = f"{mode}-version"
    if (version := labels.get(PREFIX + version_label, "latest")) != "latest":
        match = _VERSION.fullmatch(version)
        if match is None or int(match[1]) > _GREATEST_INTEGER:
            found.append(_label_error(version_label, version, 'must be "latest" or "v1.x"'))
        else:
            chosen = replace(chosen, minor=int(match[1]))
    return chosen, found


def _label_error(label: str, value: str, detail: str) -> FieldError:
    return invalid(f"metadata.labels[{PREFIX}{label}]", value, detail)
