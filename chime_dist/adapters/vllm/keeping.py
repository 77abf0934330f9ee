"""Whatever ends is started again, with growing waits, until it is stopped on purpose."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from chime_dist.adapters.vllm.restarts import Restarts
from chime_dist.errors import ServingError

log = structlog.get_logger()


class Keeping:
    """``ended`` waits for an end and says why, in words; ``begin`` starts anew or raises ServingError."""

    def __init__(
        self, part: str, ended: Callable[[], Awaitable[str]], begin: Callable[[], Awaitable[None]]
    ) -> None:
        self._part = part
        self._ended = ended
        self._begin = begin
        self._task: asyncio.Task[None] | None = None
        self.restarts = Restarts()

    def start(self) -> None:
        """Watch what was begun already."""
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._tell_failure)

    async def stop(self) -> None:
        """Start nothing anew; may be called again, and before ``start``."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            why = await self._ended()
            lasted_s = time.monotonic() - began
            while True:
                self.restarts, wait_s = self.restarts.after(lasted_s)
                log.warning(
                    "serving.ended", part=self._part, why=why, lasted_s=round(lasted_s, 1), wait_s=round(wait_s, 1)
                )
                await asyncio.sleep(wait_s)
                try:
                    await self._begin()
                except ServingError as error:
                    why, lasted_s = str(error), 0.0
                else:
                    break
            log.info("serving.restarted", part=self._part, restarts=self.restarts.total)

    def _tell_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("serving.unwatched", part=self._part, error=f"{type(error).__name__}: {error}")
