"""A report as JSON, for programs: the whole document, with the printed cells and verdicts spelled out."""

from __future__ import annotations

import json

from chime_dist.report.document import Report


def to_json(report: Report) -> str:
    """``Report`` field by field, plus ``complete`` (report and rows), ``currency``, ``cell`` (scores),
    ``error_rate`` (gate), ``cost_per_success``, and of comparisons the names, ``left_out``, ``difference`` and p
    values.

    Fractions are text such as ``19/120``, cells text such as ``15.83``, so that no reader rounds them again.
    """
    document = report.model_dump(mode="json")
    document["complete"] = report.complete
    document["currency"] = report.options.currency
    for row, dumped in zip(report.rows, document["rows"], strict=True):
        dumped["complete"] = row.complete
        for phase, cost in row.cost.items():
            dumped["cost"][phase]["cost_per_success"] = cost.cost_per_success
        if row.at_commits is not None:
            dumped["at_commits"]["cost_per_success"] = row.at_commits.cost_per_success
        rate = row.gate.error_rate
        dumped["gate"]["error_rate"] = None if rate is None else str(rate)
        for name, score in row.scores.items():
            cell = score.average.cell
            dumped[name]["cell"] = None if cell is None else str(cell)
    for pair, dumped in zip(report.comparisons, document["comparisons"], strict=True):
        first, second = report.rows[pair.first], report.rows[pair.second]
        dumped |= {"benchmark": first.benchmark, "backbone": first.backbone, "left_out": pair.left_out}
        dumped["methods"] = [first.method, second.method]
        if (found := pair.result) is not None:
            difference = found.difference
            dumped["result"] |= {
                "difference": None if difference is None else str(difference),
                "p_pairs": float(found.p_pairs),
                "p_tasks": float(found.p_tasks),
            }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
