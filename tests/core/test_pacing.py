"""When a call may be sent to a backbone with limits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from chime_dist.core.pacing import LONGEST_ASKED_S, RAMP_GAP_S, ROOM_POLL_S, Pace, PaceLimits, Pauses
from chime_dist.core.retry import RetryPolicy


def let_in(pace: Pace, now: float, calls: int, tokens: int = 0) -> list[float]:
    """When each of ``calls`` callers who ask again as told gets in; none of them leaves."""
    instants = []
    for call in range(calls):
        while (wait := pace.enter(now, str(call), tokens, 1e9)) > 0:
            now += wait
        instants.append(now)
    return instants


def test_without_limits_nobody_waits() -> None:
    assert let_in(Pace(PaceLimits(), 0.0), 5.0, 100) == [5.0] * 100
    assert not PaceLimits().any
    assert PaceLimits(max_in_flight=3).any


@settings(deadline=None)
@given(per_minute=st.integers(2, 600))
def test_no_minute_sees_more_requests_than_allowed(per_minute: int) -> None:
    """The rate holds for every window of 60 seconds, the first burst included, and is nearly used up."""
    instants = let_in(Pace(PaceLimits(requests_per_minute=per_minute), 0.0), 0.0, 3 * per_minute)
    for first, beyond in zip(instants, instants[per_minute:], strict=False):
        # A hair less than a minute: at equality the next allowance has just begun.
        assert beyond - first > 59.999
    assert instants[-1] <= 3 * 60 / (1 - 1 / min(per_minute, 12)) + 60


def test_what_a_reply_cost_beyond_the_guess_is_paid_by_those_who_come_after() -> None:
    """120 tokens a minute: a bucket of 10 that refills at 110/60 a second."""
    pace = Pace(PaceLimits(tokens_per_minute=120), 0.0)
    assert pace.enter(0.0, "a", 10, 60.0) == 0.0
    pace.leave(0.0, "a", 45, None, answered=True)
    assert pace.enter(0.0, "b", 1, 60.0) == pytest.approx(45 * 60 / 110)
    pace.leave(0.0, "never entered", 1000, None, answered=True)
    assert pace.enter(0.0, "b", 1, 60.0) == pytest.approx(45 * 60 / 110)


def test_tokens_that_were_not_spent_are_given_back_up_to_the_bucket() -> None:
    pace = Pace(PaceLimits(tokens_per_minute=120), 0.0)
    assert pace.enter(0.0, "a", 10, 60.0) == 0.0
    pace.leave(0.0, "a", -500, None, answered=True)
    assert pace.enter(0.0, "b", 11, 60.0) == 0.0
    assert pace.enter(0.0, "c", 1, 60.0) == pytest.approx(60 / 110)


def test_room_in_flight_is_kept_and_a_call_that_never_leaves_frees_its_place() -> None:
    pace = Pace(PaceLimits(max_in_flight=2), 0.0)
    assert [pace.enter(0.0, call, 0, 30.0) for call in "aab"] == [0.0, 0.0, 0.0]
    assert pace.enter(0.0, "c", 0, 30.0) == ROOM_POLL_S
    pace.leave(1.0, "a", 0, None, answered=True)
    assert pace.enter(1.0, "c", 0, 30.0) == 0.0
    assert pace.enter(29.0, "d", 0, 30.0) == ROOM_POLL_S
    assert pace.enter(30.0, "d", 0, 30.0) == 0.0


def test_callers_that_are_refused_together_are_one_slow_down() -> None:
    """A9: 16 answers of 503 pause the backbone once, for a second; a later one for two, and so on to a minute."""
    pace = Pace(PaceLimits(), 0.0)
    for call in range(16):
        pace.enter(0.0, str(call), 0, 60.0)
    for call in range(16):
        pace.leave(0.0, str(call), 0, 0.0, answered=False)
    assert pace.enter(0.0, "next", 0, 60.0) == 1.0
    now = 0.0
    for pause in (2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0):
        now = pace.paused_until + 10
        assert pace.enter(now, "one", 0, 60.0) == 0.0
        pace.leave(now, "one", 0, 0.0, answered=False)
        assert pace.paused_until == now + pause
    assert pace.enter(now, "late", 0, 60.0) == 60.0


def test_an_answer_ends_the_doubling_and_one_from_before_the_pause_does_not() -> None:
    pace = Pace(PaceLimits(), 0.0)
    for call in ("refused", "slow"):
        pace.enter(0.0, call, 0, 60.0)
    pace.leave(0.0, "refused", 0, 0.0, answered=False)
    pace.leave(0.5, "slow", 0, None, answered=True)
    assert pace.pauses == 1
    assert pace.enter(1.0, "good", 0, 60.0) == 0.0
    pace.leave(1.0, "good", 0, None, answered=True)
    assert pace.pauses == 0


def test_a_call_that_broke_off_does_not_end_the_doubling() -> None:
    """A9: a server that times out between two refusals has not recovered; each refusal doubles the pause."""
    pace = Pace(PaceLimits(), 0.0)
    now = 0.0
    for pause in (1.0, 2.0, 4.0):
        assert pace.enter(now, "refused", 0, 60.0) == 0.0
        pace.leave(now, "refused", 0, 0.0, answered=False)
        assert pace.paused_until == now + pause
        now += pause + 10
        assert pace.enter(now, "broken", 0, 60.0) == 0.0
        pace.leave(now, "broken", 0, None, answered=False)
        now += 10


@pytest.mark.parametrize(("callers", "share"), [(1, (100, 1000, 8)), (3, (33, 333, 2)), (1000, (2, 2, 1))])
def test_a_caller_that_cannot_ask_the_others_takes_its_share(callers: int, share: tuple[int, int, int]) -> None:
    part = PaceLimits(requests_per_minute=100, tokens_per_minute=1000, max_in_flight=8).share(callers)
    assert (part.requests_per_minute, part.tokens_per_minute, part.max_in_flight) == share
    assert not PaceLimits().share(callers).any


def test_retry_after_is_a_floor_and_may_come_while_all_wait() -> None:
    """A9, R37."""
    pace = Pace(PaceLimits(), 0.0)
    for call in ("one", "two"):
        pace.enter(0.0, call, 0, 600.0)
    pace.leave(0.0, "one", 0, 2.0, answered=False)
    assert pace.paused_until == 2.0
    pace.leave(0.0, "two", 0, 300.0, answered=False)
    assert pace.paused_until == 300.0


@pytest.mark.parametrize("asked", [601.0, 1e9, float("inf")])
def test_a_server_that_asks_everybody_to_wait_for_hours_is_asked_again_after_ten_minutes(asked: float) -> None:
    """A9: one reply must not end a launch, and with it every resume, that shares the pause."""
    pace = Pace(PaceLimits(), 0.0)
    pace.enter(0.0, "refused", 0, 60.0)
    pace.leave(0.0, "refused", 0, asked, answered=False)
    assert pace.enter(0.0, "next", 0, 60.0) == LONGEST_ASKED_S
    assert pace.enter(LONGEST_ASKED_S, "next", 0, 60.0) == 0.0


def test_a_clock_that_is_set_back_by_an_hour_costs_no_hour() -> None:
    """A9: Redis goes by its host's wall clock."""
    pace = Pace(PaceLimits(requests_per_minute=24), 10_000.0)
    assert let_in(pace, 10_000.0, 2) == [10_000.0] * 2
    back = 6_400.0
    assert pace.enter(back, "third", 0, 1e9) == pytest.approx(60 / 22)
    again = back + 60 / 22
    assert pace.enter(again, "third", 0, 1e9) == 0.0
    pace.leave(again, "third", 0, 300.0, answered=False)
    assert pace.enter(again - 3_600, "late", 0, 60.0) == LONGEST_ASKED_S
    assert pace.enter(again - 3_600 + LONGEST_ASKED_S, "late", 0, 60.0) <= RAMP_GAP_S + 1e-6


