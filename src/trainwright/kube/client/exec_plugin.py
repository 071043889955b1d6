"""Programs that a kubeconfig names to say who we are: `aws eks get-token`, `gke-gcloud-auth-plugin` and their like.

The protocol is client.authentication.k8s.io, v1 and v1beta1: a question in the environment, an answer on the standard
output. What goes wrong is one line that names the program.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from trainwright.kube.client.kubeconfig import ConfigError, ExecPlugin
from trainwright.objects.times import parse_time

_QUIET_SECONDS = 60.0
"""A program that cannot ask the user anything has no reason to take longer."""


@dataclass(frozen=True, slots=True)
class ExecCredential:
    """What a plugin has answered: a token, a client certificate with its key, or both. Good until it expires."""

    token: str | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    expires: datetime | None = None


def ask(plugin: ExecPlugin) -> ExecCredential:
    """Runs the program; blocks until it has answered."""
    interactive = may_interact(plugin, terminal=sys.stdin is not None and sys.stdin.isatty())
    try:
        done = subprocess.run(
            [plugin.command, *plugin.args],
            env={**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": question(plugin, interactive=interactive)},
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # Whoever can answer must see what is asked.
            stderr=None if interactive else subprocess.PIPE,
            timeout=None if interactive else _QUIET_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _error(plugin, f"{plugin.command} has not answered within {_QUIET_SECONDS:g} s") from None
    except OSError as error:
        raise _error(plugin, f"cannot run {plugin.command}: {error.strerror}", hint=True) from None
    if done.returncode:
        said = (done.stderr or b"").decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(said) if line.strip()), "")
        raise _error(plugin, f"{plugin.command} ended with exit code {done.returncode}" + (f": {last}" if last else ""))
    return read_answer(plugin, done.stdout)


def may_interact(plugin: ExecPlugin, *, terminal: bool) -> bool:
    """Whether the program may ask the user, who is there if we have a terminal."""
    if plugin.interactive_mode == "Always" and not terminal:
        raise _error(plugin, f"{plugin.command} wants to ask you something (interactiveMode Always): run in a terminal")
    return terminal and plugin.interactive_mode != "Never"


def question(plugin: ExecPlugin, *, interactive: bool) -> str:
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    asked = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    return msgspec.json.encode(asked).decode()


def read_answer(plugin: ExecPlugin, output: bytes) -> ExecCredential:
    try:
        answer = msgspec.json.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _error(plugin, f"the answer of {plugin.command} is not JSON") from None
    if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
        raise _error(plugin, f"the answer of {plugin.command} is not an ExecCredential")
    if answer.get("apiVersion") != plugin.api_version:
        raise _error(
            plugin,
            f"{plugin.command} answered in {answer.get('apiVersion')!r}, the kubeconfig says {plugin.api_version}",
        )
    status = answer.get("status")
    if not isinstance(status, dict):
        raise _error(plugin, f"the answer of {plugin.command} has no status")
    token = _text(plugin, status, "token")
    certificate, key = _text(plugin, status, "clientCertificateData"), _text(plugin, status, "clientKeyData")
    if (certificate is None) != (key is None):
        raise _error(plugin, f"{plugin.command} answered with only one of clientCertificateData and clientKeyData")
    if token is None and certificate is None:
        raise _error(plugin, f"{plugin.command} answered with neither token nor clientCertificateData")
    return ExecCredential(
        token=token,
        certificate=certificate.encode() if certificate else None,
        key=key.encode() if key else None,
        expires=_moment(plugin, status),
    )


def _moment(plugin: ExecPlugin, status: Mapping[str, Any]) -> datetime | None:
    text = _text(plugin, status, "expirationTimestamp")
    try:
        return parse_time(text) if text else None
    except ValueError:
        raise _error(plugin, f"expirationTimestamp in the answer of {plugin.command} is no time: {text!r}") from None


def _text(plugin: ExecPlugin, status: Mapping[str, Any], name: str) -> str | None:
    value = status.get(name)
    if value is not None and not isinstance(value, str):
        raise _error(plugin, f"{name} in the answer of {plugin.command} must be text")
    return value or None


def _error(plugin: ExecPlugin, text: str, *, hint: bool = False) -> ConfigError:
    advice = " ".join(plugin.install_hint.split()) if hint else ""
    return ConfigError(f"{plugin.where}: {text}" + (f" ({advice})" if advice else ""))
