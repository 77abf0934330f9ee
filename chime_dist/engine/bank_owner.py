"""The bank's owner: every run's lane, woken as proposals come, and the reads of all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress

from chime_dist.core.bank import BankState
from chime_dist.engine.lane import Lane, LaneServices
from chime_dist.engine.meters import Meters
from chime_dist.engine.metrics import BANK_FENCE, BANK_RECORDS, Metric
from chime_dist.engine.outage import Outages
from chime_dist.ports import BankQuery, BankStore, Clock, Hit, Journal, Queue

CHANGE_WAIT_S = 1.0
"""Longest time between two looks at the queue, in seconds, should a change hint get lost."""


class BankOwner:
    """The lanes of a launch. Implements ``ports.BankReader``; one owner per launch at a time."""

    def __init__(
        self,
        launch: str,
        runs: Mapping[str, LaneServices],
        queue: Queue,
        journal: Journal,
        store: BankStore,
        clock: Clock,
        outages: Outages,
        meters: Meters | None = None,
    ) -> None:
        self._queue = queue
        self._journal = journal
        self._store = store
        self._lanes = {
            run_id: Lane(launch, run_id, services, queue, journal, store, clock, outages, meters)
            for run_id, services in runs.items()
        }
        if meters is not None:
            meters.watch(self._levels)

    async def open(self) -> dict[str, int]:
        """Open every lane; returns each run's head."""
        for lane in self._lanes.values():
            await lane.open()
        return {run_id: lane.head.version for run_id, lane in self._lanes.items()}

    async def run(self) -> None:
        """Commit proposals as they come, until cancelled. Raises FencedError or JournalError: a wrong bank
        stops the run."""
        wakers = {run_id: asyncio.Event() for run_id in self._lanes}
        tasks = [asyncio.create_task(_commit_when_woken(lane, wakers[run])) for run, lane in self._lanes.items()]
        tasks.append(asyncio.create_task(self._wake(wakers)))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wake(self, wakers: Mapping[str, asyncio.Event]) -> None:
        cursor = ""
        while True:
            cursor, changes = await self._queue.changes(cursor, CHANGE_WAIT_S)
            woken = {change.run_id for change in changes if change.kind == "completed"}
            for run_id in woken & wakers.keys():
                wakers[run_id].set()

    async def search(self, query: BankQuery) -> list[Hit]:
        """See ``ports.BankReader``."""
        return await self._lanes[query.run_id].search(query)

    async def export(self, run_id: str, version: int) -> BankState:
        """See ``ports.BankReader``."""
        return await self._lanes[run_id].state(version)

    async def digest(self, run_id: str) -> str:
        """The state digest at the journal's head, which the journal may have told of before the lane has it."""
        state = await self._lanes[run_id].state(await self._journal.head(run_id))
        return state.digest()

    async def close(self) -> None:
        """Release the store."""
        await self._store.close()

    def _levels(self) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
        for run_id, lane in self._lanes.items():
            yield BANK_FENCE, (run_id,), lane.fence
            for collection, size in Counter(record.collection for record in lane.head.records.values()).items():
                yield BANK_RECORDS, (run_id, collection), size


async def _commit_when_woken(lane: Lane, waker: asyncio.Event) -> None:
    while True:
        waker.clear()
        await lane.commit_ready()
        await lane.compact_when_due()
        # Looks again by itself: a hint may be lost while others, of other runs, never cease.
        with suppress(TimeoutError):
            async with asyncio.timeout(CHANGE_WAIT_S):
                await waker.wait()
