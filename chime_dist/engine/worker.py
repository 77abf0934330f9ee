"""A worker: claims units, runs them side by side, makes each durable, then acknowledges it.

Order matters and is the whole point: record and trajectory are stored first, the queue's completion second.
A crash between the two is harmless, because the next delivery finds the stored trace and completes with it. A
result is stored only under a lease that is still held: another worker may have ended the unit by now, and what it
ended with may be committed. That costs no request while renewals come through, and one for an episode that ends
after they have not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

import structlog

from chime_dist import faults
from chime_dist.core.episode import EndReason, EpisodeTrace
from chime_dist.core.retry import RetryPolicy
from chime_dist.engine.episode import EpisodeRunner
from chime_dist.engine.outage import AbandonedError, Outages
from chime_dist.errors import ServiceError, TurnOverError
from chime_dist.ports import Clock, Completed, Lease, Queue, RecordStore

log = structlog.get_logger()

Delivery = tuple[str, int]
"""A unit's key, and which of its deliveries, 1-based."""

CLAIM_WAIT_S = 1.0
"""How long one claim waits for work, in seconds; also the longest a stop waits for an idle worker."""

SUSPECT_REASONS = frozenset({EndReason.BACKBONE, EndReason.EMBEDDER})
"""Ends after which it has to be asked whether a model is down."""

LONGEST_REST_S = 30.0
"""Longest pause before a unit is given back for its next delivery, in seconds."""


