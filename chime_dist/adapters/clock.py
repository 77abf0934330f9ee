"""The machine's own time."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime


class SystemClock:
    """Implements ``ports.Clock``."""

    def now(self) -> datetime:
        """See ``ports.Clock``."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """See ``ports.Clock``."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """See ``ports.Clock``."""
        await asyncio.sleep(seconds)
