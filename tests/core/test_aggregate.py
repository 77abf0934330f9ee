"""From records to printed numbers: R4's worked numbers, and the ways a sweep can be short of results."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from chime_dist.core.aggregate import (
    Average,
    Tally,
    average,
    counted_rows,
    mean,
    mean_of_cells,
    percent,
    sample_sd,
    tally,
)
from chime_dist.core.episode import EndReason, EpisodeRecord, Outcome, Unit
from chime_dist.errors import RunDirectoryError

ENDS = {
    Outcome.SUCCESS: EndReason.SCORED,
    Outcome.FAILURE: EndReason.SCORED,
    Outcome.INFRA: EndReason.BACKBONE,
}


def row(
    position: int,
    outcome: Outcome = Outcome.SUCCESS,
    *,
    phase: str = "eval",
    task: str | None = None,
    attempt: str = "a1",
    final: bool = True,
) -> EpisodeRecord:
    unit = Unit.model_validate(
        {
            "run_id": "run",
            "phase": phase,
            "epoch": 0,
            "position": position,
            "task": task or f"task-{position}",
            "read_version": 0,
        }
    )
    return EpisodeRecord(
        unit=unit,
        attempt=attempt,
        delivery=1,
        final=final,
        outcome=outcome,
        end_reason=ENDS[outcome],
        started_at="2026-11-01T00:00:00+00:00",
        duration_s=1.0,
        steps=1,
    )


def rows(success: int = 0, failure: int = 0, infra: int = 0) -> list[EpisodeRecord]:
    ends = [Outcome.SUCCESS] * success + [Outcome.FAILURE] * failure + [Outcome.INFRA] * infra
    return [row(position, outcome) for position, outcome in enumerate(ends)]


# --- R4: the printed numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solved", "of", "cell"),
    [(57, 360, "15.83"), (65, 273, "23.81"), (136, 840, "16.19"), (1, 3, "33.33"), (2, 3, "66.67")],
)
def test_a_cell_is_the_exact_share_rounded_once(solved: int, of: int, cell: str) -> None:
    """R4: VitaBench eval 57/360 -> 15.83; BrowseComp-ZH eval 65/273 -> 23.81; VitaBench train 136/840 -> 16.19."""
    assert percent(Fraction(solved, of)) == Decimal(cell)


def test_a_half_goes_up() -> None:
    """R4: half-up, where binary floats and round() would go down: 0.125 % is 0.13, 34.865 % is 34.87."""
    assert percent(Fraction(125, 100_000)) == Decimal("0.13")
    assert percent(Fraction(34_865, 100_000)) == Decimal("34.87")
    assert str(percent(Fraction(0))) == "0.00"
    assert str(percent(Fraction(1))) == "100.00"


def test_three_orderings_give_the_same_cell_as_their_sum() -> None:
    """R4: Avg@3 is the mean of three accuracies, which is k/(3n): 19 + 20 + 18 of 120 each are 57/360."""
    tallies = {r: Tally(planned=120, success=k, failure=120 - k) for r, k in enumerate((19, 20, 18))}

    found = average(tallies, range(3))

    assert found.mean == Fraction(57, 360)
    assert found.cell == Decimal("15.83")
    assert found.used == (0, 1, 2)
    assert found.incomplete == ()


def test_the_average_of_benchmarks_is_the_mean_of_displayed_cells() -> None:
    """R4: (25.92+15.83+23.81+73.91)/4 = 34.8675 -> 34.87."""
    cells = [Decimal(cell) for cell in ("25.92", "15.83", "23.81", "73.91")]
    assert mean_of_cells(cells) == Decimal("34.87")


PRINTED = """
21.68 22.32  9.40  8.89 20.20 21.25 71.33 70.86 30.65 30.83
24.77 23.45 14.76 11.94 17.68 21.98 69.36 70.26 31.64 31.91
20.13 21.28 10.60  6.11 20.88 20.51 69.75 70.20 30.34 29.53
19.81 20.55 12.02  6.67 18.35 18.31 73.84 72.45 31.01 29.50
26.25 25.92 16.19 15.83 23.74 23.81 73.90 73.91 35.02 34.87
31.42 32.86 16.31 11.11 26.94 23.81 63.75 64.15 34.61 32.98
31.30 29.61 22.62 17.50 29.46 24.54 58.27 60.88 35.41 33.13
28.45 26.18 18.57 15.56 26.26 22.34 56.29 58.32 32.39 30.60
30.55 30.95 21.07 15.83 27.61 24.54 69.18 69.98 37.10 35.33
33.15 36.28 22.98 21.11 29.97 31.50 65.89 67.15 38.00 39.01
22.96 23.11 15.95 12.22 20.71 20.51 69.52 70.60 32.29 31.61
24.38 25.14 15.47 12.50 20.88  9.16 72.93 73.42 33.42 30.06
24.05 23.67 13.22 12.50 19.70 19.78 69.52 70.99 31.62 31.74
24.87 22.76 15.60 11.11 21.04 19.41 72.63 71.79 33.54 31.27
21.21 22.28 17.02 12.50 20.20 22.71 73.40 72.23 32.96 32.43
24.32 24.75 16.31 10.83 21.72 23.44 73.75 72.28 34.03 32.83
25.61 24.32 16.79  8.61 20.71 22.34 73.79 72.05 34.23 31.83
"""


@pytest.mark.parametrize("line", PRINTED.strip().splitlines())
def test_all_printed_averages_come_out(line: str) -> None:
    """R4: the rule reproduces all 34 averages of S0's Tables 1 and 2 (tau2, VitaBench, BrowseComp-ZH, BFCL-v4)."""
    numbers = [Decimal(number) for number in line.split()]
    assert mean_of_cells(numbers[0:8:2]) == numbers[8]
    assert mean_of_cells(numbers[1:8:2]) == numbers[9]


