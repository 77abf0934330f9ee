"""A report laid out as tables of text, once for every form that people read."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from chime_dist.core.aggregate import Tally, percent, rounded
from chime_dist.core.comparison import LEVEL
from chime_dist.report import cost_tables, memory_tables
from chime_dist.report.build import notes_on_comparisons
from chime_dist.report.document import Report, Score
from chime_dist.report.layout import NOTHING, Label, Table, number, rate


def tables(report: Report, *, compared: bool = False) -> tuple[Table, ...]:
    """The tables of a report in reading order, or (``compared``) its comparisons alone; without empty ones."""
    labels = _labels(report)
    if compared:
        laid_out: tuple[Table, ...] = (_comparisons(report, labels),)
    else:
        laid_out = _whole(report, labels)
    return tuple(table for table in laid_out if table.rows)


def _whole(report: Report, labels: Sequence[Label]) -> tuple[Table, ...]:
    return (
        _results(report, labels),
        _averages(report),
        _comparisons(report, labels),
        _orderings(report, labels),
        memory_tables.growth(report, labels),
        memory_tables.gate(report, labels),
        memory_tables.attribution(report, labels),
        cost_tables.per_success(report, labels),
        cost_tables.by_role(report, labels),
        cost_tables.costs(report, labels),
        cost_tables.spent(report),
        cost_tables.ends(report, labels),
        cost_tables.left_out(report, labels),
        cost_tables.flags(report, labels),
    )


def notes(report: Report, *, compared: bool = False) -> tuple[str, ...]:
    """What the marks ``[1]``, ``[2]`` behind method names stand for, settings that a reader must know; then how to
    read the numbers. ``compared`` is as in ``tables``."""
    shown = {index for pair in report.comparisons for index in (pair.first, pair.second)}
    marked = {
        tuple(row.deviations.items()) for index, row in enumerate(report.rows) if index in shown or not compared
    }
    marks = [
        f"[{number}] {', '.join(f'{key}={value}' for key, value in settings)}"
        for settings, number in _marks(report).items()
        if settings in marked
    ]
    return (*marks, *(notes_on_comparisons(report.comparisons, report.options) if compared else report.notes))


def _marks(report: Report) -> dict[tuple[tuple[str, str], ...], int]:
    settings = dict.fromkeys(tuple(row.deviations.items()) for row in report.rows if row.deviations)
    return {found: number for number, found in enumerate(settings, start=1)}


def _labels(report: Report) -> list[Label]:
    marks = _marks(report)
    labels: list[Label] = []
    for row in report.rows:
        mark = marks.get(tuple(row.deviations.items()))
        method = row.method if mark is None else f"{row.method} [{mark}]"
        labels.append((row.benchmark, row.backbone, method))
    return labels


def _results(report: Report, labels: Sequence[Label]) -> Table:
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
            number(found.train.cell),
            rate(found.train.exact, 4),
            number(found.eval.cell),
            rate(found.eval.exact, 4),
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
            "Train: planned / scored / infra",
            "Eval: planned / scored / infra",
            "Status",
        ),
        rows=tuple(rows),
        names=2,
        flagged=frozenset(i for i, found in enumerate(report.averages) if not found.complete),
    )


def _comparisons(report: Report, labels: Sequence[Label]) -> Table:
    rows = []
    for pair in report.comparisons:
        benchmark, backbone, first = labels[pair.first]
        names = (benchmark, backbone, pair.split, first, labels[pair.second][2])
        found = pair.result
        if found is None:
            rows.append((*names, *[NOTHING] * 6))
            continue
        bounds = found.interval
        rows.append(
            (
                *names,
                f"{found.pairs}/{pair.left_out}",
                f"{found.wins}/{found.losses}/{found.ties}",
                NOTHING if found.difference is None else f"{percent(found.difference):+}",
                NOTHING if bounds is None else f"{bounds.low:+}..{bounds.high:+}",
                _p(found.p_pairs),
                _p(found.p_tasks),
            )
        )
    return Table(
        title="Paired comparison",
        header=(
            *("Benchmark", "Backbone", "Split", "First", "Second"),
            "Pairs / left out",
            "Wins / losses / ties",
            "Difference",
            f"{LEVEL}% interval",
            "p, pairs",
            "p, tasks",
        ),
        rows=tuple(rows),
        names=5,
        flagged=frozenset(i for i, pair in enumerate(report.comparisons) if not pair.complete),
    )


def _p(value: Fraction) -> str:
    return "<0.0001" if value < Fraction(1, 20_000) else str(rounded(value, 4))


def _orderings(report: Report, labels: Sequence[Label]) -> Table:
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
                        rate(counted.accuracy("scored")),
                        rate(counted.accuracy("planned")),
                        number(line.bank_size) if in_eval else NOTHING,
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
