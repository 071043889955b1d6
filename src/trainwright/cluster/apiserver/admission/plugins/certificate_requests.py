"""The admission plugins CertificateApproval, CertificateSigning and CertificateSubjectRestriction: who decides about a
CertificateSigningRequest, and that no approval makes a user an administrator."""

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.authorizer import Authorizer
from trainwright.cluster.apiserver.access.certificate_signer import SIGNER
from trainwright.cluster.apiserver.access.request_info import Attributes
from trainwright.cluster.apiserver.access.users import MASTERS, UserInfo
from trainwright.cluster.apiserver.resources.strategies.certificate_strategy import pem_of
from trainwright.net.certificate_authority import organizations_of
from trainwright.objects import Object
from trainwright.objects.paths import value_at
from trainwright.objects.resources import CERTIFICATE_SIGNING_REQUESTS

_DECISIONS = ("certificate", "conditions")


def admit_certificate_subject(request: Object) -> None:
    if request["spec"].get("signerName") == SIGNER and MASTERS in organizations_of(pem_of(request)):
        why = f"use of {SIGNER} signer with {MASTERS} group is not allowed"
        raise errors.forbidden(CERTIFICATE_SIGNING_REQUESTS, request["metadata"]["name"], why)


def admit_certificate_status(authorizer: Authorizer, user: UserInfo, new: Object, old: Object) -> None:
    """Raises 403 if the status gets another certificate or condition and the user may not sign."""
    if any(value_at(new, "status", field) != value_at(old, "status", field) for field in _DECISIONS):
        check_signer_permission(authorizer, user, "sign", old)


def check_signer_permission(authorizer: Authorizer, user: UserInfo, verb: str, request: Object) -> None:
    """Raises 403 unless the user has the permission, `approve` or `sign`, for the signer or for all of its domain."""
    signer = request["spec"]["signerName"]
    names = (signer, f"{signer.partition('/')[0]}/*")
    wanted = [Attributes(verb, CERTIFICATE_SIGNING_REQUESTS.group, "signers", "", "", name) for name in names]
    if not any(authorizer.authorize(user, attributes).allowed for attributes in wanted):
        why = f'user not permitted to {verb} requests with signerName "{signer}"'
        raise errors.forbidden(CERTIFICATE_SIGNING_REQUESTS, request["metadata"]["name"], why)
