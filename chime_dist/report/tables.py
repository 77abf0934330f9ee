"""A report laid out as tables of text, once for every form that people read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from chime_dist.core.aggregate import Tally, percent
from chime_dist.report.document import Report, Score

NOTHING = "-"
"""Stands where there is no number; the problems say why."""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text, one tuple per row and as long as ``header``."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int
    """How many leading columns are names (aligned left); the others are numbers."""
    flagged: frozenset[int] = frozenset()
    """0-based rows that are incomplete."""


def tables(report: Report) -> tuple[Table, ...]:
    """The tables of a report in reading order; empty ones are left out."""
    labels = _labels(report)
    laid_out = (
        _results(report, labels),
        _averages(report),
        _orderings(report, labels),
        _gate(report, labels),
        _attribution(report, labels),
        _cost(report, labels),
    )
    return tuple(table for table in laid_out if table.rows)


def footnotes(report: Report) -> tuple[str, ...]:
    """What the marks ``[1]``, ``[2]`` behind method names stand for: the settings a reader must know."""
    return tuple(
        f"[{number}] {', '.join(f'{key}={value}' for key, value in settings)}"
        for settings, number in _marks(report).items()
    )


def _marks(report: Report) -> dict[tuple[tuple[str, str], ...], int]:
    settings = dict.fromkeys(tuple(row.deviations.items()) for row in report.rows if row.deviations)
    return {found: number for number, found in enumerate(settings, start=1)}


def _labels(report: Report) -> list[tuple[str, str, str]]:
    marks = _marks(report)
    labels = []
    for row in report.rows:
        mark = marks.get(tuple(row.deviations.items()))
        method = row.method if mark is None else f"{row.method} [{mark}]"
        labels.append((row.benchmark, row.backbone, method))
    return labels


def _results(report: Report, labels: Sequence[tuple[str, str, str]]) -> Table:
    # With one pass the first epoch is the last one, and columns that say nothing only make the table wide.
    replayed = any(row.epochs > 1 for row in report.rows)
    trained = "Train, last epoch" if replayed else "Train"
    rows = [
        (
            *label,
            *([str(row.epochs), _score(row.train_first, report)] if replayed else []),
            _score(row.train_selected, report),
            _score(row.eval, report),
            _counts(row.train_selected.total),
            _counts(row.eval.total),
            "complete" if row.complete else "INCOMPLETE",
        )
        for label, row in zip(labels, report.rows, strict=True)
    ]
    return Table(
        title=f"Results, Avg@{report.options.k} in percent",
        header=(
            *("Benchmark", "Backbone", "Method"),
            *(["Epochs", "Train, epoch 1 (online)"] if replayed else []),
            f"{trained} (online)",
            "Eval (frozen)",
            f"{trained}: planned / scored / infra",
            "Eval: planned / scored / infra",
            "Status",
        ),
        rows=tuple(rows),
        names=3,
        flagged=frozenset(i for i, row in enumerate(report.rows) if not row.complete),
    )


def _score(score: Score, report: Report) -> str:
    cell = score.average.cell
    if cell is None:
        return NOTHING
    text = str(cell) if score.average.sd is None else f"{cell} ± {score.average.sd}"
    if not score.average.incomplete:
        return text
    used = f"{len(score.average.used)} of {report.options.k} orderings"
    return f"{text} (n={score.total.scored}/{score.total.planned}, {used})"


def _counts(tally: Tally) -> str:
    return f"{tally.planned}/{tally.scored}/{tally.infra}"


def _averages(report: Report) -> Table:
    rows = [
        (
            found.backbone,
            found.method,
            _number(found.train.cell),
            _rate(found.train.exact, 4),
            _number(found.eval.cell),
            _rate(found.eval.exact, 4),
            _counts(found.train.total),
            _counts(found.eval.total),
            "complete" if found.complete else "INCOMPLETE",
        )
        for found in report.averages
    ]
    return Table(
        title="Average over benchmarks, in percent",
        header=(
            "Backbone",
            "Method",
            "Train (online)",
            "Train, exact",
            "Eval (frozen)",
            "Eval, exact",
            "Train: planned/scored/infra",
            "Eval: planned/scored/infra",
            "Status",
        ),
        rows=tuple(rows),
        names=2,
        flagged=frozenset(i for i, found in enumerate(report.averages) if not found.complete),
    )


def _number(value: Decimal | int | None) -> str:
    return NOTHING if value is None else str(value)


def _rate(value: Fraction | None, places: int = 2) -> str:
    return NOTHING if value is None else str(percent(value, places))


def _orderings(report: Report, labels: Sequence[tuple[str, str, str]]) -> Table:
    rows: list[tuple[str, ...]] = []
    flagged = set()
    for label, row in zip(labels, report.rows, strict=True):
        for line in row.runs:
            for split, counted in row.splits(line):
                if not counted.complete:
                    flagged.add(len(rows))
                in_eval = split == "eval"
                rows.append(
                    (
                        *label,
                        str(line.ordering),
                        split,
                        line.eval_memory if in_eval else NOTHING,
                        str(counted.planned),
                        str(counted.scored),
                        str(counted.success),
                        str(counted.infra),
                        str(counted.missing),
                        _rate(counted.accuracy("scored")),
                        _rate(counted.accuracy("planned")),
                        _number(line.bank_size) if in_eval else NOTHING,
                    )
                )
    return Table(
        title="Orderings",
        header=(
            "Benchmark",
            "Backbone",
            "Method",
            "Ordering",
            "Split",
            "Eval memory",
            "Planned",
            "Scored",
            "Success",
            "Infra",
            "Missing",
            "% of scored",
            "% of planned",
            "Bank size",
        ),
        rows=tuple(rows),
        names=6,
        flagged=frozenset(flagged),
    )


def _gate(report: Report, labels: Sequence[tuple[str, str, str]]) -> Table:
    rows = [
        (*label, str(row.gate.decided), str(row.gate.errors), _rate(row.gate.error_rate))
        for label, row in zip(labels, report.rows, strict=True)
        if row.gate.error_rate is not None
    ]
    return Table(
        title="Credit gate, all train episodes",
        header=("Benchmark", "Backbone", "Method", "Decided", "Gate errors", "Gate error %"),
        rows=tuple(rows),
        names=3,
    )


def _attribution(report: Report, labels: Sequence[tuple[str, str, str]]) -> Table:
    rows = [
        (*label, outcome.value, name, str(count), _rate(Fraction(count, sum(mix.values()))))
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


def _cost(report: Report, labels: Sequence[tuple[str, str, str]]) -> Table:
    rows: list[tuple[str, ...]] = []
    for label, row in zip(labels, report.rows, strict=True):
        for phase, cost in row.cost.items():
            episodes = (str(cost.episodes), f"{cost.mean_duration_s:.1f}")
            if not cost.usage:
                rows.append((*label, phase, NOTHING, *episodes, "0", "0", "0", "0", "0"))
            for role, spent in cost.usage.items():
                counts = (
                    spent.calls,
                    spent.requests,
                    spent.prompt_tokens,
                    spent.cached_tokens,
                    spent.completion_tokens,
                )
                rows.append((*label, phase, role, *episodes, *map(str, counts)))
    return Table(
        title="Calls and tokens by role",
        header=(
            "Benchmark",
            "Backbone",
            "Method",
            "Phase",
            "Role",
            "Episodes",
            "Mean seconds",
            "Calls",
            "Requests",
            "Prompt tokens",
            "of them cached",
            "Completion tokens",
        ),
        rows=tuple(rows),
        names=5,
    )
