"""The parts of a range of addresses."""

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.address_range import NUMBERS, AddressRange, parse_range, second_address

RANGES = st.builds(AddressRange, st.sampled_from(NUMBERS))


@given(RANGES, st.integers(0, 2**14 - 1), st.integers(0, 2**14 - 1))
def test_no_two_uses_share_an_address(addresses: AddressRange, one: int, other: int) -> None:
    pod, service = addresses.pods[one], addresses.services[other]
    second = ipaddress.ip_address(second_address(str(pod)))

    assert len({pod, service, second}) == 3
    assert all(address in ipaddress.ip_network(str(addresses)) for address in (pod, service, second))
    assert second not in addresses.pods
    assert second not in addresses.services
    if one != other:
        assert second != ipaddress.ip_address(second_address(str(addresses.pods[other])))


@given(RANGES)
def test_text_of_a_range_can_be_parsed(addresses: AddressRange) -> None:
    assert parse_range(str(addresses)) == addresses


@given(st.text() | st.builds("127.{}.0.0/16".format, st.text("0123456789٣ -+.", max_size=5)))
def test_other_text_is_no_range(text: str) -> None:
    found = parse_range(text)
    assert found is None or str(found) == text
