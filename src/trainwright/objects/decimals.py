"""Numbers in texts of users, such as annotations. Python refuses to convert texts of more than some thousand digits."""

_MAX_DIGITS = 18


def parse_decimal(text: str) -> int | None:
    """The number of a text of ASCII digits; None for any other text, and for more digits than any number here has."""
    return int(text) if len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit() else None
