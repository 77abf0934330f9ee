"""Paired comparison of a report's rows: which are compared, and over which tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from chime_dist.core.comparison import Place, compare
from chime_dist.core.episode import EpisodeRecord, Outcome
from chime_dist.errors import ConfigError
from chime_dist.report.counting import CountedRun
from chime_dist.report.document import Paired, Phase, ReportOptions, Row, Score
from chime_dist.report.results import METHODS_OWN

_REFERENCE = "chime"
"""Compared with every other method where the options name no two, if it is there."""

_SPLITS: tuple[Phase, ...] = ("eval", "train")


def compared(
    rows: Sequence[Row], members: Sequence[Sequence[CountedRun]], options: ReportOptions
) -> tuple[Paired, ...]:
    """Every comparison that the options ask for, eval before train; ``members`` are the runs of each row.

    Only rows of one benchmark and backbone that were measured alike are compared, and forks never. Raises
    ConfigError for a method that no row has, and for one with itself where it has one setting.
    """
    chosen = list(_chosen(rows, options))
    return tuple(
        _paired(split, first, second, rows, members, options) for split in _SPLITS for first, second in chosen
    )


def _chosen(rows: Sequence[Row], options: ReportOptions) -> Iterator[tuple[int, int]]:
    """Indexes of the rows that are compared."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, row in enumerate(rows):
        if not row.forked:
            groups.setdefault(_measured(row), []).append(index)
    methods = list(dict.fromkeys(row.method for row in rows if not row.forked))
    if options.compare is None:
        reference = _REFERENCE if _REFERENCE in methods else next(iter(methods), None)
        for group in groups.values():
            first = next((index for index in group if rows[index].method == reference), None)
            if first is not None:
                yield from ((first, second) for second in group if second != first)
        return
    for name in options.compare:
        if name not in methods:
            raise ConfigError(
                f"{options.directory} has no method {name!r} to compare; it has {', '.join(map(repr, methods))}"
            )
    one, other = options.compare
    if one == other and all(sum(rows[index].method == one for index in group) < 2 for group in groups.values()):
        raise ConfigError(f"{options.directory} has {one!r} in one setting only; compare it with another method")
    for group in groups.values():
        for first in (index for index in group if rows[index].method == one):
            for second in (index for index in group if rows[index].method == other):
                # A method in two settings is compared with itself, once.
                if one != other or first < second:
                    yield first, second


def _measured(row: Row) -> tuple[object, ...]:
    option = f"{row.method.partition(' ')[0]}."
    shared = tuple(d for d in row.deviations.items() if d[0] not in METHODS_OWN and not d[0].startswith(option))
    return row.benchmark, row.backbone, shared


def _paired(
    split: Phase,
    first: int,
    second: int,
    rows: Sequence[Row],
    members: Sequence[Sequence[CountedRun]],
    options: ReportOptions,
) -> Paired:
    scores = [_score(rows[index], split, options) for index in (first, second)]
    complete = not any(score.average.incomplete for score in scores)
    scored = [_scored(members[index], split, options) for index in (first, second)]
    return Paired(
        split=split,
        first=first,
        second=second,
        planned=max(score.total.planned for score in scores),
        complete=complete,
        result=compare(*scored) if complete or options.partial else None,
    )


def _score(row: Row, split: Phase, options: ReportOptions) -> Score:
    if split == "eval":
        return row.eval
    return row.train_first if options.train_metric == "first" else row.train_selected


def _scored(runs: Iterable[CountedRun], split: Phase, options: ReportOptions) -> dict[Place, bool]:
    return {
        Place(counted.run.ordering, row.unit.task): row.outcome is Outcome.SUCCESS
        for counted in runs
        for row in _rows(counted, split, options)
        if row.outcome is not Outcome.INFRA
    }


def _rows(counted: CountedRun, split: Phase, options: ReportOptions) -> Iterable[EpisodeRecord]:
    if split == "eval":
        return counted.eval
    epoch = 0 if options.train_metric == "first" else counted.run.epochs - 1
    return (row for row in counted.train if row.unit.epoch == epoch)
