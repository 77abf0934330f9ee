"""When a failed call is tried again, and how long anything may take: the retry rule of R37 as pure decisions.

The spec asks for a library for retries of what we do not own; this rule stays here because neither stamina nor
tenacity can cut each attempt's own timeout to what is left of an outer wall-clock budget while a server's
``Retry-After`` is a floor under the wait, and because as a pure function it is tested without a clock.

Nothing here sleeps, reads a clock or draws a random number: callers pass the seconds that remain and a uniform
draw. All durations are seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from pydantic import Field

from chime_dist.core.frozen import Frozen

_RETRIABLE_CLIENT_ERRORS = frozenset({408, 409, 429})


@dataclass(frozen=True, slots=True)
class Attempt:
    """Send the request now and cut it off after ``timeout_s`` of wall clock."""

    timeout_s: float
    bounded_by_budget: bool
    """Whether the caller's budget, not the policy's own timeout, is what will cut it off."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Sleep ``seconds``, then ask ``RetryPolicy.attempt`` again."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop; the last error stands."""

    reason: Literal["not_retriable", "retries_spent", "budget_spent"]


class RetryPolicy(Frozen):
    """Limits of one logical call (R37, S0 Table 7)."""

    timeout_s: float = Field(default=2400.0, gt=0)
    """Wall clock of one attempt, connecting and reading the body included."""
    max_retries: int = Field(default=15, ge=0)
    """Attempts after the first."""
    base_interval_s: float = Field(default=50.0, ge=0)
    """Wait before the first retry; it doubles with every further one."""
    cap_s: float = Field(default=600.0, ge=0)
    """Longest wait that we choose ourselves; a server's Retry-After may ask for more."""
    jitter: bool = True
    """Spread the waits of many clients that fail together (A9)."""

    @property
    def worst_case_s(self) -> float:
        """How long one call could take if no budget bounded it (A7: 45,750 s with the paper's figures)."""
        waits = sum(self._interval_s(retry) for retry in range(self.max_retries))
        return (1 + self.max_retries) * self.timeout_s + waits

    def attempt(self, remaining_s: float) -> Attempt | GiveUp:
        """The next attempt inside a budget of which ``remaining_s`` are left."""
        if remaining_s <= 0:
            return GiveUp("budget_spent")
        return Attempt(min(self.timeout_s, remaining_s), bounded_by_budget=remaining_s < self.timeout_s)

    def after_failure(
        self, failures: int, *, retriable: bool, retry_after_s: float | None, remaining_s: float, u: float
    ) -> Wait | GiveUp:
        """What follows the ``failures``-th failed attempt (1-based).

        ``u`` is a uniform draw from [0, 1). A wait that would use up the budget is not begun.
        """
        if not retriable:
            return GiveUp("not_retriable")
        if failures > self.max_retries:
            return GiveUp("retries_spent")
        seconds = self.wait_s(failures - 1, u, retry_after_s)
        return GiveUp("budget_spent") if seconds >= remaining_s else Wait(seconds)

    def wait_s(self, retry: int, u: float, retry_after_s: float | None = None) -> float:
        """Seconds to wait before retry number ``retry`` (0-based).

        Without jitter ``max(min(cap, base * 2**retry), Retry-After)``. With jitter the wait is uniform between
        half the interval and the interval; where Retry-After is above that, between Retry-After and half as
        much again, so that clients which were told the same number do not come back together.
        """
        interval = self._interval_s(retry)
        floor = max(retry_after_s or 0.0, 0.0)
        if not self.jitter:
            return max(interval, floor)
        low = max(interval / 2, floor)
        high = max(interval, floor * 1.5)
        return low + u * (high - low)

    def _interval_s(self, retry: int) -> float:
        # Bounded, because 2.0 to a four-digit power does not fit a float.
        doublings = min(retry, 60)
        return min(self.cap_s, self.base_interval_s * 2.0**doublings)


def retriable_status(status: int) -> bool:
    """Whether an HTTP status alone promises that the same request may succeed later (R37)."""
    return status in _RETRIABLE_CLIENT_ERRORS or status >= 500


def retry_after_seconds(header: str | None, now: datetime) -> float | None:
    """Seconds that a ``Retry-After`` header asks for, from ``now`` (UTC with offset).

    Reads both forms, a number of seconds and an HTTP date. None where it is absent or cannot be read; finite and
    never negative.
    """
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return seconds if math.isfinite(seconds := float(text)) else None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=now.tzinfo)
    return max(0.0, (moment - now).total_seconds())
