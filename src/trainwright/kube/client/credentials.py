"""The credentials of a `ClusterConfig` on the wire: headers, TLS context, proxy."""

import base64
import ipaddress
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trainwright.kube.client.kubeconfig import ClusterConfig, ConfigError, ExecPlugin

if TYPE_CHECKING:
    from trainwright.kube.client.exec_plugin import ExecCredential

log = logging.getLogger(__name__)

_TOKEN_READ_PERIOD = 60.0
_PLUGIN_PAUSE = 10.0


class Credentials:
    """Credentials as headers and as a TLS context; both may change.

    A token file is read again when it has been rotated, and at least every minute. A plugin runs again when its
    credentials have expired. While that fails, the last valid credentials stay in use. Several threads may share one.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._clock, self._monotonic = clock, monotonic
        self._lock = threading.Lock()
        self._headers = _fixed_headers(config)
        self._token_stamp: tuple[int, ...] = ()
        self._token_read = 0.0
        self._plugin = config.exec_plugin
        self._credential: ExecCredential | None = None
        self._plugin_paused_until = float("-inf")
        self._plugin_error = ConfigError("")
        self.tls = tls_context(config)
        self.generation = 0
        """Increases with every change. A request that failed with 401 under an older generation is sent again."""

    def headers(self) -> Mapping[str, str]:
        if self._config.token_file is not None:
            self._read_token(self._config.token_file)
        return self._headers

    @property
    def needs_plugin(self) -> bool:
        """True if `run_plugin` must be called before the next request."""
        if self._plugin is None:
            return False
        if self._credential is None:
            return True
        expired = self._credential.expires is not None and self._credential.expires <= self._clock()
        return expired and self._monotonic() >= self._plugin_paused_until

    def run_plugin(self) -> None:
        """Runs the plugin, unless another thread just has. Raises ConfigError if it has never succeeded."""
        with self._lock:
            if self._plugin is None or not self.needs_plugin:
                return
            if not self._run(self._plugin) and self._credential is None:
                raise self._plugin_error

    def refresh_after_unauthorized(self, generation: int) -> bool:
        """True if there are newer credentials than those of `generation`, which got a 401. May run the plugin."""
        with self._lock:
            if generation != self.generation:
                return True
            if self._plugin is not None:
                return self._run(self._plugin)
            if self._config.token_file is not None:
                self._token_stamp = ()
                self._read_token(self._config.token_file)
            return generation != self.generation

    def _run(self, plugin: ExecPlugin) -> bool:
        """False if it fails, or has just failed: it is not run for each waiting request."""
        if self._monotonic() < self._plugin_paused_until:
            return False
        from trainwright.kube.client import exec_plugin

        try:
            credential = exec_plugin.run(plugin)
            self.tls = self._tls_with(credential)
        except ConfigError as error:
            self._plugin_error = error
            self._plugin_paused_until = self._monotonic() + _PLUGIN_PAUSE
            if self._credential is not None:
                log.warning("%s", error)
            return False
        self._credential = credential
        self._set_headers({"Authorization": f"Bearer {credential.token}"} if credential.token else {})
        return True

    def _tls_with(self, credential: "ExecCredential") -> ssl.SSLContext | None:
        """Returns the same context while nothing changes, so that open connections stay in use."""
        known = self._credential
        if (credential.certificate, credential.key) == ((known.certificate, known.key) if known else (None, None)):
            return self.tls
        return tls_context(
            replace(self._config, client_certificate_data=credential.certificate, client_key_data=credential.key)
        )

    def _read_token(self, path: Path) -> None:
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
            if stamp == self._token_stamp and self._monotonic() - self._token_read < _TOKEN_READ_PERIOD:
                return
            token = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._headers:
                return
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigError(f"cannot read the token file {path}: {reason}") from None
        if not token:
            if self._headers:
                return
            raise ConfigError(f"the token file {path} is empty")
        self._token_stamp, self._token_read = stamp, self._monotonic()
        headers = {"Authorization": f"Bearer {token}"}
        if headers != self._headers:
            self._set_headers(headers)

    def _set_headers(self, headers: Mapping[str, str]) -> None:
        self._headers = headers
        self.generation += 1


def tls_context(config: ClusterConfig) -> ssl.SSLContext | None:
    """None for a server without TLS."""
    if not config.server.startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cadata=config.ca_data.decode() if config.ca_data else None)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"certificate-authority of context {config.context!r} cannot be used: {error}") from None
    # Python 3.13 requires key identifiers, which the authorities of many clusters lack.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.client_certificate_data and config.client_key_data:
        try:
            load_certificate(context, config.client_certificate_data, config.client_key_data)
        except ssl.SSLError as error:
            raise ConfigError(
                f"client certificate and key of context {config.context!r} cannot be used: {error}"
            ) from None
    return context


def basic_authorization(username: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"


def proxy_for(config: ClusterConfig, environ: Mapping[str, str]) -> str | None:
    """The proxy of the kubeconfig, else that of the environment for this server, as in kubectl."""
    if config.proxy_url:
        return config.proxy_url
    server = urlsplit(config.server)
    host = server.hostname or ""
    if host == "localhost" or (_address(host) or ipaddress.IPv4Address(0)).is_loopback:
        return None
    name = f"{server.scheme}_proxy"
    proxy = environ.get(name) or environ.get(name.upper()) or ""
    exceptions = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if not proxy or any(_excepted(host, term.strip()) for term in exceptions.split(",") if term.strip()):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not proxy.startswith("http://"):
        scheme = proxy.partition("://")[0]  # the rest may contain a password
        raise ConfigError(f"{name.upper()} must start with http://, not {scheme}://: other proxies are not supported")
    return proxy


def _excepted(host: str, term: str) -> bool:
    """`term` of NO_PROXY is `*`, a network, or a host and its subdomains."""
    if term == "*":
        return True
    address = _address(host)
    if address is not None:
        try:
            return address in ipaddress.ip_network(term, strict=False)
        except ValueError:
            return False
    domain = term.removeprefix("*").removeprefix(".").lower()
    return host == domain or host.endswith(f".{domain}")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _fixed_headers(config: ClusterConfig) -> Mapping[str, str]:
    if config.token_file:
        return {}
    if config.token:
        return {"Authorization": f"Bearer {config.token}"}
    if config.username:
        return {"Authorization": basic_authorization(config.username, config.password or "")}
    return {}


def load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Loads a certificate and its key, for all new connections.

    The ssl module reads only files; this one is in memory, and other processes cannot open it by name.
    """
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, key + b"\n" + certificate)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
