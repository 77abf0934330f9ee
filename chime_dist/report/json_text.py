"""A report as JSON, for programs: the whole document, with the printed cells and verdicts spelled out."""

from __future__ import annotations

import json

from chime_dist.report.document import Report


def to_json(report: Report) -> str:
    """``Report`` field by field, plus ``complete`` (report and rows), ``cell`` (scores) and ``error_rate`` (gate).

    Fractions are text such as ``19/120``, cells text such as ``15.83``, so that no reader rounds them again.
    """
    document = report.model_dump(mode="json")
    document["complete"] = report.complete
    for row, dumped in zip(report.rows, document["rows"], strict=True):
        dumped["complete"] = row.complete
        rate = row.gate.error_rate
        dumped["gate"]["error_rate"] = None if rate is None else str(rate)
        for name, score in row.scores.items():
            cell = score.average.cell
            dumped[name]["cell"] = None if cell is None else str(cell)
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
