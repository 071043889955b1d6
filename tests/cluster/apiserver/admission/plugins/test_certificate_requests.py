"""CertificateSigningRequests on values: the permissions for a signer, and the group that no certificate gives."""

import pytest

from tests.cluster.apiserver.access.test_certificate_requests import certificate_request
from tests.cluster.apiserver.access.test_escalation import ANN, authorizer_with, rule
from trainwright.cluster.apiserver.admission.plugins.certificate_requests import (
    admit_certificate_status,
    admit_certificate_subject,
    check_signer_permission,
)
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.objects import Object
from trainwright.objects.resources import CERTIFICATE_SIGNING_REQUESTS

GROUP = CERTIFICATE_SIGNING_REQUESTS.group
REQUEST: Object = {"metadata": {"name": "r"}, "spec": {"signerName": "example.com/mine"}}


@pytest.mark.parametrize(("allowed", "to_approve"), [("approve", True), ("sign", False)])
@pytest.mark.parametrize("signer", ["example.com/mine", "example.com/*"])
async def test_permission_is_for_one_verb_and_a_signer_or_its_domain(
    allowed: str, to_approve: bool, signer: str
) -> None:
    authorizer = await authorizer_with(rule(allowed, "signers", signer, group=GROUP))
    check_signer_permission(authorizer, ANN, allowed, REQUEST)

    refused = "sign" if to_approve else "approve"
    with pytest.raises(StatusError, match=f'user not permitted to {refused} requests with signerName "example.com/m'):
        check_signer_permission(authorizer, ANN, refused, REQUEST)


async def test_permission_for_another_domain_is_none() -> None:
    authorizer = await authorizer_with(rule("sign", "signers", "example.org/*", group=GROUP))
    with pytest.raises(StatusError, match="user not permitted to sign"):
        check_signer_permission(authorizer, ANN, "sign", REQUEST)


@pytest.mark.parametrize("status", [{"certificate": "eA=="}, {"conditions": [{"type": "Failed", "status": "True"}]}])
async def test_decisions_in_the_status_need_the_permission_to_sign(status: Object) -> None:
    authorizer = await authorizer_with()
    decided = REQUEST | {"status": status}
    admit_certificate_status(authorizer, ANN, decided, decided)

    for new, old in ((decided, REQUEST), (REQUEST, decided)):
        with pytest.raises(StatusError, match="user not permitted to sign"):
            admit_certificate_status(authorizer, ANN, new, old)


def test_signer_of_clients_makes_no_administrators() -> None:
    admit_certificate_subject(certificate_request("r", "team"))
    admit_certificate_subject(certificate_request("r", "system:masters", signerName="example.com/mine"))
    with pytest.raises(StatusError, match="with system:masters group is not allowed"):
        admit_certificate_subject(certificate_request("r", "team", "system:masters"))
