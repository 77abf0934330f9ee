"""The retry rule of R37: what is tried again, after how long, and what bounds it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.core.retry import Attempt, GiveUp, RetryPolicy, Wait, retriable_status, retry_after_seconds

PRINTED = RetryPolicy()
EXACT = RetryPolicy(jitter=False)


def test_the_defaults_are_those_of_table_7() -> None:
    """R37: 2,400 s, 15 retries, 50 s, capped at 600 s."""
    assert (PRINTED.timeout_s, PRINTED.max_retries, PRINTED.base_interval_s, PRINTED.cap_s) == (2400, 15, 50, 600)


@pytest.mark.parametrize(
    ("retry", "seconds"), [(0, 50), (1, 100), (2, 200), (3, 400), (4, 600), (14, 600), (5000, 600)]
)
def test_the_wait_doubles_up_to_its_cap(retry: int, seconds: float) -> None:
    """R37: 50 * 2^k capped at 600 s."""
    assert EXACT.wait_s(retry, u=0.3) == seconds


@pytest.mark.parametrize(("retry_after", "seconds"), [(None, 50), (2, 50), (300, 300), (3000, 3000)])
def test_retry_after_is_a_floor_under_the_wait(retry_after: float | None, seconds: float) -> None:
    """R37, A9: Retry-After may lengthen a wait, beyond our cap too, and never shortens it."""
    assert EXACT.wait_s(0, u=0.0, retry_after_s=retry_after) == seconds


@given(
    retry=st.integers(0, 40),
    u=st.floats(0, 1, exclude_max=True),
    retry_after=st.none() | st.floats(0, 5000),
)
def test_a_jittered_wait_stays_inside_its_bounds(retry: int, u: float, retry_after: float | None) -> None:
    """R37: never under the server's floor or half our interval, never over the larger of the two times 1.5."""
    interval, floor = EXACT.wait_s(retry, 0.0), retry_after or 0.0
    wait = PRINTED.wait_s(retry, u, retry_after)
    assert max(interval / 2, floor) <= wait <= max(interval, floor * 1.5)


def test_sixteen_clients_told_the_same_retry_after_come_back_spread_out() -> None:
    """A9: 503 with Retry-After 2 to 16 clients; no more than a few return in the same 100 ms."""
    policy = RetryPolicy(base_interval_s=0.05)
    waits = [policy.wait_s(0, u=client / 16, retry_after_s=2.0) for client in range(16)]
    per_100_ms = [sum(start <= w < start + 0.1 for w in waits) for start in (2.0 + i / 10 for i in range(10))]
    assert min(waits) >= 2.0
    assert max(per_100_ms) <= 2


@pytest.mark.parametrize(
    ("remaining", "expected"),
    [
        (3600.0, Attempt(2400.0, bounded_by_budget=False)),
        (2400.0, Attempt(2400.0, bounded_by_budget=False)),
        (17.5, Attempt(17.5, bounded_by_budget=True)),
        (0.0, GiveUp("budget_spent")),
        (-1.0, GiveUp("budget_spent")),
    ],
)
def test_an_attempt_is_cut_to_what_is_left_of_the_budget(remaining: float, expected: Attempt | GiveUp) -> None:
    """R37, A7c: every attempt is bounded by the episode's remaining deadline."""
    assert PRINTED.attempt(remaining) == expected


@pytest.mark.parametrize(
    ("failures", "retriable", "remaining", "expected"),
    [
        (1, True, 3600.0, Wait(50.0)),
        (2, True, 3600.0, Wait(100.0)),
        (1, False, 3600.0, GiveUp("not_retriable")),
        (15, True, 3600.0, Wait(600.0)),
        (16, True, 3600.0, GiveUp("retries_spent")),
        (1, True, 50.0, GiveUp("budget_spent")),
        (1, True, 50.1, Wait(50.0)),
    ],
)
def test_what_follows_a_failure(failures: int, retriable: bool, remaining: float, expected: Wait | GiveUp) -> None:
    """R37: at most 15 retries, and no wait that the budget cannot pay for."""
    decision = EXACT.after_failure(failures, retriable=retriable, retry_after_s=None, remaining_s=remaining, u=0.0)
    assert decision == expected


@given(
    policy=st.builds(
        RetryPolicy,
        timeout_s=st.floats(0.1, 3000),
        max_retries=st.integers(0, 15),
        base_interval_s=st.floats(0, 100),
        cap_s=st.floats(0, 600),
        jitter=st.booleans(),
    ),
    budget=st.floats(0, 4000),
    draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=16, max_size=16),
    retry_after=st.none() | st.floats(0, 400),
)
def test_attempts_and_waits_together_never_exceed_the_budget(
    policy: RetryPolicy, budget: float, draws: list[float], retry_after: float | None
) -> None:
    """R37, A7b, A7c: even if every attempt runs into its timeout, the sum fits and the count is bounded."""
    spent, failures = 0.0, 0
    while isinstance(attempt := policy.attempt(budget - spent), Attempt):
        spent += attempt.timeout_s
        failures += 1
        then = policy.after_failure(
            failures,
            retriable=True,
            retry_after_s=retry_after,
            remaining_s=budget - spent,
            u=draws[(failures - 1) % 16],
        )
        if isinstance(then, GiveUp):
            break
        spent += then.seconds
    assert spent <= budget * (1 + 1e-12)
    assert failures <= policy.max_retries + 1


def test_the_worst_case_tells_how_far_the_printed_figures_exceed_an_episode() -> None:
    """A7c: 16 attempts of 2,400 s alone are more than ten times tau2's 3,600 s."""
    assert PRINTED.worst_case_s == 16 * 2400 + (50 + 100 + 200 + 400) + 11 * 600
    assert RetryPolicy(max_retries=0).worst_case_s == 2400


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_statuses_that_are_retried(status: int) -> None:
    """R37."""
    assert retriable_status(status)


@pytest.mark.parametrize("status", [200, 301, 400, 401, 403, 404, 413, 422])
def test_statuses_that_are_not_retried(status: int) -> None:
    """R37: 4xx other than 408, 409 and 429 are final."""
    assert not retriable_status(status)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("2", 2.0),
        (" 1.5 ", 1.5),
        ("Fri, 06 Nov 2026 10:00:30 GMT", 30.0),
        ("Fri, 06 Nov 2026 10:00:30 -0000", 30.0),
        ("Fri, 06 Nov 2026 09:00:00 GMT", 0.0),
        ("-3", None),
        ("soon", None),
        ("", None),
        ("²", None),
        ("9" * 400, None),
        (f"12 Nov {'9' * 20} 10:00:30 GMT", None),
    ],
)
def test_both_forms_of_retry_after_are_read(header: str | None, seconds: float | None) -> None:
    """R37: a number of seconds or an HTTP date; anything else is as if absent."""
    now = datetime(2026, 11, 6, 10, 0, 0, tzinfo=UTC)
    assert retry_after_seconds(header, now) == seconds
