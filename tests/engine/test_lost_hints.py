"""Change hints are hints: a proposal is found without one, however busy the other runs are."""

from __future__ import annotations

import asyncio
from pathlib import Path

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.directory.file_journal import FileJournal
from chime_dist.adapters.embedding.hashing import HashingEmbedder
from chime_dist.adapters.local.change_feed import ChangeFeed
from chime_dist.adapters.local.memory_store import MemoryStore
from chime_dist.adapters.local.queue import LocalQueue
from chime_dist.core.episode import Proposal
from chime_dist.engine.bank_owner import BankOwner
from chime_dist.engine.lane import LaneServices
from chime_dist.engine.outage import Outages
from chime_dist.engine.roles import RunModels
from chime_dist.ports import Change
from tests.engine.owned_bank import DIM, LAUNCH, RUN, Dictated, proposal


class BusyQueue(LocalQueue):
    """Tells of nothing but other runs, and of those all the time."""

    def __init__(self) -> None:
        clock = SystemClock()
        super().__init__(clock, ChangeFeed(clock), 60.0)
        self.looked_at = asyncio.Event()

    async def proposal(self, run_id: str, position: int) -> Proposal | None:
        """See ``ports.Queue``."""
        self.looked_at.set()
        return await super().proposal(run_id, position)

    async def changes(self, since: str, timeout_s: float) -> tuple[str, list[Change]]:
        """See ``ports.Queue``."""
        await asyncio.sleep(0.01)
        return since, [Change(kind="completed", run_id="another run")]


async def test_a_proposal_whose_hint_was_lost_is_committed_while_other_runs_are_busy(tmp_path: Path) -> None:
    """D10: else the run would stand still until all the others pause."""
    clock, queue = SystemClock(), BusyQueue()
    journal = FileJournal(lambda run_id: tmp_path / run_id)
    embedder = HashingEmbedder(DIM)
    lane = LaneServices(Dictated([()]), RunModels({}, embedder), embedder.fingerprint, 1, 3, 60.0)
    owner = BankOwner(LAUNCH, {RUN: lane}, queue, journal, MemoryStore(), clock, Outages(clock, 60.0))
    await owner.open()
    serving = asyncio.create_task(owner.run())
    try:
        await queue.looked_at.wait()
        await queue.submit(proposal(0))
        assert (await asyncio.wait_for(owner.export(RUN, 1), 30.0)).version == 1
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await owner.close()