class Worker:
    """``slots`` episodes at a time out of one queue."""

    def __init__(
        self,
        name: str,
        queue: Queue,
        records: RecordStore,
        runner: EpisodeRunner,
        clock: Clock,
        *,
        outages: Outages,
        slots: int,
        max_deliveries: int,
        renew_every_s: float,
        redelivery_pause_s: float,
    ) -> None:
        """``renew_every_s`` is a third of what a lease lasts. ``redelivery_pause_s``: how long a unit whose first
        attempt ended infra rests before it is given back. It doubles with every further delivery, up to
        ``LONGEST_REST_S``; 0 gives units back at once."""
        self.name = name
        self._queue = queue
        self._records = records
        self._runner = runner
        self._clock = clock
        self._outages = outages
        self._slots = slots
        self._max_deliveries = max_deliveries
        self._renew_every_s = renew_every_s
        self._rests = RetryPolicy(base_interval_s=redelivery_pause_s, cap_s=LONGEST_REST_S, jitter=False)
        self._open: dict[asyncio.Task[None], Lease] = {}
        self._resting: dict[asyncio.Task[None], Lease] = {}
        """Units whose attempt ended infra, by the pause after which they are given back."""
        self._confirmed: dict[str, float] = {}
        """When the queue was last asked and said that a lease is ours, by token; monotonic seconds."""
        self._suspects: deque[Lease] = deque()
        """Claimed on their last delivery, and waiting for the others to end."""
        self._alone: asyncio.Task[None] | None = None
        self._out_of_memory: frozenset[Delivery] = frozenset()
        self._stopping = False

    async def run(self) -> None:
        """Work until ``stop``; finishes the open episodes first. Raises what the queue or the disk raises."""
        renewal = asyncio.create_task(self._renew())
        try:
            while not self._stopping:
                self._reap()
                await self._give_back_rested()
                if renewal.done():
                    renewal.result()
                if self._suspects and not self._open:
                    self._alone = self._begin(self._suspects.popleft())
                free = self._free()
                if free == 0:
                    waited = [*self._open, *self._resting, renewal]
                    await asyncio.wait(waited, timeout=CLAIM_WAIT_S, return_when=asyncio.FIRST_COMPLETED)
                    continue
                patience_s = 0.05 if self._open or self._resting else CLAIM_WAIT_S
                asked = self._clock.monotonic()
                for lease in await self._queue.claim(self.name, free, patience_s):
                    self._confirmed[lease.token] = asked
                    if lease.delivery == self._max_deliveries > 1:
                        self._suspects.append(lease)
                    else:
                        self._begin(lease)
            for lease in [*self._suspects, *self._resting.values()]:
                await self._queue.release(lease)
            self._suspects.clear()
            self._resting.clear()
            if self._open:
                await asyncio.wait(self._open)
            self._reap()
        finally:
            tasks = [renewal, *self._open, *self._resting]
            for task in tasks:
                task.cancel()
            self._outages.abandon()
            await asyncio.gather(*tasks, return_exceptions=True)

    def stop(self) -> None:
        """Claim no more; ``run`` returns when the open episodes have ended. Those that wait for a backbone to come
        back, or for their next delivery, are given back to the queue."""
        self._stopping = True
        self._outages.abandon()
        for pause in self._resting:
            pause.cancel()

    @property
    def held(self) -> int:
        """Units that it has claimed and not completed or given back."""
        return sum(not task.done() for task in self._open) + len(self._resting) + len(self._suspects)

    def told_out_of_memory(self, deliveries: frozenset[Delivery]) -> None:
        """Learn of deliveries whose worker was killed for want of memory, all of the launch so far."""
        self._out_of_memory = deliveries

    def _begin(self, lease: Lease) -> asyncio.Task[None]:
        task = asyncio.create_task(self._handle(lease))
        self._open[task] = lease
        return task

    def _free(self) -> int:
        """Slots to claim for. A unit on its last delivery runs alone: if it is what killed its workers, its
        neighbours must not use up their deliveries with it (D9)."""
        alone = self._suspects or self._alone in self._open
        return 0 if alone or self._outages.ongoing else self._slots - len(self._open) - len(self._resting)

    async def _handle(self, lease: Lease) -> None:
        unit = lease.unit
        faults.reached("worker.claimed")
        if lease.delivery > 1 and (stored := await self._records.final(unit)) is not None:
            await self._complete(lease, stored)
            return
        try:
            over = lease.delivery > self._max_deliveries
            trace = self._lost(lease) if over else await self._attempted(lease)
        except AbandonedError:
            await self._queue.release(lease)
            return
        faults.reached("worker.attempted")
        if trace.record.final and not await self._still_held(lease):
            self._tell_lost(lease)
            return
        stored = await self._records.write(trace)
        faults.reached("worker.recorded")
        if stored.record.final or lease.delivery >= self._max_deliveries:
            await self._complete(lease, stored)
        elif self._stopping or not (pause_s := self._rests.wait_s(lease.delivery - 1, 0.0)):
            await self._queue.release(lease)
        else:
            self._rest(lease, trace.record.end_reason, pause_s)

    async def _still_held(self, lease: Lease) -> bool:
        """Whether the lease is ours; asks where two renewals in a row are missing, as after a stopped process."""
        asked = self._clock.monotonic()
        if asked - self._confirmed[lease.token] < 2 * self._renew_every_s:
            return True
        try:
            async with asyncio.timeout(self._renew_every_s):
                return not await self._queue.renew([lease])
        except TurnOverError:
            raise
        except (ServiceError, TimeoutError):
            # A queue that is away gives the unit to nobody, and the result must outlast us. Should it have been
            # given away before, whoever reads the row is told so by the journal.
            return True

    def _rest(self, lease: Lease, reason: EndReason, pause_s: float) -> None:
        """Keep the unit and its slot for a while: a fault that lasts a second must not use up its deliveries."""
        log.warning(
            "episode.rests",
            unit=lease.unit.key,
            worker=self.name,
            delivery=lease.delivery,
            end_reason=reason.value,
            pause_s=pause_s,
        )
        self._resting[asyncio.create_task(self._clock.sleep(pause_s))] = lease

    async def _give_back_rested(self) -> None:
        # One whose lease was lost is among them: giving it back changes nothing.
        for pause in [pause for pause in self._resting if pause.done()]:
            await self._queue.release(self._resting.pop(pause))

    async def _attempted(self, lease: Lease) -> EpisodeTrace:
        """An attempt's trace; attempts that an outage failed are kept as history and made again, here."""
        while True:
            log.info("episode.started", unit=lease.unit.key, worker=self.name, delivery=lease.delivery)
            faults.reached("worker.attempting")
            trace = await self._runner.run(lease.unit, lease.delivery)
            reason, models = trace.record.end_reason, self._runner.models(lease.unit)
            if reason is not EndReason.OUTAGE and (
                reason not in SUSPECT_REASONS or not await self._outages.waited_out(lease.unit.run_id, models)
            ):
                return trace
            await self._records.write(trace)

    def _lost(self, lease: Lease) -> EpisodeTrace:
        # The last delivery runs alone, so its worker's death is the unit's own.
        oom = (lease.unit.key, lease.delivery - 1) in self._out_of_memory
        return self._runner.lost(lease.unit, lease.delivery, EndReason.OOM if oom else EndReason.WORKER_LOST)

    async def _complete(self, lease: Lease, trace: EpisodeTrace) -> None:
        answer = await self._queue.complete(lease, trace.proposal)
        faults.reached("worker.completed")
        if answer is Completed.LOST:
            self._tell_lost(lease)

    def _tell_lost(self, lease: Lease) -> None:
        log.warning("lease.lost", unit=lease.unit.key, worker=self.name, delivery=lease.delivery)

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(self._renew_every_s)
            leases = [*self._open.values(), *self._resting.values(), *self._suspects]
            if not leases:
                continue
            asked = self._clock.monotonic()
            lost = {lease.token for lease in await self._queue.renew(leases)}
            renewed = {lease.token: asked for lease in leases if lease.token not in lost}
            held = [*self._open.values(), *self._resting.values(), *self._suspects]
            self._confirmed = {
                lease.token: renewed.get(lease.token, self._confirmed[lease.token]) for lease in held
            }
            for task, lease in [*self._open.items(), *self._resting.items()]:
                if lease.token in lost and not task.done():
                    self._tell_lost(lease)
                    task.cancel()
            self._suspects = deque(lease for lease in self._suspects if lease.token not in lost)

    def _reap(self) -> None:
        for task in [task for task in self._open if task.done()]:
            del self._open[task]
            with suppress(asyncio.CancelledError):
                task.result()
