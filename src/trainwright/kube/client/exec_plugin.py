"""Runs the credential plugins of a kubeconfig, for example `aws eks get-token` and `gke-gcloud-auth-plugin`.

The protocol is client.authentication.k8s.io, v1 and v1beta1: the request is in the environment, the response on stdout.
Errors are one line that names the program.
"""

import errno
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
from trainwright.programs import find_program

_TIMEOUT_SECONDS = 60.0
"""For plugins that are not interactive."""


@dataclass(frozen=True, slots=True)
class ExecCredential:
    """The credentials of a plugin: a token, a client certificate with its key, or both."""

    token: str | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    expires: datetime | None = None


def run(plugin: ExecPlugin) -> ExecCredential:
    """Runs the plugin and waits for its output."""
    interactive = may_interact(plugin, terminal=sys.stdin is not None and sys.stdin.isatty())
    # As in Go a program of the current directory is not found: the kubeconfig's own path has a slash.
    program = plugin.command if "/" in plugin.command else find_program(plugin.command)
    if program is None:
        raise _error(plugin, f"cannot run {plugin.command}: {os.strerror(errno.ENOENT)}", hint=True)
    try:
        done = subprocess.run(
            [program, *plugin.args],
            env={**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": exec_info(plugin, interactive=interactive)},
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # The user must see the questions of an interactive plugin.
            stderr=None if interactive else subprocess.PIPE,
            timeout=None if interactive else _TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _error(plugin, f"{plugin.command} did not respond within {_TIMEOUT_SECONDS:g} s") from None
    except OSError as error:
        raise _error(plugin, f"cannot run {plugin.command}: {error.strerror}", hint=True) from None
    if done.returncode:
        lines = (done.stderr or b"").decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        raise _error(plugin, f"{plugin.command} exited with code {done.returncode}" + (f": {last}" if last else ""))
    return read_credential(plugin, done.stdout)


def may_interact(plugin: ExecPlugin, *, terminal: bool) -> bool:
    """True if the plugin may ask the user: there is a terminal, and its interactiveMode is not Never."""
    if plugin.interactive_mode == "Always" and not terminal:
        raise _error(plugin, f"{plugin.command} is interactive (interactiveMode Always): run in a terminal")
    return terminal and plugin.interactive_mode != "Never"


def exec_info(plugin: ExecPlugin, *, interactive: bool) -> str:
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    return msgspec.json.encode(info).decode()


def read_credential(plugin: ExecPlugin, output: bytes) -> ExecCredential:
    try:
        credential = msgspec.json.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _error(plugin, f"the output of {plugin.command} is not JSON") from None
    if not isinstance(credential, dict) or credential.get("kind") != "ExecCredential":
        raise _error(plugin, f"the output of {plugin.command} is not an ExecCredential")
    if credential.get("apiVersion") != plugin.api_version:
        raise _error(
            plugin,
            f"{plugin.command} returned {credential.get('apiVersion')!r}, the kubeconfig says {plugin.api_version}",
        )
    status = credential.get("status")
    if not isinstance(status, dict):
        raise _error(plugin, f"the output of {plugin.command} has no status")
    token = _text(plugin, status, "token")
    certificate, key = _text(plugin, status, "clientCertificateData"), _text(plugin, status, "clientKeyData")
    if (certificate is None) != (key is None):
        raise _error(plugin, f"{plugin.command} returned only one of clientCertificateData and clientKeyData")
    if token is None and certificate is None:
        raise _error(plugin, f"{plugin.command} returned neither token nor clientCertificateData")
    return ExecCredential(
        token=token,
        certificate=certificate.encode() if certificate else None,
        key=key.encode() if key else None,
        expires=_expiration(plugin, status),
    )


def _expiration(plugin: ExecPlugin, status: Mapping[str, Any]) -> datetime | None:
    text = _text(plugin, status, "expirationTimestamp")
    try:
        return parse_time(text) if text else None
    except ValueError:
        raise _error(plugin, f"expirationTimestamp in the output of {plugin.command} is not a time: {text!r}") from None


def _text(plugin: ExecPlugin, status: Mapping[str, Any], name: str) -> str | None:
    value = status.get(name)
    if value is not None and not isinstance(value, str):
        raise _error(plugin, f"{name} in the output of {plugin.command} must be a string")
    return value or None


def _error(plugin: ExecPlugin, text: str, *, hint: bool = False) -> ConfigError:
    advice = " ".join(plugin.install_hint.split()) if hint else ""
    return ConfigError(f"{plugin.where}: {text}" + (f" ({advice})" if advice else ""))
