"""What is said of a request: labels with few values, whatever the objects are called."""

from trainwright.kube.client import requests
from trainwright.kube.client.request_metrics import RequestSeen
from trainwright.objects.resources import PODS


def test_no_answer_is_an_error() -> None:
    request = requests.list_request(PODS, namespace=None)
    seen = [RequestSeen(request, status, 1.0) for status in (200, 409, None)]
    assert [(one.method, one.code) for one in seen] == [("GET", "200"), ("GET", "409"), ("GET", "<error>")]
