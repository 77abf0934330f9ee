"""When something that keeps ending is started again. Pure: it knows neither clock nor process."""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
STEADY_S = 120.0
"""What ran this long was well: its end counts as the first."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often something ended without having been well for ``STEADY_S`` in between.

    There is no last attempt: a backbone that stays away pauses its launch, which is the engine's decision.
    """

    in_a_row: int = 0
    total: int = 0

    def after(self, lasted_s: float) -> tuple[Restarts, float]:
        """The state after an end, ``lasted_s`` seconds after the start, and the seconds to wait before the next.

        1, 2, 4, ... up to 60 seconds.
        """
        row = 1 if lasted_s >= STEADY_S else self.in_a_row + 1
        # The exponent is bounded, for 2.0**2000 is an error.
        wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(row - 1, 16))
        return replace(self, in_a_row=row, total=self.total + 1), wait_s
