"""Names of images, read as Docker reads them: `python:3.11` is docker.io/library/python:3.11."""

import re
from dataclasses import dataclass, replace
from typing import Self

DEFAULT_REGISTRY = "docker.io"
DEFAULT_TAG = "latest"

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_REGISTRY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?", re.ASCII)
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*", re.ASCII)
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[a-f0-9]{64}|sha512:[a-f0-9]{128}", re.ASCII)
_SHA256 = re.compile(r"sha256:[a-f0-9]{64}", re.ASCII)
_IMAGE_ID = re.compile(r"[a-f0-9]{64}", re.ASCII)
_LONGEST_NAME = 255


class InvalidReferenceError(ValueError):
    """The text is not the name of an image; `reason` is what Docker and the kubelet say about it."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"{text[:300]!r} is not the name of an image: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True, order=True)
class ImageReference:
    """A name with registry and repository, and a tag, a digest or both. `str()` is the full name."""

    registry: str
    repository: str
    tag: str | None = DEFAULT_TAG
    digest: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Adds docker.io, library/ and :latest where the text has none."""
        if _IMAGE_ID.fullmatch(text):
            raise InvalidReferenceError(
                text, f"invalid repository name ({text}), cannot specify 64-byte hexadecimal strings"
            )
        rest, at, digest = text.partition("@")
        if at and not _DIGEST.fullmatch(digest):
            raise InvalidReferenceError(text, "invalid reference format")
        head, colon, tag = rest.rpartition(":")
        if colon and "/" not in tag:
            rest = head
            if not _TAG.fullmatch(tag):
                raise InvalidReferenceError(text, "invalid reference format")
        else:
            tag = ""
        registry, repository = _split_registry(rest)
        if not _REPOSITORY.fullmatch(repository):
            if _REPOSITORY.fullmatch(repository.lower()):
                reason = f"invalid reference format: repository name ({repository}) must be lowercase"
            else:
                reason = "invalid reference format"
            raise InvalidReferenceError(text, reason)
        if not _REGISTRY.fullmatch(registry):
            raise InvalidReferenceError(text, "invalid reference format")
        if len(registry) + 1 + len(repository) > _LONGEST_NAME:
            raise InvalidReferenceError(text, f"repository name must not be more than {_LONGEST_NAME} characters")
        return cls(registry, repository, tag or (None if digest else DEFAULT_TAG), digest or None)

    @property
    def name(self) -> str:
        """Registry and repository."""
        return f"{self.registry}/{self.repository}"

    @property
    def familiar_name(self) -> str:
        """Registry and repository as Docker prints them: without docker.io and library/."""
        if self.registry != DEFAULT_REGISTRY:
            return self.name
        short = self.repository.removeprefix("library/")
        return self.repository if "/" in short else short

    @property
    def familiar(self) -> str:
        """The whole reference as Docker prints it."""
        return self.familiar_name + self._suffix

    @property
    def identifier(self) -> str:
        """What a registry is asked for: the digest if there is one, else the tag."""
        return self.digest or self.tag or DEFAULT_TAG

    def with_digest(self, digest: str) -> Self:
        """The same repository at this digest, without the tag."""
        return replace(self, tag=None, digest=digest)

    def __str__(self) -> str:
        return self.name + self._suffix

    @property
    def _suffix(self) -> str:
        return (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")


def is_digest(text: str) -> bool:
    """True for the digests that name blobs; registries and tools use no other algorithm."""
    return _SHA256.fullmatch(text) is not None


def _split_registry(name: str) -> tuple[str, str]:
    """The first component is a registry if it cannot be the beginning of a repository: `localhost`, dots, a port."""
    first, slash, rest = name.partition("/")
    is_registry = slash and (first == "localhost" or "." in first or ":" in first or first.lower() != first)
    registry, repository = (first, rest) if is_registry else (DEFAULT_REGISTRY, name)
    if registry == "index.docker.io":
        registry = DEFAULT_REGISTRY
    if registry == DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    return registry, repository
