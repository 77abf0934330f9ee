"""When a call may be sent to a backbone that has limits: rates, calls in flight, and a slow-down that all share.

A provider counts requests and tokens over a minute, a server of one's own has room for so many calls, and one
that answers 429 or 503 wants everybody to wait, not only the caller who was told (A9). A ``Pace`` says how long
the next call must wait; it sleeps nowhere and reads no clock. Durations are seconds, ``now`` is any clock's
reading in seconds.

Rates are token buckets that hold a twelfth of a minute's allowance and refill so slowly that no window of 60
seconds exceeds the allowance. What a reply costs in tokens is known afterwards: a call is let in while the bucket
is not empty, and the rest of its cost is owed, so a window may exceed the allowance by what was in flight.

A clock that is set back (a server's wall clock may be) makes nobody wait for the time that it repeats.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import Field

from chime_dist.core.frozen import Frozen
from chime_dist.core.retry import RetryPolicy

MINUTE_S = 60.0
BURST_SHARE = 12
"""A bucket holds this part of a minute's allowance."""
LONGEST_ASKED_S = 600.0
"""A server that asks all callers to wait longer is asked again after this time: it may have been a mistake."""
RAMP_S = 2.0
"""So long after a pause calls are let in one by one."""
RAMP_GAP_S = 0.05
"""The gap between them."""
ROOM_POLL_S = 0.05
"""How soon to ask again for room in flight."""
SHORTEST_WAIT_S = 1e-3
"""Less is no wait: it may be what rounding leaves."""


