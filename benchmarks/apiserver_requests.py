"""What the API server was asked to do, from its own counters: so nobody has to be trusted about what he sent."""

import re
from collections import Counter

from trainwright.kube.client.async_client import Client

_WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "APPLY": "apply", "DELETE": "delete"}
_COUNTER = re.compile(r"apiserver_request_total\{(?P<labels>[^}]*)\} (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_SERVERS_OWN = {"leases", "endpointslices", "flowschemas", "prioritylevelconfigurations"}
"""What the control plane keeps up by itself, whoever else is there."""


async def writes_so_far(client: Client) -> Counter[str]:
    """All writes since the server started, refused ones too, by verb and resource, such as `patch pods/status`."""
    counts: Counter[str] = Counter()
    for match in _COUNTER.finditer((await client.raw("GET", "/metrics")).decode()):
        labels = dict(_LABEL.findall(match["labels"]))
        if labels["verb"] in _WRITES and labels["resource"] not in _SERVERS_OWN:
            resource = "/".join(filter(None, (labels["resource"], labels["subresource"])))
            counts[f"{_WRITES[labels['verb']]} {resource}"] += int(float(match["value"]))
    return counts
