"""Tokens are verified with the key that signed them, and nothing else is accepted."""

import base64
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.apiserver.access.token_signer import InvalidTokenError, TokenSigner, looks_like_token
from trainwright.objects import Object

SIGNER = TokenSigner()
TOKEN = SIGNER.sign({"sub": "ann"})
HEADER, CLAIMS, SIGNATURE = TOKEN.split(".")


def encoded(text: str | bytes) -> str:
    raw = text.encode() if isinstance(text, str) else text
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.integers(-5, 5) | st.booleans(), max_size=4))
def test_verified_claims_are_the_signed_ones(claims: Object) -> None:
    token = SIGNER.sign(claims)
    assert looks_like_token(token)
    assert SIGNER.verify(token) == claims


@given(st.integers(0, len(TOKEN) - 1), st.characters(codec="ascii"))
def test_changed_token_has_the_same_claims_or_none(place: int, character: str) -> None:
    """Some last characters of a part stand for the same bytes."""
    changed = TOKEN[:place] + character + TOKEN[place + 1 :]
    try:
        claims = SIGNER.verify(changed)
    except InvalidTokenError:
        return
    assert claims == {"sub": "ann"}


@pytest.mark.parametrize(
    "parts",
    [
        ("a", "b", "c"),
        ("", "", ""),
        (HEADER, CLAIMS, "x"),
        (HEADER, CLAIMS, ""),
        (encoded("[]"), CLAIMS, SIGNATURE),
        (encoded("not JSON"), CLAIMS, SIGNATURE),
        (encoded('{"alg":"none"}'), CLAIMS, ""),
        (encoded('{"alg":"none"}'), CLAIMS, SIGNATURE),
        (encoded('{"alg":"HS256"}'), CLAIMS, SIGNATURE),
        (encoded("{}"), CLAIMS, SIGNATURE),
        (HEADER, encoded('{"sub":"bob"}'), SIGNATURE),
        (HEADER, CLAIMS, encoded(bytes(64))),
        (HEADER, CLAIMS, encoded(bytes(65))),
        (HEADER, CLAIMS, encoded(b"\xff" * 64)),
        (HEADER, f"{CLAIMS}.{CLAIMS}", SIGNATURE),
    ],
)
def test_malformed_and_unsigned_tokens_are_invalid(parts: tuple[str, str, str]) -> None:
    with pytest.raises(InvalidTokenError):
        SIGNER.verify(".".join(parts))


def test_token_of_another_key_is_invalid() -> None:
    with pytest.raises(InvalidTokenError):
        SIGNER.verify(TokenSigner().sign({"sub": "ann"}))


def test_key_is_loaded_once_and_published() -> None:
    loads = []

    def load() -> bytes:
        loads.append(1)
        return pem(ec.generate_private_key(ec.SECP256R1()))

    signer = TokenSigner(load)
    [key] = signer.public_keys()["keys"]
    assert (key["kty"], key["crv"], key["kid"]) == ("EC", "P-256", signer.key().id)
    assert len(loads) == 1


def test_key_of_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="not an elliptic curve key"):
        TokenSigner(rsa_pem()).key()


def rsa_pem() -> Callable[[], bytes]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return lambda: pem(key)


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