def test_the_exact_mean_is_there_beside_the_printed_one() -> None:
    """R4: an extra column; the two differ where cells were rounded."""
    exact = [Fraction(1, 300), Fraction(1, 300), Fraction(1, 300), Fraction(2, 300)]
    assert mean_of_cells([percent(value) for value in exact]) == Decimal("0.42")
    assert percent(mean(exact), 4) == Decimal("0.4167")


def test_there_is_no_mean_of_nothing() -> None:
    with pytest.raises(ValueError, match="no mean of no values"):
        mean([])


def test_the_spread_is_the_sample_standard_deviation() -> None:
    """10 %, 20 % and 30 %: divisor k - 1, so 10.00 percentage points; undefined for one ordering."""
    assert sample_sd([Fraction(1, 10), Fraction(2, 10), Fraction(3, 10)]) == Decimal("10.00")
    assert sample_sd([Fraction(1, 2), Fraction(1, 2)]) == Decimal("0.00")
    assert sample_sd([Fraction(1, 2)]) is None


@given(st.lists(st.fractions(0, 1, max_denominator=3000), min_size=2, max_size=5))
def test_the_spread_agrees_with_floats_to_the_last_digit(values: list[Fraction]) -> None:
    centre = sum(values) / len(values)
    variance = sum((v - centre) ** 2 for v in values) / (len(values) - 1)
    found = sample_sd(values)
    assert found is not None
    assert abs(float(found) - 100 * math.sqrt(variance)) <= 0.005 + 1e-9


@given(st.fractions(0, 1), st.integers(0, 6))
def test_rounding_is_never_off_by_more_than_half_a_unit(value: Fraction, places: int) -> None:
    error = Fraction(percent(value, places)) - 100 * value
    assert -Fraction(1, 2) < error * 10**places <= Fraction(1, 2)


# --- counting -------------------------------------------------------------------------------------------