def test_after_a_pause_callers_come_one_by_one() -> None:
    """A9: no more than a few in the same 100 ms."""
    pace = Pace(PaceLimits(), 0.0)
    pace.enter(0.0, "refused", 0, 60.0)
    pace.leave(0.0, "refused", 0, 2.0, answered=False)
    instants = let_in(pace, 0.0, 16)
    assert instants == pytest.approx([2.0 + RAMP_GAP_S * caller for caller in range(16)])


@pytest.mark.parametrize("limits", [{"requests_per_minute": 1}, {"tokens_per_minute": 0}, {"max_in_flight": 0}])
def test_limits_that_let_nothing_through_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        PaceLimits(**limits)


def test_pauses_are_in_proportion_to_what_a_refused_caller_waits_itself() -> None:
    """R37: 50 and 600 s give 1 and 60 s; whoever configures shorter waits gets shorter pauses."""
    assert Pauses.beside(RetryPolicy()) == Pauses(first_s=1.0, longest_s=60.0)
    brief = Pauses.beside(RetryPolicy(base_interval_s=1.0, cap_s=2.0))
    assert [brief.after(slow_downs) for slow_downs in (1, 2, 3, 4, 5000)] == pytest.approx(
        [0.02, 0.04, 0.08, 0.16, 0.2]
    )
