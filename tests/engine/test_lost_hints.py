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
from chime_dist.core.vector import Vector
from chime_dist.engine.bank_owner import BankOwner
from chime_dist.engine.lane import LaneServices
from chime_dist.engine.outage import Outages
from chime_dist.engine.roles import RunModels
from chime_dist.ports import Appended, Change
from tests.contract.banks import put
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


class SlowToAnswer(FileJournal):
    """An append is durable, and told to whoever reads, before its owner hears of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(lambda run_id: folder / run_id)
        self.durable, self.may_answer, self.asked = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def head(self, run_id: str) -> int:
        """See ``ports.Journal``."""
        self.asked.set()
        return await super().head(run_id)

    async def append(self, run_id: str, fence: int, position: int, line: str) -> Appended:
        """Waits for ``may_answer``."""
        answer = await super().append(run_id, fence, position, line)
        self.durable.set()
        await self.may_answer.wait()
        return answer


async def test_the_digest_that_proves_an_evaluation_is_that_of_the_journals_head(tmp_path: Path) -> None:
    """R5: the driver may know of the last commit before the bank's owner does, and asks what
    the evaluation reads."""
    clock, queue, journal = SystemClock(), BusyQueue(), SlowToAnswer(tmp_path)
    embedder = HashingEmbedder(DIM)
    vector = Vector.of([1.0] + [0.0] * (DIM - 1))
    event = put("0-0", {"c": vector, "e": vector})
    lane = LaneServices(Dictated([(event,)]), RunModels({}, embedder), embedder.fingerprint, 1, 3, 60.0)
    owner = BankOwner(LAUNCH, {RUN: lane}, queue, journal, MemoryStore(), clock, Outages(clock, 60.0))
    await owner.open()
    await queue.submit(proposal(0))
    serving = asyncio.create_task(owner.run())
    try:
        await asyncio.wait_for(journal.durable.wait(), 30.0)
        early = asyncio.create_task(owner.digest(RUN))
        asked = asyncio.create_task(journal.asked.wait())
        await asyncio.wait([early, asked], timeout=30.0, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        journal.may_answer.set()
        head = await asyncio.wait_for(owner.export(RUN, 1), 30.0)
        assert await asyncio.wait_for(early, 30.0) == head.digest() == await owner.digest(RUN)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await owner.close()
