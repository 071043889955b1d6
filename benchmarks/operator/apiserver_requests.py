"""The writes that the API server has received, from its own metrics: the same measure for all contenders."""

import re
from collections import Counter

from trainwright.kube.client.async_client import Client

_WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "APPLY": "apply", "DELETE": "delete"}
_COUNTER = re.compile(r"apiserver_request_total\{(?P<labels>[^}]*)\} (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITTEN_BY_THE_SERVER = {"leases", "endpointslices", "flowschemas", "prioritylevelconfigurations"}
"""Resources that the control plane itself writes."""


async def writes_so_far(client: Client) -> Counter[str]:
    """All writes since the server started, also refused ones, by verb and resource, such as `patch pods/status`."""
    counts: Counter[str] = Counter()
    for match in _COUNTER.finditer((await client.raw("GET", "/metrics")).decode()):
        labels = dict(_LABEL.findall(match["labels"]))
        if labels["verb"] in _WRITES and labels["resource"] not in _WRITTEN_BY_THE_SERVER:
            resource = "/".join(filter(None, (labels["resource"], labels["subresource"])))
            counts[f"{_WRITES[labels['verb']]} {resource}"] += int(float(match["value"]))
    return counts
