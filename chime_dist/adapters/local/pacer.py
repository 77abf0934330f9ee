"""The pace of one backbone inside one process."""

from __future__ import annotations

from chime_dist.core.pacing import Pace, PaceLimits, Pauses
from chime_dist.ports import Clock


class LocalPacer:
    """Implements ``ports.Pacer``; everything that calls the backbone in this process shares one."""

    def __init__(self, clock: Clock, limits: PaceLimits, pausing: Pauses) -> None:
        self._clock = clock
        self._pace = Pace(limits, clock.monotonic(), pausing)

    async def enter(self, call: str, tokens: int, lasts_s: float) -> float:
        """See ``ports.Pacer``."""
        return self._pace.enter(self._clock.monotonic(), call, tokens, lasts_s)

    async def leave(self, call: str, tokens_beyond: int, slow_down: float | None, *, answered: bool) -> None:
        """See ``ports.Pacer``."""
        self._pace.leave(self._clock.monotonic(), call, tokens_beyond, slow_down, answered=answered)
