"""Validation of labels, of the qualified names that are their keys, and of label selectors."""

import re
from collections.abc import Iterator, Mapping

from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, forbidden, invalid, required
from trainwright.objects.names import dns_subdomain_problem

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_INVALID_NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_INVALID_LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def label_map_errors(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    for key, value in labels.items():
        if problem := qualified_name_problem(key):
            yield invalid(path, key, problem)
        if len(value) > 63:
            yield invalid(path, value, "must be no more than 63 bytes")
        if value and not _NAME_PART.fullmatch(value):
            yield invalid(path, value, _INVALID_LABEL_VALUE)


def qualified_name_problem(key: str) -> str | None:
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        return "prefix part must be non-empty"
    if prefix and (problem := dns_subdomain_problem(prefix)):
        return f"prefix part {problem}"
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    return None if _NAME_PART.fullmatch(name) else _INVALID_NAME_PART


def label_selector_errors(selector: Object, path: str) -> Iterator[FieldError]:
    yield from label_map_errors(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, term in enumerate(selector.get("matchExpressions") or ()):
        yield from _expression_errors(term, f"{path}.matchExpressions[{index}]")


def _expression_errors(term: Object, path: str) -> Iterator[FieldError]:
    operator, values = term.get("operator", ""), term.get("values") or []
    if operator in {"In", "NotIn"} and not values:
        yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    if operator in {"Exists", "DoesNotExist"} and values:
        yield forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    if operator not in _OPERATORS:
        yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    if problem := qualified_name_problem(term.get("key", "")):
        yield invalid(f"{path}.key", term.get("key", ""), problem)
