"""Hypothesis strategy for the first line of requests to an API server: most paths are nearly those of a resource."""

from hypothesis import strategies as st

METHODS = ("GET", "GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_WORDS = (
    "namespaces", "services", "secrets", "pods", "configmaps", "status", "log", "exec", "finalize", "watch", "proxy",
    "default", "nodes", "x", "v1", "api", "apis", "apps", "deployments", "scale", "token", "eviction", "binding",
)  # fmt: skip
_ODD = (
    "",
    "",
    ".",
    "..",
    "%2e%2e",
    "%2F",
    "default%2Fsecrets",
    "%252F",
    "%00",
    "a%20b",
    "SECRETS",
    "secrets;a=b",
    "a:b",
)
_TEMPLATES = (
    "/api/v1/namespaces/default/secrets/{}",
    "/api/v1/namespaces/default/pods/{}/{}",
    "/api/v1/namespaces/default/{}",
    "/api/v1/namespaces/{}/secrets",
    "/api/v1/namespaces/{}",
    "/api/v1/watch/namespaces/default/{}",
    "/api/v1/namespaces/{}/{}/{}",
    "/api/v1/namespaces/{}/{}",
    "/api/v1/namespaces/{}/{}/{}/{}",
    "/api/v1/{}/{}",
    "/api/v1/{}",
    "/api/v1/watch/namespaces/{}/{}/{}",
    "/api/v1/watch/{}",
    "/apis/apps/v1/namespaces/{}/deployments/{}",
    "/apis/apps/v1/namespaces/{}/{}/{}/{}",
    "/apis/apps/v1/{}",
    "/apis/{}/{}/{}",
    "/{}/{}/{}/{}",
    "/apis/authorization.k8s.io/v1/{}",
    "/{}",
)
_PARAMETERS = (
    "watch=true", "watch=", "watch=0", "watch=False", "watch=yes", "watch=1&watch=0", "watch=0&watch=1", "w;watch=1",
    "watch=%zz", "timeoutSeconds=1", "fieldSelector=metadata.name%3Dx", "fieldSelector=metadata.name=secrets",
    "fieldSelector=metadata.name!=x", "fieldSelector=metadata.name=x&fieldSelector=", "labelSelector=a", "limit=1",
    "fieldSelector=metadata.name%3Da%2Fb", "name=x", "namespace=x", "pretty=1",
)  # fmt: skip

_segments = st.one_of(st.sampled_from(_WORDS), st.sampled_from(_WORDS), st.sampled_from(_ODD))


@st.composite
def request_targets(draw: st.DrawFn) -> str:
    """Path and query, escaped."""
    template = draw(st.sampled_from(_TEMPLATES))
    path = template.format(*(draw(_segments) for _ in range(template.count("{}"))))
    if draw(st.integers(0, 4)) == 0:  # another slash somewhere
        places = [index for index, character in enumerate(path) if character == "/"]
        place = draw(st.sampled_from(places))
        path = path[:place] + "/" + path[place:]
    if draw(st.integers(0, 4)) == 0:
        path += "/"
    query = "&".join(draw(st.lists(st.sampled_from(_PARAMETERS), max_size=2)))
    return f"{path}?{query}" if query else path
