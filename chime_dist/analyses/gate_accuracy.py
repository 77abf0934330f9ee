"""``analyze gate-accuracy``: the numbers of ``gate_runs`` as a table, a chart and lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from fractions import Fraction

from chime_dist.analyses.finding import Chart, Finding, Panel, Series, Table
from chime_dist.analyses.gate_runs import MEMORIES, Measured, Point, measured
from chime_dist.analyses.studied import StudiedRun
from chime_dist.core.aggregate import mean, percent, rounded

NAME = "gate-accuracy"
ABOUT = "eval success and bank size over the gate's accuracy; of a launch like configs/gate_accuracy.yaml"

_MISSING = "-"

_NOTES = (
    "Gate accuracy is configured: the share of the gate's requests, chosen by hash, that see the true cause. Under"
    " no_gate they are the distiller's, which writes for both stages after every episode; what it writes after a"
    " failure is right only for a stage that was at fault, and only where it sees that.",
    "Wrong labels are counted against the true causes, which credit_world knows. Right memories are CHIME's whose"
    " first stated rule is the one that their cases need. Banks are the records that eval read.",
    "A simulation: a gate that does not see the cause gives another label, advises a stage that it blames wrongly"
    " to change what was right, and calls no memory misleading; the agent follows the first rule that it is shown;"
    " a merge states the newest rule first. No number says anything about a model.",
)


def find(runs: Iterable[StudiedRun]) -> Finding:
    """Raises what ``gate_runs.measured`` raises."""
    return _finding(measured(runs))


def _finding(points: Sequence[Point]) -> Finding:
    orderings = max(len(point.runs) for point in points)
    spread = f"mean and range over {orderings} orderings" if orderings > 1 else "one ordering"
    return Finding(
        title=f"Gate accuracy, {spread}",
        table=_table(points),
        lines=_lines(points),
        document={"points": [_document(point) for point in points]},
        chart=_chart(points, spread),
        notes=_NOTES,
    )


def _table(points: Sequence[Point]) -> Table:
    banks = _banks(points)
    rows = [
        (
            point.method,
            f"{point.accuracy:.2f}",
            _percents(point.values(lambda run: run.eval)),
            _percents(point.values(lambda run: run.train_first)),
            _percents(point.values(lambda run: run.train_last)),
            *(_size(point, bank) for bank in banks),
            _percents(point.values(lambda run: run.right)),
            _percents(point.values(lambda run: run.wrong)),
        )
        for point in points
    ]
    return Table(
        header=(
            "Method",
            "Gate accuracy",
            "Eval %",
            "Train %, epoch 1",
            "Train %, last",
            *(f"Bank: {bank}" for bank in banks),
            "Right memories %",
            "Wrong labels %",
        ),
        rows=tuple(rows),
        names=1,
    )


def _banks(points: Sequence[Point]) -> list[str]:
    """All collections, CHIME's own first and in its order."""
    found = {bank for point in points for run in point.runs for bank in run.bank}
    return [*(bank for bank in MEMORIES if bank in found), *sorted(found.difference(MEMORIES))]


def _percents(values: Sequence[Fraction]) -> str:
    if not values:
        return _MISSING
    middle, low, high = (percent(value, 1) for value in (mean(values), min(values), max(values)))
    return str(middle) if low == high else f"{middle} ({low}..{high})"


def _size(point: Point, bank: str) -> str:
    """The mean over orderings; an empty bank is one of 0 where another ordering has it."""
    if not any(bank in run.bank for run in point.runs):
        return _MISSING
    return str(rounded(mean(point.values(lambda run: run.bank.get(bank, 0))), 1))


def _lines(points: Sequence[Point]) -> Table:
    banks = _banks(points)
    rows = [
        (
            run.method,
            run.run_id,
            str(run.accuracy),
            str(run.ordering),
            *(_number(value) for value in (run.eval, run.train_first, run.train_last)),
            *(str(run.bank.get(bank, 0)) for bank in banks),
            str(run.size),
            *(_number(value) for value in (run.right, run.wrong)),
        )
        for point in points
        for run in point.runs
    ]
    return Table(
        header=(
            *("method", "run_id", "gate_accuracy", "ordering", "eval", "train_first", "train_last"),
            *(f"bank_{bank}" for bank in banks),
            *("bank", "right_memories", "wrong_labels"),
        ),
        rows=tuple(rows),
        names=2,
    )


def _number(value: Fraction | None) -> str:
    return "" if value is None else f"{float(value):.6f}"


def _document(point: Point) -> dict[str, object]:
    def plain(run: Measured) -> dict[str, object]:
        fields = asdict(run) | {"size": run.size}
        return {name: float(value) if isinstance(value, Fraction) else value for name, value in fields.items()}

    return {"method": point.method, "gate_accuracy": point.accuracy, "runs": [plain(run) for run in point.runs]}


def _chart(points: Sequence[Point], spread: str) -> Chart:
    return Chart(
        title="credit_world: a gate that attributes worse and worse",
        panels=(
            Panel(
                title="Eval success",
                x_label="Gate accuracy (configured)",
                y_label="% of eval episodes",
                series=_series(points, lambda run: 100 * run.eval),
                falling=True,
            ),
            Panel(
                title="Bank size",
                x_label="Gate accuracy (configured)",
                y_label="memories, log scale",
                series=_series(points, lambda run: run.size),
                falling=True,
                logarithmic=True,
            ),
        ),
        note=f"Lines: {spread}. A simulation with built-in causes: no statement about any model.",
    )


def _series(points: Sequence[Point], of: Callable[[Measured], Fraction | int]) -> tuple[Series, ...]:
    by_method: dict[str, list[tuple[float, tuple[Fraction, ...]]]] = {}
    for point in points:
        by_method.setdefault(point.method, []).append((point.accuracy, point.values(of)))
    return tuple(
        Series(
            name=method,
            x=tuple(accuracy for accuracy, _ in found),
            y=tuple(float(mean(values)) for _, values in found),
            low=tuple(float(min(values)) for _, values in found),
            high=tuple(float(max(values)) for _, values in found),
        )
        for method, found in by_method.items()
    )
