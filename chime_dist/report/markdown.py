"""A report as GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from chime_dist.report.document import Report
from chime_dist.report.layout import Table
from chime_dist.report.tables import notes, tables


def to_markdown(report: Report, *, compared: bool = False) -> str:
    """What is incomplete and how to finish it, then tables, then how to read the numbers; ends with a newline.

    With ``compared`` the tables are the comparisons alone.
    """
    blocks = ["# Comparison" if compared else "# Report"]
    if report.problems:
        blocks += [
            f"## Incomplete: {len(report.problems)} open points",
            _bullets(f"{p.where}: {p.what}. {p.fix[0].upper()}{p.fix[1:]}." for p in report.problems),
        ]
    for table in tables(report, compared=compared):
        blocks += [f"## {table.title}", _table(table)]
    blocks += ["## Notes", _bullets(notes(report, compared=compared))]
    return "\n\n".join(blocks) + "\n"


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_escaped(line)}" for line in lines)


def _table(table: Table) -> str:
    rule = ["---" if column < table.names else "---:" for column in range(len(table.header))]
    return "\n".join(f"| {' | '.join(map(_escaped, row))} |" for row in (table.header, rule, *table.rows))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
