"""A report as CSV, for spreadsheets and scripts: one line per row of the report, or one per comparison."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from chime_dist.core.aggregate import percent
from chime_dist.core.canonical import canonical_json
from chime_dist.core.checkpoint import QUARTERS
from chime_dist.report.document import Paired, Report, Row, Score


def to_csv(report: Report) -> str:
    """A header and one line per row, in the report's order.

    An empty field is a number that was left out, or a cost that is not known. Percentages are the printed cells,
    ``*_exact`` the fraction behind them; deviations, who answered which role, and costs by role are JSON objects.
    """
    lines = [_fields(row, report) for row in report.rows]
    return _text(list(lines[0]), lines)


def spent_to_csv(report: Report) -> str:
    """A header, a line for each endpoint that was asked, and one for ``all``: everything that the launch spent."""
    charges = {**report.spent, "all": report.total}
    lines: list[dict[str, object]] = [
        {
            "endpoint": name,
            **{count: getattr(charge.usage, count) for count in _COUNTS},
            "cost": charge.cost,
            "currency": report.options.currency,
        }
        for name, charge in charges.items()
    ]
    return _text(("endpoint", *_COUNTS, "cost", "currency"), lines)


_COUNTS = ("calls", "requests", "prompt_tokens", "cached_tokens", "completion_tokens")


def comparisons_to_csv(report: Report) -> str:
    """A header and one line per comparison; differences and bounds are in percentage points.

    An empty field is a number that was left out, because an ordering is incomplete or there is no pair.
    """
    return _text(list(_COMPARISON), [_comparison(pair, report) for pair in report.comparisons])


def _text(header: Sequence[str], lines: Sequence[dict[str, object]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


_COMPARISON = (
    *("benchmark", "backbone", "split", "first", "first_deviations", "second", "second_deviations", "complete"),
    *("planned", "pairs", "left_out", "wins", "losses", "ties", "tasks", "tasks_won", "tasks_lost"),
    *("difference_points", "difference_exact", "low_points", "high_points", "p_pairs", "p_tasks"),
)


def _comparison(pair: Paired, report: Report) -> dict[str, object]:
    first, second, found = report.rows[pair.first], report.rows[pair.second], pair.result
    fields: dict[str, object] = {
        "benchmark": first.benchmark,
        "backbone": first.backbone,
        "split": pair.split,
        "first": first.method,
        "first_deviations": canonical_json(first.deviations),
        "second": second.method,
        "second_deviations": canonical_json(second.deviations),
        "complete": "yes" if pair.complete else "no",
        "planned": pair.planned,
    }
    if found is None:
        return fields
    difference, bounds = found.difference, found.interval
    return fields | {
        "pairs": found.pairs,
        "left_out": pair.left_out,
        "wins": found.wins,
        "losses": found.losses,
        "ties": found.ties,
        "tasks": found.tasks,
        "tasks_won": found.task_wins,
        "tasks_lost": found.task_losses,
        "difference_points": None if difference is None else percent(difference),
        "difference_exact": difference,
        "low_points": bounds and bounds.low,
        "high_points": bounds and bounds.high,
        "p_pairs": float(found.p_pairs),
        "p_tasks": float(found.p_tasks),
    }


def _fields(row: Row, report: Report) -> dict[str, object]:
    fields: dict[str, object] = {
        "benchmark": row.benchmark,
        "backbone": row.backbone,
        "method": row.method,
        "deviations": canonical_json(row.deviations),
        "answered_by": canonical_json(row.endpoints),
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
            f"{phase}_left_out": sum(spent.left_out for spent in usage),
            f"{phase}_cost": cost and cost.cost,
            f"{phase}_cost_per_success": cost and cost.cost_per_success,
            f"{phase}_cost_by_role": canonical_json(cost.costs) if cost else None,
        }
    commits = row.at_commits
    asked = commits.usage.values() if commits else ()
    fields |= {
        "commit_calls": sum(spent.calls for spent in asked),
        "commit_prompt_tokens": sum(spent.prompt_tokens for spent in asked),
        "commit_completion_tokens": sum(spent.completion_tokens for spent in asked),
        "commit_cost": commits and commits.cost,
    }
    fields["currency"] = report.options.currency
    for quarter in QUARTERS:
        sizes = [grown.sizes[f"{quarter}%"] for grown in row.growth]
        known = [float(size) for size in sizes if size is not None]
        fields[f"bank_{quarter}"] = sum(known) if known and len(known) == len(sizes) else None
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
