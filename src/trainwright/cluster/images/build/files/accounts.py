"""Users and groups of an image, by its own /etc/passwd and /etc/group. Called inside its root directory."""

from dataclasses import dataclass

from trainwright.cluster.images.build.messages import BuildError
from trainwright.objects.decimals import parse_decimal


@dataclass(frozen=True, slots=True)
class Account:
    user: int
    group: int
    groups: tuple[int, ...] = ()
    home: str = "/"


def find_account(spec: str, *, root: str = "") -> Account:
    """`USER` and `--chown`: USER[:GROUP], each a name or a number. A user without a group has that of /etc/passwd."""
    user, _, group = spec.partition(":")
    passwd = _read(f"{root}/etc/passwd")
    by_name = next((row for row in passwd if len(row) > 5 and user in {row[0], row[2]}), None)
    number = parse_decimal(by_name[2] if by_name else user)
    if number is None:
        raise BuildError(f"unable to find user {user[:100]}: no matching entries in the image's /etc/passwd")
    home = by_name[5] if by_name else "/"
    if group:
        return Account(number, _find_group(group, root), home=home)
    name = by_name[0] if by_name else ""
    others = tuple(
        int(row[2]) for row in _read(f"{root}/etc/group") if len(row) > 3 and name and name in row[3].split(",")
    )
    return Account(number, (parse_decimal(by_name[3]) or 0) if by_name else 0, others, home)


def _find_group(group: str, root: str) -> int:
    for row in _read(f"{root}/etc/group"):
        if len(row) > 2 and group in {row[0], row[2]}:
            return int(row[2])
    if (number := parse_decimal(group)) is not None:
        return number
    raise BuildError(f"unable to find group {group[:100]}: no matching entries in the image's /etc/group")


def _read(path: str) -> list[list[str]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            rows = [line.rstrip("\n").split(":") for line in file]
    except OSError:
        return []
    return [row for row in rows if len(row) > 2 and parse_decimal(row[2]) is not None]
