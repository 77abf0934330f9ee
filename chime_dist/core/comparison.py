"""Two methods on the same tasks: who won how often, how sure that is, and how large the difference may be.

A pair is one task in one ordering that both methods have scored. Orderings repeat tasks, and what happened to a
task in one ordering says much about the next; so whatever states how sure a difference is also counts by task: the
bootstrap draws tasks with all their pairs, and the second p value lets each task vote once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from math import comb
from typing import NamedTuple

import numpy as np

from chime_dist.core.frozen import Frozen

RESAMPLES = 10_000
"""Bootstrap resamples of an interval."""
SEED = 0
"""Of the bootstrap: every interval is a function of its pairs and of this."""
LEVEL = 95
"""Coverage of an interval, in percent."""


class Place(NamedTuple):
    """What two results must share to be a pair."""

    ordering: int
    """0-based."""
    task: str


class Cluster(NamedTuple):
    """All pairs of one task."""

    margin: int
    """Wins minus losses of the first method."""
    pairs: int
    """At least 1."""


class Interval(Frozen):
    """Percentile bounds of a difference, in percentage points, rounded half-up to two decimals."""

    low: Decimal
    high: Decimal


class Comparison(Frozen):
    """The first method against the second, over their pairs."""

    wins: int
    """Pairs that only the first solved."""
    losses: int
    """Pairs that only the second solved."""
    ties: int
    """Pairs that both solved, or neither."""
    task_wins: int
    """Tasks with more wins than losses."""
    task_losses: int
    """Tasks with more losses than wins."""
    tasks: int
    """Tasks with a pair."""
    interval: Interval | None
    """Of the difference; None without a pair."""

    @property
    def pairs(self) -> int:
        """Wins, losses and ties."""
        return self.wins + self.losses + self.ties

    @property
    def difference(self) -> Fraction | None:
        """Accuracy of the first minus that of the second over the pairs, in [-1, 1]; None without a pair."""
        return Fraction(self.wins - self.losses, self.pairs) if self.pairs else None

    @property
    def p_pairs(self) -> Fraction:
        """McNemar's exact p over pairs, as if the orderings of one task were independent: too small where they are
        not."""
        return mcnemar(self.wins, self.losses)

    @property
    def p_tasks(self) -> Fraction:
        """The same test over tasks, each with the sign of its wins minus losses; equal to ``p_pairs`` where every
        task has one pair."""
        return mcnemar(self.task_wins, self.task_losses)


def compare(first: Mapping[Place, bool], second: Mapping[Place, bool]) -> Comparison:
    """Compare two methods' scores (solved or not) wherever both have one."""
    margins: dict[str, list[int]] = defaultdict(list)
    for place in first.keys() & second.keys():
        margins[place.task].append(first[place] - second[place])
    signs = Counter(margin for of_task in margins.values() for margin in of_task)
    clusters = [Cluster(sum(of_task), len(of_task)) for of_task in margins.values()]
    return Comparison(
        wins=signs[1],
        losses=signs[-1],
        ties=signs[0],
        task_wins=sum(cluster.margin > 0 for cluster in clusters),
        task_losses=sum(cluster.margin < 0 for cluster in clusters),
        tasks=len(clusters),
        interval=bootstrap(clusters) if clusters else None,
    )


def mcnemar(wins: int, losses: int) -> Fraction:
    """McNemar's exact test: the two-sided binomial p of so uneven a split of the discordant pairs at chance 1/2.

    8 and 2 give 112/1024 = 0.109375; without a discordant pair p is 1. Raises ValueError for negative counts.
    """
    if min(wins, losses) < 0:
        raise ValueError(f"wins and losses are counts, got {wins} and {losses}")
    discordant = wins + losses
    tail = sum(comb(discordant, k) for k in range(min(wins, losses) + 1))
    return min(Fraction(1), Fraction(2 * tail, 2**discordant))


def bootstrap(clusters: Collection[Cluster], resamples: int = RESAMPLES, seed: int = SEED) -> Interval:
    """The percentile interval of the pairs' mean margin when tasks are drawn anew, each with all its pairs.

    A resample is as many tasks as there are, with replacement. Tasks with equal margin and equal pairs are the
    same draw, so a resample is one multinomial draw over those kinds: exact, and small for any number of tasks.
    Raises ValueError for no clusters.
    """
    if not clusters:
        raise ValueError("there is nothing to draw from")
    kinds = sorted(Counter(clusters).items())
    shares = np.array([count for _, count in kinds]) / len(clusters)
    drawn = np.random.Generator(np.random.PCG64(seed)).multinomial(len(clusters), shares, size=resamples)
    margins, sizes = (drawn @ np.array(column) for column in zip(*(kind for kind, _ in kinds), strict=True))
    tail = (100 - LEVEL) / 200
    low, high = np.quantile(margins / sizes, (tail, 1 - tail))
    return Interval(low=_points(float(low)), high=_points(float(high)))


def _points(share: float) -> Decimal:
    # Six decimals first: a float that is a hair below a half is a half. Adding zero turns -0.00 into 0.00.
    return Decimal(f"{100 * share:.6f}").quantize(Decimal("0.01"), ROUND_HALF_UP) + 0
