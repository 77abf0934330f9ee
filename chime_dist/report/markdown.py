"""A report as GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from chime_dist.report.document import Report
from chime_dist.report.layout import Table
from chime_dist.report.tables import footnotes, tables


def to_markdown(report: Report) -> str:
    """Tables, then what is incomplete and how to finish it, then how to read the numbers; ends with a newline."""
    blocks = ["# Report"]
    if report.problems:
        blocks += [
            f"## Incomplete: {len(report.problems)} open points",
            _bullets(f"{p.where}: {p.what}. {p.fix[0].upper()}{p.fix[1:]}." for p in report.problems),
        ]
    for table in tables(report):
        blocks += [f"## {table.title}", _table(table)]
    blocks += ["## Notes", _bullets((*footnotes(report), *report.notes))]
    return "\n\n".join(blocks) + "\n"


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_escaped(line)}" for line in lines)


def _table(table: Table) -> str:
    rule = ["---" if column < table.names else "---:" for column in range(len(table.header))]
    return "\n".join(f"| {' | '.join(map(_escaped, row))} |" for row in (table.header, rule, *table.rows))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
