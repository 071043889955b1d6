"""The range of addresses of a cluster, 127.NUMBER.0.0/16: which part is for Services and which for pods.

Only this module knows these numbers. `address_lock` chooses and locks the range of a cluster. Pure, and standard
library only: supervisors of pods can import it.
"""

from __future__ import annotations

import ipaddress

NUMBERS = range(1, 255)
"""127.0 is the machine's own."""


class AddressRange:
    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __str__(self) -> str:
        return f"127.{self.number}.0.0/16"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AddressRange) and self.number == other.number

    def __hash__(self) -> int:
        return self.number

    @property
    def services(self) -> ipaddress.IPv4Network:
        return ipaddress.IPv4Network(f"127.{self.number}.0.0/18")

    @property
    def pods(self) -> ipaddress.IPv4Network:
        """Their second addresses are in another quarter of the range."""
        return ipaddress.IPv4Network(f"127.{self.number}.64.0/18")


def parse_range(text: str) -> AddressRange | None:
    """The range that `str` shows as this text; None for any other text."""
    number = text.removeprefix("127.").removesuffix(".0.0/16")
    if not number.isdecimal() or len(number) > 3 or int(number) not in NUMBERS:
        return None
    found = AddressRange(int(number))
    return found if str(found) == text else None


def second_address(address: str) -> str:
    """The address of a pod for its sockets of IPv6 alone, so that they do not take the ports of the others."""
    first, second, third, fourth = address.split(".")
    return f"{first}.{second}.{int(third) | 128}.{fourth}"
