"""Time, so that tests can own it."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Time, so that tests can own it."""

    def now(self) -> datetime:
        """UTC with offset."""
        ...

    def monotonic(self) -> float:
        """Seconds; only differences mean anything, and only inside one process."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait at least ``seconds``."""
        ...