class PaceLimits(Frozen):
    """What a backbone takes; None is no limit."""

    requests_per_minute: int | None = Field(default=None, ge=2)
    tokens_per_minute: int | None = Field(default=None, ge=2)
    """Prompt and output together."""
    max_in_flight: int | None = Field(default=None, ge=1)
    """Calls at a time."""

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return (self.requests_per_minute, self.tokens_per_minute, self.max_in_flight) != (None, None, None)

    def share(self, callers: int) -> PaceLimits:
        """What one of ``callers`` that cannot ask the others may take; each may take the least there can be."""

        def part(limit: int | None, least: int) -> int | None:
            return None if limit is None else max(least, limit // callers)

        return PaceLimits(
            requests_per_minute=part(self.requests_per_minute, 2),
            tokens_per_minute=part(self.tokens_per_minute, 2),
            max_in_flight=part(self.max_in_flight, 1),
        )


class Pauses(Frozen):
    """How long everybody waits after a slow-down; a server's Retry-After may ask for more."""

    first_s: float = Field(default=1.0, ge=0)
    """After the first in a row; it doubles with every further one."""
    longest_s: float = Field(default=60.0, ge=0)

    @property
    def most_s(self) -> float:
        """No pause is longer, whoever asked for it."""
        return max(self.longest_s, LONGEST_ASKED_S)

    @classmethod
    def beside(cls, retry: RetryPolicy) -> Pauses:
        """[U] A fiftieth and a tenth of what a refused caller waits itself: 1 and 60 s beside R37's 50 and 600."""
        return cls(first_s=retry.base_interval_s / 50, longest_s=retry.cap_s / 10)

    def after(self, slow_downs: int) -> float:
        """Seconds after the ``slow_downs``-th in a row (1-based)."""
        # Bounded, because 2.0 to a four-digit power does not fit a float.
        return min(self.longest_s, self.first_s * 2.0 ** min(slow_downs - 1, 60))


@dataclass(slots=True)
class Bucket:
    """A rate. ``level`` may be negative: what is owed."""

    capacity: float
    per_s: float
    level: float
    at: float

    @classmethod
    def of(cls, per_minute: int, now: float) -> Bucket:
        """A full bucket; no 60 seconds let more than ``per_minute`` through."""
        capacity = max(1.0, per_minute / BURST_SHARE)
        return cls(capacity, (per_minute - capacity) / MINUTE_S, capacity, now)

    def wait_s(self, now: float, need: float) -> float:
        """Seconds until the level reaches ``need``; 0 where it has."""
        self.level = min(self.capacity, self.level + max(0.0, now - self.at) * self.per_s)
        self.at = now
        return max(0.0, need - self.level) / self.per_s

    def take(self, amount: float) -> None:
        """Take out, or put back where ``amount`` is negative; never above the capacity."""
        self.level = min(self.capacity, self.level - amount)


@dataclass(slots=True)
class Pace:
    """The state of one backbone's limits. ``enter`` and ``leave`` are its only transitions."""

    limits: PaceLimits
    now: float
    """Where its clock stands when it is made."""
    pausing: Pauses = field(default_factory=Pauses)
    paused_until: float = field(init=False, default=float("-inf"))
    pauses: int = field(init=False, default=0)
    """Slow-downs since the last call that was answered."""
    _entered_at: float = field(init=False, default=float("-inf"))
    _in_flight: dict[str, float] = field(init=False, default_factory=dict)
    _requests: Bucket | None = field(init=False, default=None)
    _tokens: Bucket | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.limits.requests_per_minute is not None:
            self._requests = Bucket.of(self.limits.requests_per_minute, self.now)
        if self.limits.tokens_per_minute is not None:
            self._tokens = Bucket.of(self.limits.tokens_per_minute, self.now)

    def enter(self, now: float, call: str, tokens: int, lasts_s: float) -> float:
        """0 lets ``call`` in; anything else is how long to wait before asking again.

        ``tokens`` is what the prompt is thought to cost. A call that never leaves (its process was killed) stops
        counting ``lasts_s`` after it entered. Asked again for a call that is in, it changes nothing.
        """
        if self._in_flight.get(call, now) > now:
            return 0.0
        self._in_flight.pop(call, None)
        wait = self._wait_s(now)
        if wait > 0:
            return wait
        if self._requests is not None:
            self._requests.take(1)
        if self._tokens is not None:
            self._tokens.take(tokens)
        self._in_flight[call] = now + lasts_s
        self._entered_at = now
        return 0.0

    def leave(self, now: float, call: str, tokens_beyond: int, slow_down: float | None, *, answered: bool) -> None:
        """``call`` ended and cost ``tokens_beyond`` more than was thought (less, where negative).

        A server that said 429 or 503 gives ``slow_down``, what it asked for in seconds, 0 where it asked for
        nothing; None for any other end. Callers that were refused together count as one slow-down. A call that was
        ``answered`` ends the row of slow-downs, because the server does its work again; one that a timeout or a
        server's error ended tells neither. A call that is not in changes nothing.
        """
        if self._in_flight.pop(call, None) is None:
            return
        if self._tokens is not None:
            self._tokens.take(tokens_beyond)
        if slow_down is None:
            if answered and now >= self.paused_until:
                self.pauses = 0
            return
        pause = min(slow_down, self.pausing.most_s)
        if now >= self.paused_until:
            self.pauses += 1
            pause = max(pause, self.pausing.after(self.pauses))
        self.paused_until = max(self.paused_until, now + pause)

    def _wait_s(self, now: float) -> float:
        self.paused_until = min(self.paused_until, now + self.pausing.most_s)
        waits = [self.paused_until - now]
        if now < self.paused_until + RAMP_S:
            waits.append(min(self._entered_at, now) + RAMP_GAP_S - now)
        if self._requests is not None:
            waits.append(self._requests.wait_s(now, 1.0))
        if self._tokens is not None:
            waits.append(self._tokens.wait_s(now, 0.0))
        if self.limits.max_in_flight is not None:
            self._in_flight = {call: until for call, until in self._in_flight.items() if until > now}
            waits.append(ROOM_POLL_S if len(self._in_flight) >= self.limits.max_in_flight else 0.0)
        wait = max(waits)
        return wait if wait >= SHORTEST_WAIT_S else 0.0
