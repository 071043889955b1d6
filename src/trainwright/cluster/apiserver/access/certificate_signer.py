"""Signs approved CertificateSigningRequests for clients of the API server, as kube-controller-manager does."""

import base64
from collections.abc import Callable
from datetime import datetime, timedelta

from trainwright.cluster.apiserver.access.users import MASTERS
from trainwright.cluster.apiserver.resources.strategies.certificate_strategy import pem_of
from trainwright.net.certificate_authority import Authority, InvalidRequestError, organizations_of
from trainwright.objects import Object
from trainwright.objects.times import format_time

SIGNER = "kubernetes.io/kube-apiserver-client"
_LIFETIME = timedelta(days=365)
_USAGES = {"client auth", "digital signature", "key encipherment"}


class CertificateSigner:
    """`load_authority` returns the CA of the cluster."""

    def __init__(self, load_authority: Callable[[], Authority]) -> None:
        self._load_authority = load_authority

    def is_responsible(self, request: Object) -> bool:
        """True for an approved request of a client certificate that has none yet."""
        status = request.get("status") or {}
        types = {condition.get("type") for condition in status.get("conditions") or ()}
        waiting = "Approved" in types and not types & {"Denied", "Failed"} and not status.get("certificate")
        return waiting and request["spec"].get("signerName") == SIGNER

    def signed(self, request: Object, now: datetime) -> Object:
        """The status with a certificate, or with the condition Failed that says why not."""
        spec, status = request["spec"], request["status"]
        problem = _problem(spec)
        if MASTERS in organizations_of(pem_of(request)):
            problem = f"the group {MASTERS} is not allowed"
        if not problem:
            wanted = timedelta(seconds=spec["expirationSeconds"]) if spec.get("expirationSeconds") else _LIFETIME
            try:
                pem = self._load_authority().sign_client(pem_of(request), now=now, lifetime=min(wanted, _LIFETIME))
                return dict(status) | {"certificate": base64.b64encode(pem).decode()}
            except InvalidRequestError as error:
                problem = str(error)
        moment = format_time(now)
        failed = {"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": problem}
        times = {"lastUpdateTime": moment, "lastTransitionTime": moment}
        return dict(status) | {"conditions": [*status["conditions"], failed | times]}


def _problem(spec: Object) -> str:
    usages = set(spec.get("usages") or ())
    if "client auth" not in usages:
        return "usages did not match: client auth is missing"
    unknown = sorted(usages - _USAGES)
    return f"usages did not match: {', '.join(unknown)} not allowed" if unknown else ""
