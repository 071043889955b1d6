"""Files that ADD reads from an address."""

import hashlib
import os
import posixpath
from dataclasses import dataclass

from trainwright.cluster.images.blobs import is_full
from trainwright.cluster.images.build.messages import BuildError
from trainwright.objects.decimals import parse_decimal

_TIMEOUT = 60.0
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Download:
    path: str
    name: str
    """The last part of the address; empty if it has none."""
    digest: str
    mtime: float | None


def is_address(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def is_git(source: str) -> bool:
    return source.startswith(("git://", "git@", "ssh://")) or (
        is_address(source) and ".git" in source.partition("#")[0][-4:]
    )


def download(address: str, path: str, checksum: str) -> Download:
    """`checksum` is what the content must have, as ALGORITHM:HEX; empty for any content."""
    import http.client  # most builds download nothing
    import urllib.error
    import urllib.parse
    import urllib.request

    algorithm, _, expected = checksum.partition(":")
    if checksum and (algorithm not in {"sha256", "sha384", "sha512"} or not expected):
        raise BuildError(f"--checksum={checksum} is not of the form sha256:HEX")
    found = hashlib.sha256()
    checked = hashlib.new(algorithm) if checksum else found
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as answer:  # noqa: S310 - the caller checks the scheme
            modified = answer.headers.get("Last-Modified")
            size, length = 0, answer.headers.get("Content-Length", "")
            with open(path, "xb") as file:
                while data := answer.read(_CHUNK):
                    file.write(data)
                    size += len(data)
                    found.update(data)
                    if checked is not found:
                        checked.update(data)
            if size < (parse_decimal(length) or 0):  # http.client says nothing
                raise BuildError(f"{address}: the server sent {size} of {length} bytes")
    except urllib.error.HTTPError as error:
        error.close()
        raise BuildError(f"{address}: the server answered {error.code} {error.reason}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and is_full(error):
            raise
        cause = getattr(error, "reason", error)
        text = cause.strerror if isinstance(cause, OSError) and cause.strerror else cause
        raise BuildError(f"cannot read {address}: {text or type(cause).__name__}") from error
    if checksum and checked.hexdigest() != expected.lower():
        os.unlink(path)
        raise BuildError(f"{address}: its content has the checksum {algorithm}:{checked.hexdigest()}, not {checksum}")
    name = posixpath.basename(urllib.parse.unquote(urllib.parse.urlsplit(address).path))
    return Download(path, name, found.hexdigest(), _seconds(modified))


def _seconds(modified: str | None) -> float | None:
    import email.utils

    try:
        return email.utils.parsedate_to_datetime(modified).timestamp() if modified else None
    except ValueError:
        return None
