"""A report for a terminal, as something that rich can print."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from chime_dist.report.document import Report
from chime_dist.report.tables import Table, footnotes, tables


def to_terminal(report: Report) -> Group:
    """Tables with incomplete rows set off, then problems and notes. Names are never read as rich markup."""
    parts: list[RenderableType] = [_Fitted(table) for table in tables(report)]
    parts += [Text(f"INCOMPLETE {p.where}: {p.what}; {p.fix}", style="bold yellow") for p in report.problems]
    parts += [Text(line, style="dim") for line in (*footnotes(report), *report.notes)]
    return Group(*parts)


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A table that keeps words whole where the terminal is wide enough for that."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = self._laid_out(unbroken=True)
        fits = Measurement.get(console, options.update_width(10_000), whole).minimum < options.max_width - 1
        yield whole if fits else self._laid_out(unbroken=False)

    def _laid_out(self, *, unbroken: bool) -> RichTable:
        table = self.table
        laid_out = RichTable(
            title=Text(table.title),
            title_justify="left",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            collapse_padding=True,
        )
        for column, name in enumerate(table.header):
            words = [word for text in (name, *(row[column] for row in table.rows)) for word in text.split()]
            laid_out.add_column(
                Text(name),
                justify="left" if column < table.names else "right",
                overflow="fold",
                min_width=max(map(len, words), default=0) if unbroken else None,
            )
        for index, row in enumerate(table.rows):
            laid_out.add_row(*map(Text, row), style="yellow" if index in table.flagged else None)
        return laid_out
