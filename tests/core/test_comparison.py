"""Paired comparison: exact tests against worked numbers, intervals against what clustering must do."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.core.comparison import Cluster, Comparison, Interval, Place, bootstrap, compare, mcnemar

SCORES = st.dictionaries(st.builds(Place, st.integers(0, 2), st.sampled_from("abcdef")), st.booleans())


@pytest.mark.parametrize(
    ("wins", "losses", "p"),
    [
        (8, 2, Fraction(112, 1024)),
        (2, 8, Fraction(112, 1024)),
        (0, 0, Fraction(1)),
        (3, 3, Fraction(1)),
        (5, 0, Fraction(1, 16)),
        (1, 0, Fraction(1)),
    ],
)
def test_mcnemars_exact_p_is_the_two_sided_binomial_tail(wins: int, losses: int, p: Fraction) -> None:
    """8 wins and 2 losses: 2 * (1 + 10 + 45) / 1024 = 0.109375; never above 1."""
    assert mcnemar(wins, losses) == p


def test_counts_are_not_negative() -> None:
    with pytest.raises(ValueError, match="wins and losses are counts, got 3 and -1"):
        mcnemar(3, -1)


def scores(text: str, ordering: int = 0) -> dict[Place, bool]:
    """One sign per task, named by its index: ``+`` solved, ``-`` not, ``.`` without a score."""
    return {Place(ordering, f"t{k}"): sign == "+" for k, sign in enumerate(text) if sign != "."}


def test_only_tasks_that_both_scored_in_the_same_ordering_are_pairs() -> None:
    """R4: ordering 1 of the first has no partner, and a task without a score is no tie."""
    first = scores("++-+.") | scores("++", ordering=1)
    found = compare(first, scores("+---+"))
    assert (found.wins, found.losses, found.ties, found.pairs) == (2, 0, 2, 4)
    assert found.difference == Fraction(1, 2)
    assert (found.tasks, found.task_wins, found.task_losses) == (4, 2, 0)


def test_without_a_pair_there_is_no_difference_and_no_interval() -> None:
    assert compare(scores("+"), scores("+", ordering=1)) == Comparison(
        wins=0, losses=0, ties=0, task_wins=0, task_losses=0, tasks=0, interval=None
    )
    assert compare({}, {}).difference is None
    assert compare({}, {}).p_pairs == 1


def test_three_orderings_of_a_task_are_one_vote() -> None:
    """Five tasks won in all three orderings: fifteen wins are not fifteen independent ones."""
    first = {place: solved for r in range(3) for place, solved in scores("+++++", r).items()}
    found = compare(first, dict.fromkeys(first, False))
    assert (found.wins, found.task_wins) == (15, 5)
    assert found.p_pairs == Fraction(2, 2**15)
    assert found.p_tasks == Fraction(1, 16)


def test_a_task_that_was_won_as_often_as_lost_votes_for_nobody() -> None:
    found = compare(scores("+") | scores("-", 1), scores("-") | scores("+", 1))
    assert (found.wins, found.losses, found.task_wins, found.task_losses) == (1, 1, 0, 0)
    assert found.p_tasks == 1


def test_an_interval_is_a_function_of_its_pairs_and_the_seed() -> None:
    clusters = [Cluster(1, 1)] * 12 + [Cluster(-1, 1)] * 5 + [Cluster(0, 1)] * 40
    assert bootstrap(clusters) == bootstrap(list(reversed(clusters)))
    assert bootstrap(clusters, seed=1) != bootstrap(clusters, resamples=200, seed=2)


def test_an_interval_holds_the_difference_and_is_as_wide_as_the_binomial_says() -> None:
    """100 tasks, 50 won and 50 tied: 50 points, 1.96 * 5 points to either side, within a point."""
    interval = bootstrap([Cluster(1, 1)] * 50 + [Cluster(0, 1)] * 50)
    assert abs(interval.low - Decimal("40.2")) <= 1
    assert abs(interval.high - Decimal("59.8")) <= 1


def test_tasks_are_drawn_with_all_their_orderings() -> None:
    """The same 600 margins: of 200 tasks with three equal pairs each, sqrt(3) times as wide as of 600 tasks."""
    clustered = bootstrap([Cluster(3, 3)] * 100 + [Cluster(0, 3)] * 100)
    alone = bootstrap([Cluster(1, 1)] * 300 + [Cluster(0, 1)] * 300)
    ratio = (clustered.high - clustered.low) / (alone.high - alone.low)
    assert Decimal("1.6") < ratio < Decimal("1.9")


def test_where_nothing_varies_the_interval_is_a_point() -> None:
    assert bootstrap([Cluster(0, 2)] * 7) == Interval(low=Decimal("0.00"), high=Decimal("0.00"))
    assert bootstrap([Cluster(-1, 1)]) == Interval(low=Decimal("-100.00"), high=Decimal("-100.00"))


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to draw from"):
        bootstrap([])


@given(SCORES, SCORES)
def test_a_comparison_turned_round_says_the_opposite(first: dict[Place, bool], second: dict[Place, bool]) -> None:
    there, back = compare(first, second), compare(second, first)
    assert (there.wins, there.losses, there.ties) == (back.losses, back.wins, back.ties)
    assert there.pairs == len(first.keys() & second.keys())
    assert (there.p_pairs, there.p_tasks) == (back.p_pairs, back.p_tasks)
    if there.difference is not None and there.interval is not None and back.difference is not None:
        assert there.difference == -back.difference
        assert there.interval.low <= there.interval.high
