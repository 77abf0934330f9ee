"""When what ended is started again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chime_dist.adapters.vllm.restarts import FIRST_WAIT_S, LONGEST_WAIT_S, STEADY_S, Restarts


def waits(lasted: list[float]) -> list[float]:
    restarts, found = Restarts(), []
    for lasted_s in lasted:
        restarts, wait_s = restarts.after(lasted_s)
        found.append(wait_s)
    return found


def test_waits_double_up_to_a_minute() -> None:
    assert waits([0.0] * 8) == [1, 2, 4, 8, 16, 32, 60, 60]


def test_what_was_well_for_long_is_started_again_at_once() -> None:
    assert waits([0.0, 0.0, 0.0, STEADY_S, 0.0]) == [1, 2, 4, 1, 2]


@given(st.lists(st.floats(0, 10_000), max_size=3000))
def test_every_end_is_counted_and_every_wait_is_bounded(lasted: list[float]) -> None:
    restarts = Restarts()
    for lasted_s in lasted:
        restarts, wait_s = restarts.after(lasted_s)
        assert FIRST_WAIT_S <= wait_s <= LONGEST_WAIT_S
        assert 1 <= restarts.in_a_row <= restarts.total
    assert restarts.total == len(lasted)
