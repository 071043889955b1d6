"""Tables as kubectl prints them, fitted to the width of a terminal: without some columns, the last cut or wrapped."""

import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from trainwright.cli.output.console import Console, cells, cut, plain_text

_GAP = "   "
_LEAST_LAST = 20
"""Columns that the last column should have before others are dropped for it."""
_WRAPPED = 30
"""Columns in which a text can be read; with less room it follows on lines of its own."""
_INDENT = "    "


def terminal_width() -> int | None:
    """The columns of the terminal; None if the output goes elsewhere, where nothing is left out."""
    console = Console.of()
    return console.width if console.tty else None


def table_lines(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    drop: Sequence[str] = (),
    wrap: bool = False,
) -> list[str]:
    """Aligned columns of at most `width`, without blanks at the ends of lines. Cells may have texts of other programs.

    If they do not fit, the columns of `drop` are left out, in this order, and then the last one is cut. With `wrap` its
    texts are wrapped instead, so that nothing of them is lost.
    """
    plain = [[plain_text(cell) for cell in row] for row in rows]
    table = Table.fitted(head, plain, width=None if wrap else width, drop=drop)
    if not wrap or width is None or table.total <= width:
        return [table.line(row) for row in (head, *plain)]
    return [line for row in (head, *plain) for line in _wrapped(row, table.widths[:-1], width)]


@dataclass(frozen=True, slots=True)
class Table:
    """The layout of a table, for rows that are printed later too."""

    columns: tuple[int, ...]
    """The columns that are shown."""
    widths: tuple[int, ...]
    """Their widths. The last column may be longer than its cells."""

    @classmethod
    def fitted(
        cls,
        head: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        width: int | None = None,
        drop: Sequence[str] = (),
        least: Mapping[str, int] | None = None,
    ) -> "Table":
        """`least` are widths by the name of the column, for cells that become longer."""
        wanted = [
            max((least or {}).get(name, 0), *map(cells, column))
            for name, column in zip(head, zip(head, *rows, strict=True), strict=True)
        ]
        columns = list(range(len(head)))
        for name in drop:
            last = columns[-1]
            needed = [wanted[index] if index != last else min(wanted[last], _LEAST_LAST) for index in columns]
            if width is None or _total(needed) <= width:
                break
            if name in head:
                columns.remove(head.index(name))
        widths = [wanted[index] for index in columns]
        if width is not None and _total(widths) > width:
            widths[-1] = max(width - _total([*widths[:-1], 0]), cells(head[columns[-1]]))
        return cls(tuple(columns), tuple(widths))

    @property
    def total(self) -> int:
        return _total(self.widths)

    def line(self, row: Sequence[str]) -> str:
        shown = [row[index] for index in self.columns]
        shown[-1] = _shortened(shown[-1], self.widths[-1])
        return _padded(shown, self.widths)


def hanging(text: str, *, indent: int, width: int | None) -> str:
    """A text that begins behind `indent` columns, with its further lines below its beginning."""
    if width is None or width - indent < _WRAPPED:
        return text
    return f"\n{' ' * indent}".join(_wrap(text, width - indent))


def _wrapped(row: Sequence[str], widths: Collection[int], width: int) -> list[str]:
    """A row whose last cell is wrapped: in its column, or below the others if there is no room beside them."""
    *first, text = row
    before = _padded(first, widths)
    start = _total(widths) + len(_GAP)
    if width - start < _WRAPPED:
        return [before, *(f"{_INDENT}{line}" for line in _wrap(text, max(width - len(_INDENT), _WRAPPED)))]
    lines = _wrap(text, width - start)
    return [f"{before:<{start}}{lines[0]}".rstrip(), *(f"{'':<{start}}{line}" for line in lines[1:])]


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _shortened(text: str, width: int) -> str:
    return text if cells(text) <= width else f"{cut(text, max(width - 1, 0))}…"


def _padded(row: Sequence[str], widths: Collection[int]) -> str:
    padded = (cell + " " * max(width - cells(cell), 0) for cell, width in zip(row, widths, strict=True))
    return _GAP.join(padded).rstrip()


def _total(widths: Collection[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)
