"""Reads how to connect to a cluster, from kubeconfig files or from the service account of a pod.

Errors are one line that names the file, the field and the fix. The result is a plain value for both clients.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml

from trainwright.atomic_files import write_atomically

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ConfigError(Exception):
    """The configuration of the connection is missing or invalid. The message is one line for the user."""


@dataclass(frozen=True, kw_only=True)
class ExecPlugin:
    """A credential plugin. `where` is its place in the kubeconfig, `cluster` its provideClusterInfo."""

    where: str
    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    interactive_mode: str = "IfAvailable"
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """Everything needed to connect. `context` is the name shown to users. `token_file` is read on use."""

    server: str
    namespace: str = "default"
    context: str = ""
    ca_data: bytes | None = field(default=None, repr=False)
    insecure: bool = False
    tls_server_name: str | None = None
    client_certificate_data: bytes | None = field(default=None, repr=False)
    client_key_data: bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    exec_plugin: ExecPlugin | None = None
    proxy_url: str | None = field(default=None, repr=False)


def load_kubeconfig(path: Path | None = None, *, context: str | None = None) -> ClusterConfig:
    """Reads one context, by default the current one. Without `path`: the files of $KUBECONFIG, else ~/.kube/config."""
    return _resolve(_merge(_read_existing(path)), context)


def in_cluster_config(directory: Path = SERVICE_ACCOUNT) -> ClusterConfig:
    """The configuration of a pod in the cluster, by its service account."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigError(
            "not inside a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; give a kubeconfig"
        )
    token_file, ca_file, namespace_file = directory / "token", directory / "ca.crt", directory / "namespace"
    _read_file(token_file, "the service account's token (is automountServiceAccountToken false?)")
    return ClusterConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace_file.read_text().strip() if namespace_file.exists() else "default",
        context="in-cluster",
        ca_data=_read_file(ca_file, "the cluster's certificate authority"),
        token_file=token_file,
    )


def merge_into_kubeconfig(
    path: Path, *, name: str, server: str, ca_data: bytes, token: str = "", credential: Path | None = None
) -> None:
    """Adds or replaces the cluster, user and context `name`. Sets current-context only if there is none. With
    `credential`, the file of an ExecCredential, clients read that instead of finding the token here."""
    document = _load_document(path) if path.exists() else {"apiVersion": "v1", "kind": "Config"}
    authority = base64.b64encode(ca_data).decode()
    _put(document, "clusters", name, {"cluster": {"server": server, "certificate-authority-data": authority}})
    _put(document, "users", name, {"user": {"exec": _reading(credential)} if credential else {"token": token}})
    _put(document, "contexts", name, {"context": {"cluster": name, "user": name}})
    if not document.get("current-context"):
        document["current-context"] = name
    _replace_file(path, document)


def _reading(credential: Path) -> dict[str, Any]:
    """A plugin, because a `tokenFile` would come before `kubectl --token`."""
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "cat",
        "args": [str(credential)],
        "interactiveMode": "Never",
    }


def remove_from_kubeconfig(path: Path, *, name: str) -> None:
    """Removes what `merge_into_kubeconfig` added, if it is there."""
    if not path.exists():
        return
    document = _load_document(path)
    for section in _SECTIONS:
        entries = document.get(section)
        if entries:
            document[section] = [entry for entry in entries if entry.get("name") != name]
    if document.get("current-context") == name:
        document["current-context"] = ""
    _replace_file(path, document)


# Reading

_Section = Literal["clusters", "users", "contexts"]
_SECTIONS: Mapping[_Section, str] = {"clusters": "cluster", "users": "user", "contexts": "context"}


@dataclass(frozen=True)
class _Entry:
    """A named cluster, user or context, and its file."""

    what: str
    name: str
    body: dict[str, Any]
    file: Path

    def text(self, key: str) -> str | None:
        value = self.body.get(key)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise ConfigError(f"{self.field(key)} must be a string, not {value!r}; put it in quotes")
        return value

    def flag(self, key: str) -> bool:
        value = self.body.get(key, False)
        if not isinstance(value, bool):
            raise ConfigError(f"{self.field(key)} must be true or false, not {value!r}")
        return value

    def path(self, key: str) -> Path | None:
        """Relative paths start at the directory of the kubeconfig."""
        text = self.text(key)
        return self.file.parent / text if text else None

    def data(self, key: str) -> bytes | None:
        """`KEY-data` in base64, else the content of the file KEY."""
        if encoded := self.text(f"{key}-data"):
            try:
                return base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError) as error:
                raise ConfigError(f"{self.field(f'{key}-data')} is not base64: {error}") from None
        path = self.path(key)
        return _read_file(path, self.field(key)) if path else None

    def field(self, key: str) -> str:
        return f"{key} of {self.what} {self.name!r} in {self.file}"


