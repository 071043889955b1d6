"""Strategies of the kinds that register admission webhooks."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from trainwright.cluster.apiserver.resources.resource_type import Strategy
from trainwright.cluster.apiserver.resources.strategies.labels import label_selector_errors
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, duplicate, invalid, not_supported, required
from trainwright.objects.names import dns_subdomain_problem

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_SCOPES = ("*", "Cluster", "Namespaced")
_VERSIONS = ("v1", "v1beta1")
_URL_FORM = "; desired format: https://host[/path]"


def _default_webhooks(configuration: Object) -> None:
    for webhook in configuration.get("webhooks") or ():
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        if configuration["kind"] == "MutatingWebhookConfiguration":
            webhook.setdefault("reinvocationPolicy", "Never")
        for rule in webhook.get("rules") or ():
            rule.setdefault("scope", "*")
        if service := (webhook.get("clientConfig") or {}).get("service"):
            service.setdefault("port", 443)


def _validate(configuration: Object) -> list[FieldError]:
    found: list[FieldError] = []
    names: set[str] = set()
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        found += _webhook_errors(webhook, path)
        name = webhook.get("name", "")
        if name in names:
            found.append(duplicate(f"{path}.name", name))
        names |= {name} if name else set()
    return found


def _webhook_errors(webhook: Object, path: str) -> Iterator[FieldError]:
    name = webhook.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif problem := dns_subdomain_problem(name):
        yield invalid(f"{path}.name", name, problem)
    elif name.count(".") < 2:
        yield invalid(f"{path}.name", name, "should be a domain with at least three segments separated by dots")
    for index, rule in enumerate(webhook.get("rules") or ()):
        yield from _rule_errors(rule, f"{path}.rules[{index}]")
    for field, supported in (
        ("failurePolicy", ("Fail", "Ignore")),
        ("matchPolicy", ("Equivalent", "Exact")),
        ("reinvocationPolicy", ("IfNeeded", "Never")),
    ):
        if field in webhook and webhook[field] not in supported:
            yield not_supported(f"{path}.{field}", webhook[field], supported)
    if not webhook.get("sideEffects"):
        yield required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
    elif webhook["sideEffects"] not in _NO_SIDE_EFFECTS:
        yield not_supported(f"{path}.sideEffects", webhook["sideEffects"], _NO_SIDE_EFFECTS)
    if not 1 <= webhook.get("timeoutSeconds", 10) <= 30:
        problem = "the timeout value must be between 1 and 30 seconds"
        yield invalid(f"{path}.timeoutSeconds", webhook["timeoutSeconds"], problem)
    for field in ("namespaceSelector", "objectSelector"):
        yield from label_selector_errors(webhook.get(field) or {}, f"{path}.{field}")
    yield from _client_errors(webhook.get("clientConfig") or {}, f"{path}.clientConfig")
    yield from _version_errors(webhook.get("admissionReviewVersions") or [], f"{path}.admissionReviewVersions")


def _rule_errors(rule: Object, path: str) -> Iterator[FieldError]:
    operations = rule.get("operations") or []
    if not operations:
        yield required(f"{path}.operations")
    if len(operations) > 1 and "*" in operations:
        yield invalid(f"{path}.operations", operations, "if '*' is present, must not specify other operations")
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS)
    for field, what in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(field) or []
        if not values:
            yield required(f"{path}.{field}")
        if len(values) > 1 and "*" in values:
            yield invalid(f"{path}.{field}", values, f"if '*' is present, must not specify other {what}")
    resources = rule.get("resources") or []
    if not resources:
        yield required(f"{path}.resources")
    if len(resources) > 1 and "*/*" in resources:
        problem = "if '*/*' is present, must not specify other resources"
        yield invalid(f"{path}.resources", resources, problem)
    if "*" in resources and any("/" not in resource and resource != "*" for resource in resources):
        problem = "if '*' is present, must not specify other resources without subresources"
        yield invalid(f"{path}.resources", resources, problem)
    if rule.get("scope", "*") not in _SCOPES:
        yield not_supported(f"{path}.scope", rule["scope"], _SCOPES)


def _client_errors(client: Object, path: str) -> Iterator[FieldError]:
    url, service = client.get("url"), client.get("service")
    if (url is None) is (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url_errors(url, f"{path}.url")
    elif service is not None:
        for field in ("name", "namespace"):
            if not service.get(field):
                yield required(f"{path}.service.{field}")
        if not 1 <= service.get("port", 443) <= 65535:
            problem = "port is not valid: must be between 1 and 65535, inclusive"
            yield invalid(f"{path}.service.port", service["port"], problem)
        if (below := service.get("path") or "/") and not below.startswith("/"):
            yield invalid(f"{path}.service.path", below, "must start with a '/'")


def _url_errors(url: str, path: str) -> Iterator[FieldError]:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        yield required(path, f"url must be a valid URL: {error}{_URL_FORM}")
        return
    if parts.scheme != "https":
        yield invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")
    if not parts.netloc:
        yield invalid(path, "", f"host must be specified{_URL_FORM}")
    if parts.username is not None:
        user = parts.netloc.rpartition("@")[0]
        yield invalid(path, user, "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(path, parts.query, "query parameters are not permitted in the URL")


def _version_errors(versions: list[str], path: str) -> Iterator[FieldError]:
    if not versions:
        yield required(path, "must specify one of v1, v1beta1")
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield invalid(f"{path}[{index}]", version, "duplicate version")
    if not set(versions) & set(_VERSIONS):
        yield invalid(path, versions, "must include at least one of v1, v1beta1")


def _match_condition_warnings(configuration: Object) -> list[str]:
    """The embedded server has no CEL."""
    return [
        f"webhooks[{index}].matchConditions: not evaluated by the embedded cluster: the webhook is called for every "
        "request that its rules and selectors match"
        for index, webhook in enumerate(configuration.get("webhooks") or ())
        if webhook.get("matchConditions")
    ]


WEBHOOK_CONFIGURATION = Strategy(set_defaults=_default_webhooks, validate=_validate, warnings=_match_condition_warnings)
