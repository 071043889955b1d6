"""The admission plugin CertificateSubjectRestriction: an approval makes no user an administrator."""

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.certificate_signer import SIGNER
from trainwright.cluster.apiserver.access.users import MASTERS
from trainwright.cluster.apiserver.resources.strategies.certificate_strategy import pem_of
from trainwright.net.certificate_authority import organizations_of
from trainwright.objects import Object
from trainwright.objects.resources import CERTIFICATE_SIGNING_REQUESTS


def admit_certificate_subject(request: Object) -> None:
    if request["spec"].get("signerName") == SIGNER and MASTERS in organizations_of(pem_of(request)):
        why = f"use of {SIGNER} signer with {MASTERS} group is not allowed"
        raise errors.forbidden(CERTIFICATE_SIGNING_REQUESTS, request["metadata"]["name"], why)
