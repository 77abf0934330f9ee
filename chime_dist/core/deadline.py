"""A wall-clock budget that shrinks, over any monotonic clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """``at`` is a reading of ``monotonic`` in seconds."""

    at: float
    monotonic: Callable[[], float]

    @classmethod
    def after(cls, seconds: float, monotonic: Callable[[], float]) -> Deadline:
        """A deadline ``seconds`` from now."""
        return cls(monotonic() + seconds, monotonic)

    @property
    def remaining_s(self) -> float:
        """Seconds left; never below 0."""
        return max(0.0, self.at - self.monotonic())

    @property
    def passed(self) -> bool:
        """Whether nothing is left."""
        return self.remaining_s <= 0.0
