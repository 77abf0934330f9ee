"""Tables about the bank and about what was written into it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from chime_dist.core.aggregate import rounded
from chime_dist.core.checkpoint import EPOCH, QUARTERS
from chime_dist.report.document import Growth, Report
from chime_dist.report.layout import NOTHING, Label, Table, rate


def growth(report: Report, labels: Sequence[Label]) -> Table:
    """How large the bank was along the train stream (R47)."""
    rows = [
        (
            *label,
            found.collection,
            *(_size(found, f"{quarter}%", report) for quarter in QUARTERS),
            _epochs(found, report),
        )
        for label, row in zip(labels, report.rows, strict=True)
        for found in row.growth
    ]
    return Table(
        title="Growth of the bank",
        header=(
            *("Benchmark", "Backbone", "Method", "Collection"),
            *(f"at {quarter}%" for quarter in QUARTERS),
            "Ends of epochs",
        ),
        rows=tuple(rows),
        names=4,
    )


def _size(found: Growth, point: str, report: Report) -> str:
    size = found.sizes[point]
    return NOTHING if size is None else str(rounded(size, 0 if report.options.k == 1 else 1))


def _epochs(found: Growth, report: Report) -> str:
    return ", ".join(_size(found, point, report) for point in found.sizes if point.startswith(EPOCH))


def gate(report: Report, labels: Sequence[Label]) -> Table:
    """How often the gate decided, and how often it could not (R21)."""
    rows = [
        (*label, str(row.gate.decided), str(row.gate.errors), rate(row.gate.error_rate))
        for label, row in zip(labels, report.rows, strict=True)
        if row.gate.error_rate is not None
    ]
    return Table(
        title="Credit gate, all train episodes",
        header=("Benchmark", "Backbone", "Method", "Decided", "Gate errors", "Gate error %"),
        rows=tuple(rows),
        names=3,
    )


def attribution(report: Report, labels: Sequence[Label]) -> Table:
    """What the gate blamed or credited (R19, R20)."""
    rows = [
        (*label, outcome.value, name, str(count), rate(Fraction(count, sum(mix.values()))))
        for label, row in zip(labels, report.rows, strict=True)
        for outcome, mix in row.gate.labels.items()
        for name, count in mix.items()
    ]
    return Table(
        title="Attribution mix, all train episodes",
        header=("Benchmark", "Backbone", "Method", "Outcome", "Label", "Episodes", "% of outcome"),
        rows=tuple(rows),
        names=5,
    )
