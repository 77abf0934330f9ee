"""A report for a terminal, as something that rich can print."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from chime_dist.report.document import Report
from chime_dist.report.tables import Table, footnotes, tables


def to_terminal(report: Report) -> Group:
    """Tables with incomplete rows set off, then problems and notes. Names are never read as rich markup."""
    parts: list[RenderableType] = [_table(table) for table in tables(report)]
    parts += [Text(f"INCOMPLETE {p.where}: {p.what}; {p.fix}", style="bold yellow") for p in report.problems]
    parts += [Text(line, style="dim") for line in (*footnotes(report), *report.notes)]
    return Group(*parts)


def _table(table: Table) -> RichTable:
    laid_out = RichTable(title=Text(table.title), title_justify="left")
    for column, name in enumerate(table.header):
        laid_out.add_column(Text(name), justify="left" if column < table.names else "right", overflow="fold")
    for index, row in enumerate(table.rows):
        laid_out.add_row(*map(Text, row), style="yellow" if index in table.flagged else None)
    return laid_out
