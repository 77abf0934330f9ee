"""The change feed of one process, shared by its local queue and journal."""

from __future__ import annotations

import asyncio
from collections import deque

from chime_dist.ports import Change, Clock

_KEPT = 10_000
"""How many changes a slow reader may fall behind. They are hints, so older ones may go."""


class Wakeup:
    """Lets coroutines of one event loop wait for news, but no longer than a time by the injected clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Wake everybody who waits now."""
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Return at the next ``wake`` or after ``seconds``; misses no wake that comes after the call."""
        news = asyncio.ensure_future(self._news.wait())
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((news, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
            timer.cancel()
            await asyncio.gather(news, timer, return_exceptions=True)


class ChangeFeed:
    """Numbered changes in memory. Cursors are decimal numbers of the last change seen."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wakeup = Wakeup(clock)
        self._last = 0
        self._changes: deque[Change] = deque(maxlen=_KEPT)

    def publish(self, change: Change) -> None:
        """Append a change and wake the readers."""
        self._last += 1
        self._changes.append(change)
        self._wakeup.wake()

    async def after(self, since: str, timeout_s: float) -> tuple[str, list[Change]]:
        """See ``ports.Queue.changes``."""
        seen = self._last if since == "" else int(since)
        deadline = self._clock.monotonic() + timeout_s
        while self._last <= seen and (left := deadline - self._clock.monotonic()) > 0:
            await self._wakeup.wait(left)
        unseen = min(self._last - seen, len(self._changes))
        return str(self._last), list(self._changes)[len(self._changes) - unseen :]
