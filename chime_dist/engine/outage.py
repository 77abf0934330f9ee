"""Backbones that are down: wait for them instead of blaming the tasks (A9).

An attempt that a backbone failed is looked into at once: if the run's models answer a small request, the failure
was the attempt's own and the queue's redelivery deals with it. If they do not, there is an outage: nothing is
claimed, deliveries are not used up, and everybody waits for one prober. Nothing is committed empty because a
backbone is down.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

import structlog

from chime_dist.engine.meters import Meters
from chime_dist.engine.metrics import OUTAGES
from chime_dist.errors import BackboneError, EmbeddingError, OutageError
from chime_dist.ports import Clock

log = structlog.get_logger()

PROBE_BUDGET_S = 30.0
"""Longest wait for the answer to one probe, in seconds."""
LONGEST_PAUSE_S = 30.0
"""Longest time between two probes, in seconds; they start at a thirtieth of it."""
SPREAD_S = 2.0
"""Attempts go on within this time after an outage, not all in one instant, in seconds."""


class Probed(Protocol):
    """Models that can be asked whether they answer, such as ``ports.Models`` or a ``RoleRunner``."""

    async def probe(self, budget_s: float) -> None:
        """Raises BackboneError or EmbeddingError where they do not."""
        ...


class AbandonedError(Exception):
    """The wait for the end of an outage was given up, because the worker was told to stop."""


class Outages:
    """The outages that the episodes of one worker are waiting for."""

    def __init__(
        self,
        clock: Clock,
        patience_s: float,
        uniform: Callable[[], float] = random.random,
        meters: Meters | None = None,
    ) -> None:
        """``patience_s``: seconds after which an outage ends the wait with OutageError."""
        self._clock = clock
        self._patience_s = patience_s
        self._uniform = uniform
        self._meters = meters
        self._waits: dict[str, asyncio.Task[None]] = {}
        self._abandoned = False

    @property
    def ongoing(self) -> bool:
        """Whether any run's models are known to be down; no work should be claimed meanwhile."""
        return bool(self._waits)

    async def waited_out(self, run_id: str, models: Probed) -> bool:
        """True after an outage of the run's models that has ended; False where they answer right now.

        Raises OutageError when they stay down for ``patience_s``, AbandonedError after ``abandon``.
        """
        if run_id not in self._waits:
            try:
                await models.probe(PROBE_BUDGET_S)
            except (BackboneError, EmbeddingError) as error:
                if run_id not in self._waits:
                    if self._abandoned:
                        raise AbandonedError from None
                    log.error("outage.began", run=run_id, reason=str(error))
                    if self._meters is not None:
                        self._meters.add(OUTAGES, run_id)
                    wait = asyncio.create_task(self._until_over(run_id, models))
                    # Also where it is cancelled before it began.
                    wait.add_done_callback(lambda _: self._waits.pop(run_id))
                    self._waits[run_id] = wait
            else:
                return False
        wait = self._waits[run_id]
        try:
            await asyncio.shield(wait)
        except asyncio.CancelledError:
            if wait.cancelled():
                raise AbandonedError from None
            raise
        await self._clock.sleep(self._uniform() * SPREAD_S)
        return True

    def abandon(self) -> None:
        """Wait no longer: whoever waits gets AbandonedError."""
        self._abandoned = True
        for wait in self._waits.values():
            wait.cancel()

    async def _until_over(self, run_id: str, models: Probed) -> None:
        began, pause_s = self._clock.monotonic(), LONGEST_PAUSE_S / 30
        while True:
            await self._clock.sleep(pause_s * (0.5 + self._uniform()))
            try:
                await models.probe(PROBE_BUDGET_S)
            except (BackboneError, EmbeddingError) as error:
                lasted = self._clock.monotonic() - began
                if lasted > self._patience_s:
                    raise OutageError(
                        f"run {run_id}: its models have not answered for {lasted:.0f} s ({error}). "
                        "Bring the backbone back, then resume the launch"
                    ) from error
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                log.info("outage.ended", run=run_id, lasted_s=round(self._clock.monotonic() - began, 1))
                return