@dataclass(frozen=True)
class _Kubeconfig:
    files: tuple[Path, ...]
    current: str
    entries: Mapping[str, Mapping[str, _Entry]]

    def find(self, section: _Section, name: str, *, wanted_by: str) -> _Entry:
        found = self.entries[section].get(name)
        if found is None:
            existing = ", ".join(self.entries[section]) or "none"
            files = ", ".join(map(str, self.files))
            raise ConfigError(f"{wanted_by}: no {_SECTIONS[section]} {name!r} in {files} (existing: {existing})")
        return found


class _PlainLoader(yaml.SafeLoader):
    """Reads dates as strings, so that writing the file back does not change them."""


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _read_existing(path: Path | None) -> list[tuple[Path, dict[str, Any]]]:
    if path is not None:
        return [(path, _load_document(path))]
    listed = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    candidates = listed or [Path.home() / ".kube" / "config"]
    # As in kubectl, files of $KUBECONFIG that do not exist are ignored.
    existing = [candidate for candidate in candidates if candidate.exists()]
    if not existing:
        names = ", ".join(map(str, candidates))
        raise ConfigError(f"no kubeconfig: {names} does not exist; name a file with --kubeconfig or $KUBECONFIG")
    return [(candidate, _load_document(candidate)) for candidate in existing]


def _check_owner(path: Path) -> None:
    """Plugins in the file are started as this user, and its servers get what this user sends."""
    try:
        owner = path.stat().st_uid
    except OSError:
        return  # reading it says why
    # In a user namespace root can be unmapped: then the root directory has its number.
    if owner not in {os.geteuid(), 0, Path("/").stat().st_uid}:
        raise ConfigError(
            f"kubeconfig {path} belongs to another user (uid {owner}), who could run programs as this one with it: use "
            "a copy that you have read, or set HOME or KUBECONFIG to your own (`sudo -H`)"
        )


def _load_document(path: Path) -> dict[str, Any]:
    _check_owner(path)
    text = _read_file(path, "the kubeconfig")
    try:
        document = yaml.load(text, Loader=_PlainLoader)  # noqa: S506 (a SafeLoader without timestamps)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"kubeconfig {path} is not YAML: {' '.join(str(error).split())}") from None
    if document is None:
        document = {"apiVersion": "v1", "kind": "Config"}
    if not isinstance(document, dict):
        raise ConfigError(f"kubeconfig {path} must be a mapping with clusters, users and contexts")
    for section in _SECTIONS:
        entries = document.get(section) or []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ConfigError(f"{section} in kubeconfig {path} must be a list of named entries")
    return document


def _merge(documents: list[tuple[Path, dict[str, Any]]]) -> _Kubeconfig:
    """As kubectl merges $KUBECONFIG: the first file that sets a value wins."""
    entries: dict[str, dict[str, _Entry]] = {section: {} for section in _SECTIONS}
    current = ""
    for path, document in documents:
        current = current or str(document.get("current-context") or "")
        for section, what in _SECTIONS.items():
            for entry in document.get(section) or []:
                name, body = str(entry.get("name", "")), entry.get(what) or {}
                if not isinstance(body, dict):
                    raise ConfigError(f"{what} {name!r} in kubeconfig {path} must be a mapping, not {body!r}")
                entries[section].setdefault(name, _Entry(what, name, body, path))
    return _Kubeconfig(tuple(path for path, _ in documents), current, entries)


def _resolve(kubeconfig: _Kubeconfig, wanted: str | None) -> ClusterConfig:
    files = ", ".join(map(str, kubeconfig.files))
    name = wanted or kubeconfig.current
    if not name:
        existing = ", ".join(kubeconfig.entries["contexts"]) or "none"
        raise ConfigError(f"no context: {files} has no current-context; choose one with --context ({existing})")
    wanted_by = f"context {name!r}" if wanted else f"current-context {name!r}"
    context = kubeconfig.find("contexts", name, wanted_by=wanted_by)
    cluster_name = context.text("cluster")
    if not cluster_name:
        raise ConfigError(f"{context.field('cluster')} is missing")
    cluster = kubeconfig.find("clusters", cluster_name, wanted_by=wanted_by)
    user_name = context.text("user")
    user = kubeconfig.find("users", user_name, wanted_by=wanted_by) if user_name else None
    return _connect(name, context, cluster, user or _Entry("user", "", {}, context.file))


