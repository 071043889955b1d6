"""How a `ClusterConfig` goes on the wire: the headers that prove who we are, the TLS context, the proxy."""

import base64
import ipaddress
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from trainwright.kube.config import ClusterConfig, ConfigError


class Credentials:
    """The headers that say who we are. A token file is read again whenever it has been rotated.

    While it cannot be read, the last token that it held goes on: a process that runs must not end because of a moment.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._token_file = config.token_file
        self._file_stamp: tuple[int, ...] = ()
        self._headers = _fixed_headers(config)

    def headers(self) -> Mapping[str, str]:
        if self._token_file is not None:
            self._refresh(self._token_file)
        return self._headers

    def _refresh(self, path: Path) -> None:
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
            if stamp == self._file_stamp:
                return
            token = path.read_text().strip()
        except OSError as error:
            if self._file_stamp:
                return
            raise ConfigError(f"cannot read the token file {path}: {error.strerror}") from None
        self._file_stamp = stamp
        self._headers = {"Authorization": f"Bearer {token}"}


def tls_context(config: ClusterConfig) -> ssl.SSLContext | None:
    """None for a server without TLS."""
    if not config.server.startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cadata=config.ca_data.decode() if config.ca_data else None)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"certificate-authority of context {config.context!r} cannot be used: {error}") from None
    # Python 3.13 began to demand key identifiers that the authorities of many running clusters do not have.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.client_certificate_data and config.client_key_data:
        _load_client_certificate(context, config.client_certificate_data, config.client_key_data, config.context)
    return context


def basic_authorization(username: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"


def proxy_of(config: ClusterConfig, environ: Mapping[str, str]) -> str | None:
    """The proxy that the kubeconfig names, else the one that the environment names for this server, as in kubectl."""
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
        raise ConfigError(f"{name.upper()} must start with http://, other proxies are not supported: {proxy!r}")
    return proxy


def _excepted(host: str, term: str) -> bool:
    """A term of NO_PROXY: everything, a network, or a host with the names below it."""
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
    if config.token:
        return {"Authorization": f"Bearer {config.token}"}
    if config.username:
        return {"Authorization": basic_authorization(config.username, config.password or "")}
    return {}


def _load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, name: str) -> None:
    """OpenSSL takes them from files only; those are gone, and were readable by us alone, when this returns."""
    with tempfile.TemporaryDirectory(prefix="trainwright-") as directory:
        pair = Path(directory, "pair.pem")
        pair.touch(mode=0o600)
        pair.write_bytes(certificate + b"\n" + key)
        try:
            context.load_cert_chain(pair)
        except ssl.SSLError as error:
            raise ConfigError(f"client certificate and key of context {name!r} cannot be used: {error}") from None
