"""Names that Kubernetes accepts, and its messages about others."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.objects.names import dns_1035_label_problem, dns_label_problem, dns_subdomain_problem

labels = st.from_regex(re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"), fullmatch=True)


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a_b", "ä", "a\n"])
def test_invalid_label_is_reported_with_the_rule(name: str) -> None:
    assert "a lowercase RFC 1123 label must consist of" in (dns_label_problem(name) or "")
    assert "a DNS-1035 label must consist of" in (dns_1035_label_problem(name) or "")


def test_labels_of_services_start_with_a_letter() -> None:
    assert dns_label_problem("1a") is None
    assert "start with an alphabetic character" in (dns_1035_label_problem("1a") or "")
    assert dns_1035_label_problem("a1") is None


def test_a_label_has_at_most_63_characters() -> None:
    for check in (dns_label_problem, dns_1035_label_problem):
        assert check("a" * 63) is None
        assert check("a" * 64) == "must be no more than 63 characters"


@pytest.mark.parametrize("name", ["", ".a", "a.", "a..b", "a.-b", "a-.b", "A.b", "a/b"])
def test_invalid_subdomain_is_reported_with_the_rule(name: str) -> None:
    assert "a lowercase RFC 1123 subdomain must consist of" in (dns_subdomain_problem(name) or "")


def test_a_subdomain_has_at_most_253_characters() -> None:
    assert dns_subdomain_problem("a" * 253) is None
    assert dns_subdomain_problem("a" * 254) == "must be no more than 253 characters"


@given(st.lists(labels, min_size=1, max_size=4))
def test_labels_joined_by_dots_are_a_subdomain(parts: list[str]) -> None:
    name = ".".join(parts)
    assert all(dns_label_problem(part) is None for part in parts)
    assert dns_subdomain_problem(name) is None or len(name) > 253


@given(st.text(max_size=20))
def test_label_is_a_subdomain_and_rfc_1035_label_is_a_label(name: str) -> None:
    if dns_label_problem(name) is None:
        assert dns_subdomain_problem(name) is None
    if dns_1035_label_problem(name) is None:
        assert dns_label_problem(name) is None
