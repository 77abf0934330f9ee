"""A report for a terminal, as something that rich can print."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from chime_dist.report.document import Report
from chime_dist.report.layout import PLACES, Table
from chime_dist.report.tables import notes, tables


def to_terminal(report: Report, *, compared: bool = False) -> Group:
    """Tables with incomplete rows set off, then problems and notes; with ``compared`` the comparisons alone.

    Names are never read as rich markup.
    """
    parts: list[RenderableType] = [Fitted(table) for table in tables(report, compared=compared)]
    parts += [Text(f"INCOMPLETE {p.where}: {p.what}; {p.fix}", style="bold yellow") for p in report.problems]
    parts += [Text(line, style="dim") for line in notes(report, compared=compared)]
    return Group(*parts)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table with each of its rows on one line where the terminal is wide enough for that.

    Where it is not, benchmark and backbone give up their columns and stand above their rows; if that is not
    enough, columns move together, then cells are wrapped between words, and only then inside them.
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width
        if (widths := _widths(self.table, room, 1, str.splitlines)) is not None:
            yield _laid_out(self.table, widths)
            return
        for part in _by_place(self.table):
            for padding, pieces in ((1, str.splitlines), (0, str.splitlines), (0, str.split)):
                if (widths := _widths(part, room, padding, pieces)) is not None:
                    yield _laid_out(part, widths, padding)
                    break
            else:
                yield _laid_out(part)


def _widths(table: Table, room: int, padding: int, pieces: Callable[[str], Sequence[str]]) -> list[int] | None:
    """Terminal cells per column, none narrower than a piece of its texts or a word of its header; None where
    ``room`` is too small for that."""
    columns = list(zip(*table.rows, strict=True))
    widths = [
        max(cell_len(piece) for piece in (*name.split(), *(part for text in column for part in pieces(text))))
        for name, column in zip(table.header, columns, strict=True)
    ]
    # An edge of one cell on either side, and between two columns a divider and the padding.
    spare = room - sum(widths) - 2 - (len(widths) - 1) * (1 + padding)
    if spare < 0:
        return None
    # What is left goes to texts before headers, and first where little is missing to have them on one line.
    for texts in (columns, [(name,) for name in table.header]):
        lacking = [max(map(cell_len, column)) - width for column, width in zip(texts, widths, strict=True)]
        for index in sorted(range(len(widths)), key=lacking.__getitem__):
            more = max(0, min(spare, lacking[index]))
            widths[index] += more
            spare -= more
    return widths


def _by_place(table: Table) -> Iterator[Table]:
    """One table for each benchmark and backbone, named in its title."""
    depth = len(list(takewhile(lambda name: name in PLACES, table.header)))
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, row in enumerate(table.rows):
        groups.setdefault(row[:depth], []).append(index)
    for place, members in groups.items():
        yield replace(
            table,
            title=f"{table.title}: {', '.join(place)}",
            header=table.header[depth:],
            rows=tuple(table.rows[index][depth:] for index in members),
            names=table.names - depth,
            flagged=frozenset(k for k, index in enumerate(members) if index in table.flagged),
        )


def _laid_out(table: Table, widths: Sequence[int] | None = None, padding: int = 1) -> RichTable:
    laid_out = RichTable(
        title=Text(table.title),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, padding),
        pad_edge=False,
        collapse_padding=True,
    )
    for column, name in enumerate(table.header):
        laid_out.add_column(
            Text(name),
            justify="left" if column < table.names else "right",
            overflow="fold",
            width=widths[column] if widths is not None else None,
        )
    for index, row in enumerate(table.rows):
        laid_out.add_row(*map(Text, row), style="yellow" if index in table.flagged else None)
    return laid_out
