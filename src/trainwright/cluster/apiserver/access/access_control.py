"""Authentication, authorization and reviews over one store."""

from collections.abc import Callable

from trainwright.cluster.apiserver.access.authenticator import Authenticator
from trainwright.cluster.apiserver.access.authorizer import Authorizer
from trainwright.cluster.apiserver.access.certificate_signer import CertificateSigner
from trainwright.cluster.apiserver.access.reviews import Reviewer
from trainwright.cluster.apiserver.access.service_account_tokens import ServiceAccountTokens
from trainwright.cluster.apiserver.access.token_signer import TokenSigner
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.net.certificate_authority import Authority, new_key_pem


class AccessControl:
    """`load_key` is that of TokenSigner; `authority` is the CA certificate (PEM) that tokens in Secrets come with.

    `load_authority` returns the CA that signs certificates of clients; without it none are signed.
    """

    def __init__(
        self,
        store: ObjectStore,
        admin_token: str,
        *,
        load_key: Callable[[], bytes] = new_key_pem,
        authority: bytes = b"",
        load_authority: Callable[[], Authority] | None = None,
    ) -> None:
        self.signer = TokenSigner(load_key)
        self.authority = authority
        self.certificates = CertificateSigner(load_authority) if load_authority is not None else None
        self.authorizer = Authorizer(store)
        self.tokens = ServiceAccountTokens(store, self.signer)
        self.authenticator = Authenticator(admin_token, self.tokens, self.authorizer)
        self.reviewer = Reviewer(self.authorizer, self.authenticator)
