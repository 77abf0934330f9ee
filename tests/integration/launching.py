"""The real engine over chosen adapters, without config or command line."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.directory.episode_store import EpisodeStore
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.embedding.hashing import HashingEmbedder
from chime_dist.config.models import BackboneModel
from chime_dist.core.episode import Proposal, Role, Unit
from chime_dist.core.journal import JournalEntry, verified
from chime_dist.core.window import StreamShape
from chime_dist.engine.bank_owner import BankOwner
from chime_dist.engine.driven_run import RunEnd
from chime_dist.engine.driver import Driver, Ending
from chime_dist.engine.episode import EpisodeRunner, RunServices
from chime_dist.engine.lane import LaneServices
from chime_dist.engine.outage import Outages
from chime_dist.engine.plan import RunPlan
from chime_dist.engine.roles import RoleRunner, RunModels
from chime_dist.engine.worker import Worker
from chime_dist.methods.chime.method import Chime, ChimeOptions
from chime_dist.ports import Backbone, BankStore, Benchmark, Change, Completed, Journal, Lease, Queue
from chime_dist.wiring.registry import prompts
from tests.stored import CONFIG

RUN = "toy-chime-o0"
EMBEDDER = HashingEmbedder(64)
DEADLINE_S = 60.0
"""Of one attempt."""
OPTIONS = ChimeOptions()


def plan_of(benchmark: Benchmark, window: int, epochs: int = 1, held_out: int = 0) -> RunPlan:
    """Every task in order; the last ``held_out`` are the eval split."""
    ids = [task.id for task in benchmark.tasks()]
    cut = len(ids) - held_out
    shape = StreamShape(epoch_size=cut, epochs=epochs, window=window)
    return RunPlan(run_id=RUN, shape=shape, train=tuple(ids[:cut]), eval=tuple(ids[cut:]))


def models_on(backbone: Backbone) -> RunModels:
    """Every role on one backbone."""
    library = prompts(["chime", "no_plan"])
    model = BackboneModel(name="toy", model="toy")
    roles = (Role.PLANNER, Role.EXECUTOR, Role.GATE)
    return RunModels({role: RoleRunner(role, model, backbone, library) for role in roles}, EMBEDDER)


@dataclass
class Launched:
    """One engine over one set of adapters; ``run`` drives it to an ending."""

    directory: LaunchDirectory
    plan: RunPlan
    benchmark: Benchmark
    backbone: Backbone
    queue: Queue
    journal: Journal
    store: BankStore
    workers: int = 1
    slots: int = 16
    max_deliveries: int = 3
    lease_s: float = 30.0
    redelivery_pause_s: float = 0.002
    mirror: Journal | None = None
    ends: list[RunEnd] = field(default_factory=list)

    async def run(self) -> Ending:
        """Open records and banks, work, drive, close."""
        clock = SystemClock()
        models, outages = models_on(self.backbone), Outages(clock, 60.0)
        method = Chime(OPTIONS)
        records = await EpisodeStore.open(self.directory, now=datetime.now(UTC))
        lanes = {RUN: LaneServices(method, models, EMBEDDER.fingerprint, self.plan.shape.window, 3, 60.0)}
        owner = BankOwner(self.directory.id, lanes, self.queue, self.journal, self.store, clock, outages)
        services = {RUN: RunServices(method, self.benchmark, models, DEADLINE_S)}
        await self.queue.reset()
        await owner.open()
        workers = [
            Worker(
                f"worker-{index}-{random.randrange(2**32)}",
                self.queue,
                records,
                EpisodeRunner(services, owner, clock, outages, f"worker-{index}"),
                clock,
                outages=outages,
                slots=max(1, self.slots // self.workers),
                max_deliveries=self.max_deliveries,
                renew_every_s=self.lease_s / 3,
                redelivery_pause_s=self.redelivery_pause_s,
            )
            for index in range(self.workers)
        ]
        driver = Driver(
            [self.plan],
            self.queue,
            self.journal,
            records,
            owner,
            clock,
            slots=self.slots,
            pause_after_infra=3,
            mirror=self.mirror,
            on_run_end=self._ended,
            on_progress=lambda _: None,
        )
        vital = [asyncio.create_task(owner.run()), *(asyncio.create_task(worker.run()) for worker in workers)]
        driving: asyncio.Task[Ending] = asyncio.create_task(driver.run())
        try:
            await asyncio.wait([driving, *vital], return_when=asyncio.FIRST_COMPLETED)
            for part in vital:
                if part.done():
                    part.result()
            return driving.result()
        finally:
            for task in (driving, *vital):
                task.cancel()
            await asyncio.gather(driving, *vital, return_exceptions=True)
            await records.close()
            await owner.close()

    async def entries(self) -> list[JournalEntry]:
        """The verified journal."""
        return list(verified(await self.journal.read(RUN), "the journal"))

    async def _ended(self, end: RunEnd) -> None:
        self.ends.append(end)


class UnreliableQueue:
    """A queue whose worker side loses and doubles things: some leases are never worked on, some completions are
    sent twice, some units are given back first. What is lost comes back when its lease runs out."""

    def __init__(self, inner: Queue, seed: int, rate: float = 0.25) -> None:
        self._inner = inner
        self._random = random.Random(seed)
        self._rate = rate
        self.lost = self.doubled = self.released = 0

    async def claim(self, consumer: str, count: int, wait_s: float) -> list[Lease]:
        """Loses some of what was claimed."""
        leases = await self._inner.claim(consumer, count, wait_s)
        kept = []
        for lease in leases:
            drawn = self._random.random()
            if drawn < self._rate / 2:
                self.lost += 1
            elif drawn < self._rate:
                self.released += 1
                await self._inner.release(lease)
            else:
                kept.append(lease)
        return kept

    async def complete(self, lease: Lease, proposal: Proposal | None) -> Completed:
        """Sends some completions twice, as after a lost reply."""
        answer = await self._inner.complete(lease, proposal)
        if self._random.random() < self._rate:
            self.doubled += 1
            answer = await self._inner.complete(lease, proposal)
        return answer

    async def reset(self) -> str:
        """Passed on, like all below."""
        return await self._inner.reset()

    async def admit(self, unit: Unit) -> bool:
        """Passed on."""
        return await self._inner.admit(unit)

    async def outstanding(self) -> set[str]:
        """Passed on."""
        return await self._inner.outstanding()

    async def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """Passed on."""
        return await self._inner.renew(leases)

    async def release(self, lease: Lease) -> bool:
        """Passed on."""
        return await self._inner.release(lease)

    async def submit(self, proposal: Proposal) -> None:
        """Passed on."""
        await self._inner.submit(proposal)

    async def proposal(self, run_id: str, position: int) -> Proposal | None:
        """Passed on."""
        return await self._inner.proposal(run_id, position)

    async def forget(self, run_id: str, position: int) -> None:
        """Passed on."""
        await self._inner.forget(run_id, position)

    async def changes(self, since: str, timeout_s: float) -> tuple[str, list[Change]]:
        """Passed on."""
        return await self._inner.changes(since, timeout_s)

    async def close(self) -> None:
        """Passed on."""
        await self._inner.close()


def new_directory(path: Path) -> LaunchDirectory:
    """An empty launch."""
    return LaunchDirectory.create(path, "toy", CONFIG, now=datetime.now(UTC))
