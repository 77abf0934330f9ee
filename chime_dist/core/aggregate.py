"""From episode records to printed numbers: exact until the one rounding that a reader sees (R4, R6, G3, H1, H3).

An accuracy is a Fraction, a printed cell a Decimal in percent. Nothing is averaged that is not complete, unless
the caller asks for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from math import isqrt
from typing import Literal, Self

from pydantic import Field, model_validator

from chime_dist.core.episode import EpisodeRecord, Outcome
from chime_dist.core.frozen import Frozen
from chime_dist.core.journal import counts
from chime_dist.errors import RunDirectoryError

Denominator = Literal["scored", "planned"]
"""What an accuracy divides by: episodes with a score, or all that were planned, so that infra and missing ones
count as not solved (S2 keeps errors in the denominator, R70)."""

TrainMetric = Literal["first", "selected"]
"""Which pass over the train stream is "the" train accuracy: the first, or the selected (last) one (R6)."""


class Tally(Frozen):
    """Ends of a set of planned episodes: planned = success + failure + infra + missing (H1)."""

    planned: int = Field(ge=0)
    success: int = Field(default=0, ge=0)
    failure: int = Field(default=0, ge=0)
    infra: int = Field(default=0, ge=0)
    """Tried, and failed by our machinery."""
    missing: int = Field(default=0, ge=0)
    """Planned, and without a finished attempt."""

    @model_validator(mode="after")
    def _accounts_for_all(self) -> Self:
        accounted = self.success + self.failure + self.infra + self.missing
        if accounted != self.planned:
            raise ValueError(f"{self.planned} episodes were planned, but {accounted} are accounted for")
        return self

    @property
    def scored(self) -> int:
        """Episodes that the benchmark scored."""
        return self.success + self.failure

    @property
    def complete(self) -> bool:
        """Whether every planned episode was scored."""
        return self.scored == self.planned

    def accuracy(self, denominator: Denominator = "scored") -> Fraction | None:
        """Successes over scored or planned episodes, in [0, 1]; None where there are none."""
        whole = self.scored if denominator == "scored" else self.planned
        return Fraction(self.success, whole) if whole else None

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            planned=self.planned + other.planned,
            success=self.success + other.success,
            failure=self.failure + other.failure,
            infra=self.infra + other.infra,
            missing=self.missing + other.missing,
        )


class Average(Frozen):
    """Avg@k: the mean of k orderings' accuracies (R4)."""

    orderings: tuple[int, ...]
    """0-based orderings that were planned; k is their number."""
    used: tuple[int, ...]
    """0-based orderings that entered the mean."""
    incomplete: tuple[int, ...]
    """0-based orderings with infra, missing or no episodes at all."""
    mean: Fraction | None
    """Exact, in [0, 1]; None where it was refused or there was nothing to average."""
    sd: Decimal | None
    """Sample standard deviation (divisor k - 1) of the orderings' accuracies in percentage points, rounded
    half-up to two decimals; None below two orderings."""

    @property
    def cell(self) -> Decimal | None:
        """The printed form: percent, rounded half-up once to two decimals."""
        return None if self.mean is None else percent(self.mean)


def counted_rows(records: Iterable[EpisodeRecord], attempts: Sequence[str] = ()) -> dict[str, EpisodeRecord]:
    """The row that counts for each unit, by ``Unit.key``; ``records`` are in the order they were written (H3).

    That is the final row, or the newest attempt while there is none; at a position that is committed, the one of
    the journal's attempt (D9), of which ``attempts`` has one for each. Resuming runs infra of eval again, so there
    a final infra row gives way too; a train position stays as it was committed. Identical copies count once.
    Raises RunDirectoryError for any other two rows of one unit.
    """
    rows: dict[str, EpisodeRecord] = {}
    late: list[EpisodeRecord] = []
    for record in records:
        unit = record.unit
        if not counts(attempts, unit.phase, unit.position, record.attempt):
            late.append(record)
            continue
        kept = rows.get(unit.key)
        if kept is None or _gives_way(kept):
            rows[unit.key] = record
        elif kept != record and not _gives_way(record):
            raise _doubled(kept, record)
    for record in late:
        kept = rows.get(record.unit.key)
        # A position that was committed empty has no final row beside the late one.
        if kept is not None and kept.final and record.final:
            raise _doubled(kept, record)
    return rows


def _doubled(kept: EpisodeRecord, other: EpisodeRecord) -> RunDirectoryError:
    return RunDirectoryError(
        f"{kept.unit.key} has two final rows that differ (attempts {kept.attempt!r} and {other.attempt!r}); the"
        " records are damaged, keep the row whose attempt the journal names"
    )


