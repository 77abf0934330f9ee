"""A report as CSV: one line per row of the report, for spreadsheets and scripts."""

from __future__ import annotations

import csv
import io

from chime_dist.core.canonical import canonical_json
from chime_dist.report.document import Report, Row, Score


def to_csv(report: Report) -> str:
    """A header and one line per row, in the report's order; an empty field is a number that was left out.

    Percentages are the printed cells, ``*_exact`` the fraction behind them; deviations are one JSON object.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(_fields(report.rows[0])), lineterminator="\n")
    writer.writeheader()
    writer.writerows(_fields(row) for row in report.rows)
    return out.getvalue()


def _fields(row: Row) -> dict[str, object]:
    fields: dict[str, object] = {
        "benchmark": row.benchmark,
        "backbone": row.backbone,
        "method": row.method,
        "deviations": canonical_json(row.deviations),
        "complete": "yes" if row.complete else "no",
        "epochs": row.epochs,
    }
    for name, score in row.scores.items():
        fields |= _score(name, score)
    fields |= {"gate_decided": row.gate.decided, "gate_errors": row.gate.errors}
    for phase in ("train", "eval"):
        cost = row.cost.get(phase)
        usage = cost.usage.values() if cost else ()
        fields |= {
            f"{phase}_mean_seconds": cost and cost.mean_duration_s,
            f"{phase}_calls": sum(spent.calls for spent in usage),
            f"{phase}_prompt_tokens": sum(spent.prompt_tokens for spent in usage),
            f"{phase}_completion_tokens": sum(spent.completion_tokens for spent in usage),
        }
    return fields


def _score(name: str, score: Score) -> dict[str, object]:
    average, total = score.average, score.total
    return {
        f"{name}_percent": average.cell,
        f"{name}_exact": average.mean,
        f"{name}_sd": average.sd,
        f"{name}_orderings": f"{len(average.used)}/{len(average.orderings)}",
        f"{name}_planned": total.planned,
        f"{name}_scored": total.scored,
        f"{name}_success": total.success,
        f"{name}_infra": total.infra,
        f"{name}_missing": total.missing,
    }