def _connect(name: str, context: _Entry, cluster: _Entry, user: _Entry) -> ClusterConfig:
    if user.body.get("auth-provider"):
        raise ConfigError(
            f"{user.field('auth-provider')} is not supported: use exec, a token, tokenFile, client certificate or "
            "username and password (`kubectl create token` makes a token)"
        )
    certificate, key = user.data("client-certificate"), user.data("client-key")
    if (certificate is None) != (key is None):
        missing = "client-key" if key is None else "client-certificate"
        raise ConfigError(f"{user.field(missing)} is missing: a client certificate needs its key")
    insecure = cluster.flag("insecure-skip-tls-verify")
    config = ClusterConfig(
        server=_server_url(cluster),
        namespace=context.text("namespace") or "default",
        context=name,
        ca_data=None if insecure else cluster.data("certificate-authority"),
        insecure=insecure,
        tls_server_name=cluster.text("tls-server-name"),
        client_certificate_data=certificate,
        client_key_data=key,
        token=user.text("token"),
        token_file=user.path("tokenFile"),
        username=user.text("username"),
        password=user.text("password"),
        proxy_url=_proxy_url(cluster),
    )
    if not user.body.get("exec"):
        return config
    plugin = _exec_plugin(user, config, _plugin_settings(cluster))
    # As in kubectl, static credentials take precedence over the plugin.
    static = config.token or config.token_file or config.username
    return config if static else replace(config, exec_plugin=plugin)


_PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_PLUGIN_MODES = ("Never", "IfAvailable", "Always")


def _exec_plugin(user: _Entry, config: ClusterConfig, settings: Any) -> ExecPlugin:
    body = user.body["exec"]
    if not isinstance(body, dict):
        raise ConfigError(f"{user.field('exec')} must be a mapping with a command, not {body!r}")
    plugin = _Entry("exec of user", user.name, body, user.file)
    command = plugin.text("command")
    if command is None:
        raise ConfigError(f"{plugin.field('command')} is missing")
    version = plugin.text("apiVersion")
    if version not in _PLUGIN_VERSIONS:
        raise ConfigError(
            f"{plugin.field('apiVersion')} must be {' or '.join(_PLUGIN_VERSIONS)}, not {version!r}: "
            f"update {command} and let it write the kubeconfig again"
        )
    mode = plugin.text("interactiveMode")
    if mode not in _PLUGIN_MODES and (mode is not None or version == _PLUGIN_VERSIONS[0]):
        raise ConfigError(f"{plugin.field('interactiveMode')} must be one of {', '.join(_PLUGIN_MODES)}, not {mode!r}")
    args, env = body.get("args") or [], body.get("env") or []
    if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
        raise ConfigError(f"{plugin.field('args')} must be a list of strings; put numbers in quotes")
    if not isinstance(env, list) or not all(_is_variable(entry) for entry in env):
        raise ConfigError(f"{plugin.field('env')} must be a list of entries with name and value, both strings")
    return ExecPlugin(
        where=user.field("exec"),
        # A path is relative to the kubeconfig; a name without `/` is found in $PATH.
        command=str(user.file.parent / command) if "/" in command else command,
        api_version=version,
        args=tuple(args),
        env=tuple((entry["name"], entry["value"]) for entry in env),
        interactive_mode=mode or "IfAvailable",
        install_hint=plugin.text("installHint") or "",
        cluster=_cluster_info(config, settings) if plugin.flag("provideClusterInfo") else None,
    )


def _is_variable(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("value"), str)


def _plugin_settings(cluster: _Entry) -> Any:
    """The cluster's extension for plugins (ExecCredential spec.cluster.config)."""
    extensions = cluster.body.get("extensions") or []
    named = {entry.get("name"): entry.get("extension") for entry in extensions if isinstance(entry, dict)}
    return named.get("client.authentication.k8s.io/exec")


def _cluster_info(config: ClusterConfig, settings: Any) -> dict[str, Any]:
    info = {
        "server": config.server,
        "tls-server-name": config.tls_server_name,
        "insecure-skip-tls-verify": config.insecure or None,
        "certificate-authority-data": base64.b64encode(config.ca_data).decode() if config.ca_data else None,
        "proxy-url": config.proxy_url,
        "config": settings,
    }
    return {key: value for key, value in info.items() if value is not None}


def _server_url(cluster: _Entry) -> str:
    server = cluster.text("server")
    if not server:
        raise ConfigError(f"{cluster.field('server')} is missing")
    parts = urlsplit(server if "://" in server else f"http://{server}")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"{cluster.field('server')} must be of the form https://HOST:PORT, not {server!r}")
    return parts.geturl().rstrip("/")


def _proxy_url(cluster: _Entry) -> str | None:
    proxy = cluster.text("proxy-url")
    if proxy and urlsplit(proxy).scheme != "http":
        raise ConfigError(f"{cluster.field('proxy-url')} must start with http://, other proxies are not supported")
    return proxy


def _read_file(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{what}: cannot read {path}: {error.strerror}") from None


# Writing


def _put(document: dict[str, Any], section: _Section, name: str, body: dict[str, Any]) -> None:
    others = [entry for entry in document.get(section) or [] if entry.get("name") != name]
    document[section] = [*others, {"name": name, **body}]


def _replace_file(path: Path, document: dict[str, Any]) -> None:
    """Replaces the file atomically. A symbolic link stays one."""
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(target, yaml.safe_dump(document, sort_keys=False).encode())