def _gives_way(record: EpisodeRecord) -> bool:
    return not record.final or (record.unit.phase == "eval" and record.outcome is Outcome.INFRA)


def tally(rows: Iterable[EpisodeRecord], planned: range) -> Tally:
    """Count the rows of one split: one epoch's train positions, or the eval indexes. One row per unit.

    Raises RunDirectoryError for a row outside ``planned`` and for a position or task that has two rows: either
    would give rates above 1 (H3).
    """
    found = list(rows)
    stray = [row for row in found if row.unit.position not in planned]
    if stray:
        raise RunDirectoryError(
            f"{stray[0].unit.key}: position {stray[0].unit.position} is not among the {len(planned)} planned from"
            f" {planned.start} on; the row belongs to another stream"
        )
    for what, seen in (
        ("position", Counter(str(row.unit.position) for row in found)),
        ("task", Counter(row.unit.task for row in found)),
    ):
        doubled = [name for name, count in seen.items() if count > 1]
        if doubled:
            raise RunDirectoryError(
                f"{found[0].unit.run_id}: {what} {doubled[0]!r} has {seen[doubled[0]]} rows in one split;"
                " rows of another stream or of an older run are mixed in"
            )
    ends = Counter(row.outcome for row in found)
    return Tally(
        planned=len(planned),
        success=ends[Outcome.SUCCESS],
        failure=ends[Outcome.FAILURE],
        infra=ends[Outcome.INFRA],
        missing=len(planned) - len(found),
    )


def average(
    tallies: Mapping[int, Tally],
    orderings: Collection[int],
    *,
    denominator: Denominator = "scored",
    partial: bool = False,
) -> Average:
    """Avg@k over the planned ``orderings``; ``tallies`` is by ordering, an absent one is incomplete (H1).

    While any ordering is incomplete the mean is refused (None). ``partial`` averages what there is instead:
    every ordering that has a denominator, with equal weight. Raises ValueError for an unplanned ordering.
    """
    planned = tuple(sorted(set(orderings)))
    unplanned = sorted(set(tallies).difference(planned))
    if unplanned:
        raise ValueError(f"orderings {list(planned)} are planned (0-based), but there are results of {unplanned}")
    incomplete = tuple(r for r in planned if r not in tallies or not tallies[r].complete)
    accuracies: dict[int, Fraction] = {}
    if partial or not incomplete:
        for r in sorted(tallies):
            accuracy = tallies[r].accuracy(denominator)
            if accuracy is not None:
                accuracies[r] = accuracy
    return Average(
        orderings=planned,
        used=tuple(accuracies),
        incomplete=incomplete,
        mean=mean(tuple(accuracies.values())) if accuracies else None,
        sd=sample_sd(tuple(accuracies.values())),
    )


def mean(values: Sequence[Fraction]) -> Fraction:
    """Unweighted and exact; raises ValueError for no values."""
    if not values:
        raise ValueError("there is no mean of no values")
    return sum(values, Fraction(0)) / len(values)


def percent(accuracy: Fraction, places: int = 2) -> Decimal:
    """A printed cell: a value in [0, 1] as percent, rounded half-up once (57/360: 15.83)."""
    return rounded(100 * accuracy, places)


def rounded(value: Fraction, places: int) -> Decimal:
    """``value`` rounded half-up once to so many decimals."""
    return _scaled((2 * value * 10**places + 1) // 2, places)


def mean_of_cells(cells: Sequence[Decimal]) -> Decimal:
    """A printed "Average": the unweighted mean of displayed cells, rounded half-up once to two decimals (R4)."""
    return percent(mean([Fraction(cell) / 100 for cell in cells]))


def sample_sd(accuracies: Sequence[Fraction]) -> Decimal | None:
    """Sample standard deviation (divisor n - 1) in percentage points, rounded half-up once to two decimals.

    None below two values, where it is undefined.
    """
    if len(accuracies) < 2:
        return None
    centre = mean(accuracies)
    variance = sum(((a - centre) ** 2 for a in accuracies), Fraction(0)) / (len(accuracies) - 1)
    # Half-up without a float: floor(x + 1/2) = (floor(2x) + 1) // 2, and 2x is the root of an exact square.
    doubled = isqrt((2 * 10**4) ** 2 * variance.numerator // variance.denominator)
    return _scaled((doubled + 1) // 2, 2)


def _scaled(digits: int, places: int) -> Decimal:
    return Decimal(digits).scaleb(-places)