def test_one_success_among_nine_infra_ends_is_not_a_hundred_percent() -> None:
    """G3: 10 tasks, 1 success, 9 infra: completed 1 of 10, a rate over completed and one over all, incomplete."""
    found = tally(rows(success=1, infra=9), range(10))

    assert (found.planned, found.scored, found.infra, found.missing) == (10, 1, 9, 0)
    assert not found.complete
    assert found.accuracy("scored") == 1
    assert found.accuracy("planned") == Fraction(1, 10)


def test_nothing_scored_is_no_accuracy() -> None:
    assert tally(rows(infra=2), range(2)).accuracy() is None
    assert Tally(planned=0).accuracy("planned") is None
    assert Tally(planned=0).complete


def test_a_tally_accounts_for_every_planned_episode() -> None:
    """H1: expected = pass + fail + infra + missing, or it is refused."""
    with pytest.raises(ValidationError, match="10 episodes were planned, but 9 are accounted for"):
        Tally(planned=10, success=5, failure=2, infra=1, missing=1)


def test_tallies_add_up() -> None:
    total = Tally(planned=3, success=1, failure=1, infra=1) + Tally(planned=2, success=1, missing=1)
    assert total == Tally(planned=5, success=2, failure=1, infra=1, missing=1)


def test_train_epochs_are_counted_by_position() -> None:
    """R6: the second epoch of a stream of 3 is positions 3 to 5."""
    found = tally([row(position, phase="train") for position in (3, 4)], range(3, 6))
    assert (found.success, found.missing) == (2, 1)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([row(0), row(4)], "position 4 is not among the 3 planned"),
        ([row(0), row(0, attempt="a2")], "position '0' has 2 rows"),
        ([row(0, task="x"), row(1, task="x")], "task 'x' has 2 rows"),
    ],
)
def test_stale_and_doubled_rows_are_refused(found: list[EpisodeRecord], message: str) -> None:
    """H3: they would give rates above 1."""
    with pytest.raises(RunDirectoryError, match=message):
        tally(found, range(3))


@given(st.lists(st.sampled_from([*Outcome, None]), max_size=12), st.data())
def test_counting_does_not_depend_on_the_order_of_rows(ends: list[Outcome | None], data: st.DataObject) -> None:
    """H1: every planned episode is in exactly one count."""
    found = [row(position, end) for position, end in enumerate(ends) if end is not None]
    forward = tally(found, range(len(ends)))
    assert tally(data.draw(st.permutations(found)), range(len(ends))) == forward
    assert forward.missing == ends.count(None)
    assert forward.success == ends.count(Outcome.SUCCESS)


# --- rows that count -----------------------------------------------------------------------------------------


def test_errored_rows_are_owed_and_identical_copies_count_once() -> None:
    """H3: 3 good rows, one of them twice, and 2 infra rows: exactly 2 tasks are still owed."""
    errored = [row(3, Outcome.INFRA, final=False), row(4, Outcome.INFRA)]
    found = counted_rows([row(0), row(1), row(2), row(1), *errored])

    assert tally(found.values(), range(5)) == Tally(planned=5, success=3, infra=2)


def test_attempts_before_the_final_one_are_history() -> None:
    """H3: attempts are kept, and none of them counts beside the final row."""
    history = [row(0, Outcome.INFRA, phase="train", attempt=f"a{k}", final=False) for k in range(2)]
    final = row(0, Outcome.FAILURE, phase="train", attempt="a2")
    assert list(counted_rows([*history, final, history[0]]).values()) == [final]
    assert list(counted_rows(history).values()) == [history[1]]


@pytest.mark.parametrize("phase", ["train", "eval"])
def test_two_different_final_rows_of_a_unit_are_an_error(phase: str) -> None:
    """H3: duplicates are an error unless identical."""
    with pytest.raises(RunDirectoryError, match=r"two final rows that differ \(attempts 'a1' and 'a2'\)"):
        counted_rows([row(0, phase=phase), row(0, Outcome.FAILURE, phase=phase, attempt="a2")])


