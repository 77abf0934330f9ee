"""The orderings of one benchmark x backbone x method, put together to one row (R4, R6, R21, H1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from math import fsum
from typing import Any

from chime_dist.core.aggregate import Tally, average, mean
from chime_dist.core.checkpoint import checkpoints
from chime_dist.core.episode import EpisodeRecord, Outcome
from chime_dist.core.spending import Spent
from chime_dist.errors import ConfigError
from chime_dist.report.charges import by_commits, by_episodes, spent
from chime_dist.report.counting import CountedRun
from chime_dist.report.document import (
    CommitCosts,
    CostLine,
    Costs,
    GateLine,
    Growth,
    Phase,
    ReportOptions,
    Row,
    RunLine,
    Score,
)
from chime_dist.report.results import RunResults


def build_row(members: Sequence[CountedRun], options: ReportOptions) -> Row:
    """``members`` are the runs of one row, at least one, in any order.

    Raises ConfigError where they are not the orderings of one experiment.
    """
    first = members[0].run
    _refuse_mixture([member.run for member in members], options)
    lines = tuple(sorted((member.line for member in members), key=lambda line: line.ordering))
    phases: dict[Phase, list[EpisodeRecord]] = {
        "train": [row for member in members for row in member.train],
        "eval": [row for member in members for row in member.eval],
    }
    cost = {phase: _cost(rows, first, options) for phase, rows in phases.items() if rows}
    at_commits = _at_commits([member.run for member in members], phases["train"], options)
    lines_of_cost: list[Costs] = [*cost.values(), *([at_commits] if at_commits else [])]
    asking = sorted({role for line in lines_of_cost for role in line.usage})
    return Row(
        benchmark=first.benchmark,
        backbone=first.backbone,
        method=first.method,
        endpoints={role: first.asked(role).endpoint for role in asking},
        deviations=dict(sorted(first.deviations.items())),
        train_size=first.train_size,
        epochs=first.epochs,
        eval_size=first.eval_size,
        runs=lines,
        train_first=_score(lines, lambda line: line.train_first, options),
        train_selected=_score(lines, lambda line: line.train_selected, options),
        eval=_score(lines, lambda line: line.eval, options),
        gate=_gate(phases["train"]),
        growth=tuple(_growth(lines, first, options)),
        cost=cost,
        at_commits=at_commits,
    )


def _refuse_mixture(runs: Sequence[RunResults], options: ReportOptions) -> None:
    name = f"{runs[0].benchmark} / {runs[0].backbone} / {runs[0].method}"
    for ordering, count in Counter(run.ordering for run in runs).items():
        if count > 1:
            raise ConfigError(
                f"{name}: ordering {ordering} is there {count} times; report one launch at a time, or name what"
                " differs between the runs in their deviations"
            )
        if ordering not in options.orderings:
            raise ConfigError(
                f"{name}: ordering {ordering} (0-based) exists, but the report is for {list(options.orderings)}"
            )
    if len({tuple(sorted(run.endpoints.items())) for run in runs}) > 1:
        raise ConfigError(
            f"{name}: its orderings ask different backbones for the same role; report one launch at a time"
        )
    shapes = {(run.train_size, run.epochs, run.eval_size, run.eval_version) for run in runs}
    if len(shapes) > 1:
        raise ConfigError(
            f"{name}: its orderings are not one experiment, they differ in (train size, epochs, eval size, eval"
            f" version): {sorted(shapes)}"
        )


def _score(lines: Sequence[RunLine], pick: Callable[[RunLine], Tally], options: ReportOptions) -> Score:
    tallies = {line.ordering: pick(line) for line in lines}
    absent = (options.k - len(tallies)) * pick(lines[0]).planned
    return Score(
        average=average(tallies, options.orderings, denominator=options.denominator, partial=options.partial),
        total=sum(tallies.values(), Tally(planned=absent, missing=absent)),
    )


def _gate(train: Iterable[EpisodeRecord]) -> GateLine:
    status = Counter(row.gate_status for row in train)
    mix = Counter((row.outcome, row.label) for row in train if row.gate_status == "decided" and row.label)
    labels: dict[Outcome, dict[str, int]] = {}
    for (outcome, label), count in sorted(mix.items()):
        labels.setdefault(outcome, {})[label] = count
    return GateLine(decided=status["decided"], errors=status["gate_error"], labels=labels)


def _cost(rows: Sequence[EpisodeRecord], run: RunResults, options: ReportOptions) -> CostLine:
    return CostLine(
        **_sums(spent(by_episodes(run, rows), options.prices), rows),
        mean_duration_s=fsum(row.duration_s for row in rows) / len(rows),
        ends=dict(sorted(Counter(row.end_reason for row in rows).items())),
        flags=dict(sorted(Counter(flag for row in rows for flag in row.flags).items())),
    )


def _at_commits(
    runs: Sequence[RunResults], train: Sequence[EpisodeRecord], options: ReportOptions
) -> CommitCosts | None:
    found = spent((used for run in runs for used in by_commits(run)), options.prices)
    return CommitCosts(**_sums(found, train)) if found.usage else None


def _sums(found: Spent, rows: Sequence[EpisodeRecord]) -> dict[str, Any]:
    """The fields of ``Costs``: what was spent, over these episodes."""
    asked = sorted(found.usage, key=lambda who: who.role)
    return {
        "episodes": len(rows),
        "successes": sum(row.outcome is Outcome.SUCCESS for row in rows),
        "usage": {who.role: found.usage[who] for who in asked},
        "costs": {who.role: found.cost_of(who) for who in asked},
        "cost": found.cost,
    }


def _growth(lines: Sequence[RunLine], run: RunResults, options: ReportOptions) -> Iterator[Growth]:
    collections = sorted({name for line in lines for point in line.growth for name in point.sizes})
    reached = [{point.name: point.sizes for point in line.growth} for line in lines]
    for collection in collections:
        sizes: dict[str, Fraction | None] = {}
        for point in checkpoints(run.train_size, run.epochs):
            found = [Fraction(bank[point.name].get(collection, 0)) for bank in reached if point.name in bank]
            whole = len(found) == options.k or (options.partial and found)
            sizes[point.name] = mean(found) if whole else None
        yield Growth(collection=collection, sizes=sizes)
