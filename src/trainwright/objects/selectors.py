"""Label and field selectors. The client sends them, the embedded API server evaluates them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class SelectorError(ValueError):
    """The selector cannot be parsed. The message names the term."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector. `values` is empty for exists and !exists."""

    key: str
    operator: str  # "in", "notin", "exists", "!exists"
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "exists":
                return self.key in labels
            case "!exists":
                return self.key not in labels
            case "in":
                return labels.get(self.key) in self.values
            case _:
                return labels.get(self.key) not in self.values


@dataclass(frozen=True, slots=True)
class LabelSelector:
    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


_KEY = r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
_PARTS = re.compile(r",|\([^)]*\)?|[^,(]+")
_SET_TERM = re.compile(rf"(?P<key>{_KEY})\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY_TERM = re.compile(rf"(?P<key>{_KEY})\s*(?P<operator>==|=|!=)\s*(?P<value>[-A-Za-z0-9_.]*)")
_EXISTS_TERM = re.compile(rf"(?P<not>!?)\s*(?P<key>{_KEY})")


def parse_label_selector(text: str) -> LabelSelector:
    """Parses kubectl's `-l` syntax: `a=b,c!=d,e in (f,g),h notin (i),j,!k`."""
    return LabelSelector(tuple(_requirement(term.strip()) for term in _split_terms(text)))


def read_label_selector(selector: Mapping[str, Any]) -> LabelSelector:
    """Converts a metav1.LabelSelector of an object: `{"matchLabels": …, "matchExpressions": …}`."""
    equal = (Requirement(key, "in", frozenset({value})) for key, value in (selector.get("matchLabels") or {}).items())
    terms = (
        # One without an operator matches nothing; admission refuses it, but not in every kind.
        Requirement(
            term.get("key", ""), _OPERATORS.get(term.get("operator", ""), "in"), frozenset(term.get("values") or ())
        )
        for term in selector.get("matchExpressions") or ()
    )
    return LabelSelector((*equal, *terms))


_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!exists"}


def format_labels(labels: Mapping[str, str]) -> str:
    """The selector for exactly these labels."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def format_label_selector(selector: Mapping[str, Any]) -> str:
    """A metav1.LabelSelector as text, with its keys in order."""
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for term in selector.get("matchExpressions") or ():
        key, values = term["key"], ",".join(sorted(term.get("values") or ()))
        match term["operator"]:
            case "In" | "NotIn" as operator:
                terms.append((key, f"{key} {operator.lower()} ({values})"))
            case "Exists":
                terms.append((key, key))
            case _:
                terms.append((key, f"!{key}"))
    return ",".join(text for _, text in sorted(terms))


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector: the field at `path` equals `value`, or does not."""

    path: str
    value: str
    equal: bool = True


def parse_field_selector(text: str) -> tuple[FieldTerm, ...]:
    """Parses `a.b=c,d!=e`. The API server decides which paths a resource supports."""
    terms = []
    for term in filter(None, (part.strip() for part in text.split(","))):
        path, operator, value = _partition(term)
        terms.append(FieldTerm(path, value, equal=operator != "!="))
    return tuple(terms)


def _partition(term: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        path, found, value = term.partition(operator)
        if found:
            return path.strip(), operator, value.strip()
    raise SelectorError(f"invalid field selector {term!r}: write PATH=VALUE or PATH!=VALUE")


def _split_terms(text: str) -> list[str]:
    """Splits at commas that are not inside parentheses."""
    terms = [""]
    for part in _PARTS.findall(text):
        if part == ",":
            terms.append("")
        else:
            terms[-1] += part
    return [term for term in terms if term.strip()]


def _requirement(term: str) -> Requirement:
    if match := _SET_TERM.fullmatch(term):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], match["operator"], values)
    if match := _EQUALITY_TERM.fullmatch(term):
        operator = "notin" if match["operator"] == "!=" else "in"
        return Requirement(match["key"], operator, frozenset({match["value"]}))
    if match := _EXISTS_TERM.fullmatch(term):
        return Requirement(match["key"], "!exists" if match["not"] else "exists")
    raise SelectorError(f"unable to parse requirement: {term!r}: write KEY=VALUE, KEY in (A,B), KEY or !KEY")
