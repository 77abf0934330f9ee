"""What a launch spends while its driver runs, counted from its files, and that it pauses at its limits.

Nothing is killed for it: whoever is told admits no more, and the open episodes end. So what they still need is
spent beyond the limit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.core.spending import Level, Limits, Spent, levels
from chime_dist.errors import RunDirectoryError
from chime_dist.wiring.following import Follower

log = structlog.get_logger()

LOOK_EVERY_S = 1.0
"""Time between two looks, in seconds."""


class Bookkeeper:
    """The driver's; earlier drivers of the launch are counted in."""

    def __init__(self, launch: LaunchDirectory, limits: Limits, since: datetime) -> None:
        """``since``: UTC, when this driver took the launch."""
        self._follower = Follower(launch)
        self._counting = threading.Lock()
        """Held by a count, which its thread ends although nobody waits for it any more."""
        self._limits = limits
        self._since = since
        self._warned: set[str] = set()
        self._complaint = ""
        self.spent: Spent | None = None
        """As of the last look; None before the first."""
        self.reached: Level | None = None
        """The limit for which the launch pauses, if it pauses for one."""

    async def look(self) -> str | None:
        """Count what is new; the answer is why the launch should pause, or None.

        Files that cannot be read are a reason only where there is a limit: it could not be kept.
        """
        try:
            self.spent = await asyncio.to_thread(self._count)
        except RunDirectoryError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("spending.unreadable", reason=str(error))
            unlimited = not self._limits.model_dump(exclude_none=True)
            return None if unlimited else f"limit: what was spent cannot be counted: {error}"
        found = levels(self._limits, self.spent)
        for level in found:
            if level.near and level.name not in self._warned:
                self._warned.add(level.name)
                log.warning("limit.near", limit=level.name, spent=level.text, share=round(level.share, 3))
        self.reached = next((level for level in found if level.reached), None)
        return None if self.reached is None else f"limit: {self.reached.text}"

    async def keep(self, pause: Callable[[str], object]) -> None:
        """Look again and again; ``pause`` is told why, once, and no limit is asked for after that."""
        paused = False
        while True:
            reason = await self.look()
            if reason is not None and not paused:
                paused = True
                pause(reason)
            await asyncio.sleep(LOOK_EVERY_S)

    def _count(self) -> Spent:
        with self._counting:
            self._follower.look_at_files()
            return self._follower.spent(datetime.now(UTC), self._since)
