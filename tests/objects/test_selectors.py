"""Label and field selectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.objects.selectors import (
    FieldTerm,
    LabelSelector,
    Requirement,
    SelectorError,
    format_labels,
    parse_field_selector,
    parse_label_selector,
)

keys = st.from_regex(r"[a-z]([-a-z0-9_.]{0,8}[a-z0-9])?", fullmatch=True).map(lambda key: f"example.com/{key}") | (
    st.sampled_from(["a", "b", "app", "in", "notin"])
)
values = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?)?", fullmatch=True)
label_sets = st.dictionaries(keys, values, max_size=4)

requirements = st.one_of(
    st.builds(Requirement, keys, st.sampled_from(["in", "notin"]), st.frozensets(values, min_size=1, max_size=3)),
    st.builds(Requirement, keys, st.sampled_from(["exists", "!exists"])),
)


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("a=b", {"a": "b", "x": "y"}, {"a": "c"}),
        ("a==b", {"a": "b"}, {}),
        ("a = b", {"a": "b"}, {"a": "c"}),
        ("a!=b", {"a": "c"}, {"a": "b"}),
        ("a!=b", {}, {"a": "b"}),
        ("a in (b, c)", {"a": "c"}, {"a": "d"}),
        ("a in (b,c),d", {"a": "b", "d": ""}, {"a": "b"}),
        ("a notin (b,c)", {}, {"a": "b"}),
        ("a", {"a": ""}, {"b": ""}),
        ("!a", {"b": ""}, {"a": ""}),
        ("training.kubeflow.org/job-name=mnist", {"training.kubeflow.org/job-name": "mnist"}, {"job-name": "mnist"}),
        ("a=,b", {"a": "", "b": "1"}, {"b": "1"}),
    ],
)
def test_label_selector_matches_labels(text: str, matching: dict[str, str], other: dict[str, str]) -> None:
    selector = parse_label_selector(text)
    assert selector.matches(matching)
    assert not selector.matches(other)


def test_empty_selector_matches_everything() -> None:
    assert parse_label_selector("").matches({"a": "b"})
    assert parse_label_selector(" , ").matches({})


@pytest.mark.parametrize("text", ["a=b=c", "a in b", "a in (b", "=b", "a b", "a~b", "a=(b)", "!!a", "a in (b(c))"])
def test_invalid_term_is_named(text: str) -> None:
    with pytest.raises(SelectorError, match="unable to parse requirement"):
        parse_label_selector(text)


@given(label_sets, label_sets)
def test_formatted_labels_select_exactly_these(labels: dict[str, str], others: dict[str, str]) -> None:
    selector = parse_label_selector(format_labels(labels))
    assert selector.matches(others | labels)
    assert selector.matches(others) == (labels.items() <= others.items())


@given(st.lists(requirements, max_size=3), label_sets)
def test_parsed_selector_matches_like_the_formatted_one(terms: list[Requirement], labels: dict[str, str]) -> None:
    selector = LabelSelector(tuple(terms))
    assert parse_label_selector(",".join(map(_written, terms))).matches(labels) == selector.matches(labels)


@given(requirements, label_sets)
def test_the_opposite_operator_matches_the_opposite(term: Requirement, labels: dict[str, str]) -> None:
    opposite = {"in": "notin", "notin": "in", "exists": "!exists", "!exists": "exists"}[term.operator]
    assert Requirement(term.key, opposite, term.values).matches(labels) != term.matches(labels)


def test_a_field_selector_is_split_into_its_terms() -> None:
    assert parse_field_selector("spec.nodeName=local, status.phase!=Failed,metadata.name==x") == (
        FieldTerm("spec.nodeName", "local"),
        FieldTerm("status.phase", "Failed", equal=False),
        FieldTerm("metadata.name", "x"),
    )
    assert parse_field_selector("") == ()


def test_field_selector_without_value_is_rejected() -> None:
    with pytest.raises(SelectorError, match=r"invalid field selector 'spec\.nodeName': write PATH=VALUE"):
        parse_field_selector("spec.nodeName")


def _written(term: Requirement) -> str:
    match term.operator:
        case "exists":
            return term.key
        case "!exists":
            return f"!{term.key}"
        case operator:
            return f"{term.key} {operator} ({','.join(sorted(term.values))})"