def test_resuming_eval_replaces_an_infra_row() -> None:
    """Design "Outcomes": resume runs infra of eval again; the score counts, wherever the infra rows stand."""
    infra, again, scored = (
        row(0, Outcome.INFRA),
        row(0, Outcome.INFRA, attempt="a2"),
        row(0, attempt="a3"),
    )
    assert list(counted_rows([infra, again]).values()) == [again]
    assert list(counted_rows([infra, scored]).values()) == [scored]
    assert list(counted_rows([scored, infra]).values()) == [scored]


def test_a_train_position_committed_empty_stays() -> None:
    """Design "Outcomes": a second final row there means that the records and the journal have parted."""
    with pytest.raises(RunDirectoryError, match="two final rows that differ"):
        counted_rows([row(0, Outcome.INFRA, phase="train"), row(0, phase="train", attempt="a2")])


# --- Avg@k ----------------------------------------------------------------------------------------------

H1 = {
    0: Tally(planned=10, success=5, failure=5),
    1: Tally(planned=10, success=3, failure=3, infra=4),
}
"""H1's case: ordering 1 done, ordering 2 with 4 crashed, ordering 3 absent."""


def test_incomplete_orderings_are_not_averaged() -> None:
    """H1: no average of three is printed; the incomplete ones are named."""
    assert average(H1, range(3)) == Average(orderings=(0, 1, 2), used=(), incomplete=(1, 2), mean=None, sd=None)
    assert average(H1, range(3)).cell is None


def test_orderings_are_planned_by_index() -> None:
    """R4: a sweep of orderings 1 and 4 misses neither 0 nor 2."""
    found = average({4: H1[0], 1: H1[0]}, (4, 1))
    assert (found.orderings, found.used, found.incomplete) == ((1, 4), (1, 4), ())
    assert average({4: H1[0]}, (4, 1)).incomplete == (1,)


def test_a_partial_average_says_what_is_in_it() -> None:
    """H1: with the flag, what there is is averaged, each ordering by its own n."""
    found = average(H1, range(3), partial=True)
    assert (found.used, found.incomplete) == ((0, 1), (1, 2))
    assert found.mean == Fraction(1, 2)

    over_all = average(H1, range(3), denominator="planned", partial=True)
    assert over_all.mean == (Fraction(5, 10) + Fraction(3, 10)) / 2


def test_an_ordering_that_scored_little_weighs_as_much_as_one_that_scored_all() -> None:
    """R4: Avg@k is the mean of the accuracies, 5/10 and 3/3, and not the 8 of 13 that were solved in all."""
    found = average({0: H1[0], 1: Tally(planned=10, success=3, infra=7)}, (0, 1), partial=True)
    assert found.mean == Fraction(3, 4)


def test_an_ordering_without_a_score_is_in_no_partial_average() -> None:
    found = average({0: Tally(planned=4, infra=4), 1: H1[0]}, (0, 1), partial=True)
    assert (found.used, found.mean, found.sd) == ((1,), Fraction(1, 2), None)
    assert average({}, (0, 1), partial=True).mean is None


def test_an_ordering_that_was_not_planned_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"orderings \[0, 2\] are planned \(0-based\), but there are results of \[3\]"
    ):
        average({0: H1[0], 3: H1[0]}, (0, 2))


@given(st.permutations([19, 20, 18, 40]))
def test_the_average_does_not_depend_on_which_ordering_is_which(solved: list[int]) -> None:
    tallies = {r: Tally(planned=120, success=k, failure=120 - k) for r, k in enumerate(solved)}
    found = average(tallies, range(4))
    assert found.mean == Fraction(97, 480)
    assert found.sd == sample_sd([Fraction(k, 120) for k in (18, 19, 20, 40)])
