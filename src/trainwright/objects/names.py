"""Kubernetes' rules for names. Each check returns Kubernetes' error text, or None."""

import re

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def dns_label_problem(name: str) -> str | None:
    """Namespaces, container names: RFC 1123 label."""
    if len(name) > 63:
        return "must be no more than 63 characters"
    if not _LABEL.fullmatch(name):
        return (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
            "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        )
    return None


def dns_1035_label_problem(name: str) -> str | None:
    """Services: RFC 1035 label."""
    return next(iter(dns_1035_label_problems(name)), None)


def dns_1035_label_problems(name: str) -> list[str]:
    """Jobs: all errors of the label."""
    problems = []
    if len(name.encode(errors="surrogatepass")) > 63:
        problems.append("must be no more than 63 characters")
    if not _LABEL_1035.fullmatch(name):
        problems.append(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
            "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
            "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
        )
    return problems


def dns_subdomain_problem(name: str) -> str | None:
    """Most objects: RFC 1123 subdomain."""
    if len(name) > 253:
        return "must be no more than 253 characters"
    if not _SUBDOMAIN.fullmatch(name):
        return (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        )
    return None


def path_segment_problem(name: str) -> str | None:
    """RBAC objects: any name that can be one segment of a URL's path, such as `system:node`."""
    if name in {".", ".."}:
        return f"may not be '{name}'"
    return next((f"may not contain '{character}'" for character in "/%" if character in name), None)
