"""Signs and verifies JSON Web Tokens with the cluster's key for service accounts.

`cryptography` is imported on use: its import takes a tenth of a second.
"""

import base64
import binascii
import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from trainwright.net.certificate_authority import new_key_pem
from trainwright.objects import Object

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

_MAX_VERIFIED = 4096
_WORD = 32
"""Bytes of each of the two numbers of a signature with the curve P-256."""


class InvalidTokenError(Exception):
    """The token is not signed by this cluster, or no longer valid; the message says why."""


class UnknownTokenError(InvalidTokenError):
    """The token is not signed by this cluster."""


@dataclass(frozen=True, slots=True)
class _Key:
    private: "ec.EllipticCurvePrivateKey"
    public: "ec.EllipticCurvePublicKey"
    id: str


class TokenSigner:
    """`load_key` returns the PEM of the private key; it is called once, when the first token is signed or verified."""

    def __init__(self, load_key: Callable[[], bytes] = new_key_pem) -> None:
        self._load_key = load_key
        self._key: _Key | None = None
        self._loading = threading.Lock()
        self._verified = lru_cache(_MAX_VERIFIED)(self._verify)

    def sign(self, claims: Object) -> str:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

        key = self.key()
        signed = b".".join(map(_encoded, ({"alg": "ES256", "kid": key.id}, claims)))
        numbers = decode_dss_signature(key.private.sign(signed, ec.ECDSA(hashes.SHA256())))
        signature = b"".join(number.to_bytes(_WORD, "big") for number in numbers)
        return (signed + b"." + _base64(signature)).decode()

    def verify(self, token: str) -> Object:
        """The claims of a token that this key has signed; the result is kept, since clients repeat their token."""
        return self._verified(token)

    def public_keys(self) -> Object:
        """The JSON Web Key Set of `/openid/v1/jwks`."""
        key = self.key()
        numbers = key.public.public_numbers()
        x, y = (_base64(number.to_bytes(_WORD, "big")).decode() for number in (numbers.x, numbers.y))
        entry = {"use": "sig", "kty": "EC", "kid": key.id, "crv": "P-256", "alg": "ES256", "x": x, "y": y}
        return {"keys": [entry]}

    def key(self) -> _Key:
        """Loads the key, which imports `cryptography`; a thread can call it before the first token is needed."""
        with self._loading:
            if self._key is None:
                self._key = self._loaded_key()
            return self._key

    def _loaded_key(self) -> _Key:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

        private = load_pem_private_key(self._load_key(), password=None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ValueError("the key of service account tokens is not an elliptic curve key")
        public = private.public_key()
        der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return _Key(private, public, _base64(hashlib.sha256(der).digest()).decode())

    def _verify(self, token: str) -> Object:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

        try:
            signed, _, signature = token.rpartition(".")
            header, claims = (_decoded(part) for part in signed.split(".", 1))
            raw = _unbase64(signature)
            if header.get("alg") != "ES256" or len(raw) != 2 * _WORD:
                raise UnknownTokenError("invalid signature")
            numbers = (int.from_bytes(raw[:_WORD], "big"), int.from_bytes(raw[_WORD:], "big"))
            self.key().public.verify(encode_dss_signature(*numbers), signed.encode(), ec.ECDSA(hashes.SHA256()))
        except (ValueError, UnicodeError, AttributeError, InvalidSignature) as error:
            raise UnknownTokenError("invalid signature") from error
        return claims


def looks_like_token(text: str) -> bool:
    """Whether it has the three parts of a JSON Web Token."""
    return text.count(".") == 2 and text.isascii()


def _encoded(value: Object) -> bytes:
    return _base64(msgspec.json.encode(value))


def _decoded(part: str) -> Object:
    return msgspec.json.decode(_unbase64(part), type=Object)


def _base64(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def _unbase64(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as error:
        raise UnknownTokenError("invalid token") from error
