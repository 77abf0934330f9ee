"""The pause before a unit whose attempt ended infra is delivered again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from chime_dist.adapters.directory.episode_store import EpisodeStore
from chime_dist.adapters.local.change_feed import ChangeFeed
from chime_dist.adapters.local.queue import LocalQueue
from chime_dist.core.episode import Unit
from chime_dist.engine.episode import EpisodeRunner, RunServices
from chime_dist.engine.outage import Outages
from chime_dist.engine.worker import Worker
from chime_dist.errors import ServiceError, TurnOverError
from chime_dist.methods.no_plan.method import NoPlan, NoPlanOptions
from chime_dist.ports import Completed, Lease
from tests.contract.labs import SkippingClock
from tests.integration.launching import RUN, models_on, new_directory
from tests.integration.test_field_benchmarks import EmptyBank
from tests.integration.test_outcomes import FailingTasks
from tests.integration.toy import JitteryBackbone, ToyEnvironment

LEASE_S = 60.0
RENEW_S = 20.0
UNITS = [
    Unit(run_id=RUN, phase="eval", epoch=1, position=n, task=task.id, read_version=0)
    for n, task in enumerate(FailingTasks(2, set()).tasks())
]
BROKEN, SOUND = UNITS


class StandingClock:
    """Passes only when it is told to."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        """Every sleep that was asked for, but those between renewals."""
        self._now = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """A fixed instant."""
        return datetime(2026, 11, 6, tzinfo=UTC)

    def monotonic(self) -> float:
        """Seconds since it was made."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Until ``advance`` comes so far."""
        if seconds != RENEW_S:
            self.pauses.append(seconds)
        woken = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now + seconds, woken))
        await woken

    def pass_unseen(self, seconds: float) -> None:
        """Wake nobody: the process was stopped meanwhile."""
        self._now += seconds

    def advance(self, seconds: float) -> None:
        """Wake whoever has slept so long by now."""
        self._now += seconds
        for due, woken in self._sleepers:
            if due <= self._now and not woken.done():
                woken.set_result(None)


class CountingQueue(LocalQueue):
    """Knows how often it was asked to renew, and may refuse."""

    renewals = 0
    refuses: ServiceError | None = None

    async def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """Counted."""
        self.renewals += 1
        if self.refuses is not None:
            raise self.refuses
        return await super().renew(leases)


class WaitingTasks(FailingTasks):
    """Tasks that open when they may."""

    def __init__(self, size: int, broken: set[int]) -> None:
        super().__init__(size, broken)
        self.opened = 0
        self.may_open = asyncio.Event()
        self.may_open.set()

    async def open(self, task: str) -> ToyEnvironment:
        """Not before ``may_open`` is set."""
        self.opened += 1
        await self.may_open.wait()
        return await super().open(task)


@dataclass
class Shift:
    """One worker at work on a queue; the first of the two tasks fails until it is mended."""

    worker: Worker
    queue: CountingQueue
    benchmark: WaitingTasks
    clock: StandingClock
    """The worker's."""
    leases: SkippingClock
    """The queue's."""
    records: EpisodeStore
    running: asyncio.Task[None] = field(init=False)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the worker go on until then."""
        async with asyncio.timeout(30):
            while not condition():
                assert not self.running.done(), self.running.exception()
                await asyncio.sleep(0.001)

    async def until_done(self, unit: Unit) -> None:
        """Let the worker go on until the unit is completed."""
        seen, done = "0", set[str]()
        async with asyncio.timeout(30):
            while unit.key not in done:
                seen, changes = await self.queue.changes(seen, 30.0)
                done.update(change.unit for change in changes)


@asynccontextmanager
async def shift(
    folder: Path, pause_s: float, *units: Unit, slots: int = 2, max_deliveries: int = 3
) -> AsyncIterator[Shift]:
    """A worker that has begun, and its queue with ``units``."""
    clock, leases = StandingClock(), SkippingClock()
    queue = CountingQueue(leases, ChangeFeed(leases), LEASE_S)
    benchmark, outages = WaitingTasks(2, {0}), Outages(clock, 60.0)
    records = await EpisodeStore.open(new_directory(folder), now=datetime.now(UTC))
    services = RunServices(NoPlan(NoPlanOptions()), benchmark, models_on(JitteryBackbone(0.0, 0)), 60.0)
    worker = Worker(
        "worker",
        queue,
        records,
        EpisodeRunner({RUN: services}, EmptyBank(), clock, outages, "worker"),
        clock,
        outages=outages,
        slots=slots,
        max_deliveries=max_deliveries,
        renew_every_s=RENEW_S,
        redelivery_pause_s=pause_s,
    )
    await queue.reset()
    for unit in units:
        await queue.admit(unit)
    found = Shift(worker, queue, benchmark, clock, leases, records)
    found.running = asyncio.create_task(worker.run())
    try:
        yield found
    finally:
        found.running.cancel()
        await asyncio.gather(found.running, return_exceptions=True)
        await records.close()


@pytest.mark.parametrize(
    ("pause_s", "pauses"),
    [(1.0, [1.0, 2.0, 4.0, 8.0]), (12.0, [12.0, 24.0, 30.0, 30.0]), (0.0, [])],
)
async def test_the_pause_doubles_with_each_delivery_and_there_is_none_after_the_last(
    tmp_path: Path, pause_s: float, pauses: list[float]
) -> None:
    """D9."""
    with capture_logs() as told:
        async with shift(tmp_path, pause_s, BROKEN, max_deliveries=5) as work:
            for rest, pause in enumerate(pauses, start=1):
                await work.until(lambda rest=rest: len(work.clock.pauses) == rest)  # type: ignore[misc]
                assert await work.queue.claim("other", 1, 0.0) == []
                work.clock.advance(pause)
            await work.until_done(BROKEN)
            assert work.clock.pauses == pauses
    rests = [line for line in told if line["event"] == "episode.rests"]
    assert [(line["delivery"], line["pause_s"]) for line in rests] == list(enumerate(pauses, start=1))
    assert {(line["unit"], line["end_reason"], line["log_level"]) for line in rests} <= {
        (BROKEN.key, "benchmark", "warning")
    }


async def test_a_final_record_is_not_delayed_and_a_resting_unit_keeps_its_slot(tmp_path: Path) -> None:
    async with shift(tmp_path, 1.0, BROKEN, SOUND, slots=2) as work:
        await work.until_done(SOUND)
        await work.until(lambda: work.clock.pauses == [1.0])
    async with shift(tmp_path / "narrow", 1.0, BROKEN, SOUND, slots=1) as work:
        await work.until(lambda: work.clock.pauses == [1.0])
        work.benchmark.mended = True
        [lease] = await work.queue.claim("other", 2, 0.0)
        assert lease.unit == SOUND, "it was left to others"
        work.clock.advance(1.0)
        await work.until_done(BROKEN)


async def test_a_last_delivery_does_not_wait_for_units_that_rest(tmp_path: Path) -> None:
    """D9: it runs alone, and a unit at rest is not its neighbour."""
    async with shift(tmp_path, 1.0, max_deliveries=2) as work:
        await work.queue.admit(SOUND)
        [lease] = await work.queue.claim("other", 1, 0.0)
        await work.queue.admit(BROKEN)
        await work.until(lambda: work.clock.pauses == [1.0])
        await work.queue.release(lease)
        await work.until_done(SOUND)
        assert work.clock.pauses == [1.0]


async def test_a_stop_ends_the_pause_at_once_and_gives_the_unit_back(tmp_path: Path) -> None:
    """H9."""
    async with shift(tmp_path, 30.0, BROKEN) as work:
        await work.until(lambda: work.clock.pauses == [30.0])
        assert work.worker.held == 1
        work.worker.stop()
        await asyncio.wait_for(work.running, 30)
        assert work.worker.held == 0
        [lease] = await work.queue.claim("other", 1, 0.0)
        assert (lease.unit, lease.delivery) == (BROKEN, 2)


async def test_the_lease_is_renewed_meanwhile_and_the_loss_of_it_ends_the_pause(tmp_path: Path) -> None:
    """D2."""
    async with shift(tmp_path, 30.0, BROKEN, slots=1) as work:
        await work.until(lambda: work.clock.pauses == [30.0])
        work.leases.skip(LEASE_S - 1)
        work.clock.advance(RENEW_S)
        await asyncio.sleep(0.01)
        work.leases.skip(LEASE_S - 1)
        assert await work.queue.claim("other", 1, 0.0) == []
        work.leases.skip(1)
        [lease] = await work.queue.claim("other", 1, 0.0)
        work.clock.advance(RENEW_S / 4)
        assert work.worker.held == 1
        work.clock.advance(RENEW_S)
        await work.until(lambda: work.worker.held == 0)
        assert await work.queue.complete(lease, None) is Completed.STORED, "its new holder's, still"


@pytest.mark.parametrize("given_away", [True, False])
async def test_a_worker_that_was_stopped_stores_a_result_only_if_the_unit_is_still_its_own(
    tmp_path: Path, given_away: bool
) -> None:
    """D9, D2: while it stood still its lease ran out, and the next holder's end may be committed by now. Who has
    the lease still, because nobody wanted the unit, stores and completes as ever."""
    with capture_logs() as told:
        async with shift(tmp_path, 1.0, slots=1) as work:
            work.benchmark.may_open.clear()
            await work.queue.admit(SOUND)
            await work.until(lambda: work.benchmark.opened == 1)
            work.clock.pass_unseen(LEASE_S + 1)
            work.leases.skip(LEASE_S + 1)
            taken = await work.queue.claim("other", 1, 0.0) if given_away else []
            work.benchmark.may_open.set()
            await work.until(lambda: work.queue.renewals == 1)
            await work.until(lambda: work.worker.held == 0)
            settled = await work.records.settled(RUN)
            if given_away:
                assert await work.queue.complete(taken[0], None) is Completed.STORED
            assert await work.queue.outstanding() == set()
    assert settled == (set() if given_away else {SOUND.key})
    assert [line["unit"] for line in told if line["event"] == "lease.lost"] == [SOUND.key] * given_away


async def test_an_episode_costs_no_renewal_of_its_own_while_the_usual_ones_come_through(tmp_path: Path) -> None:
    """Design "The queue": batched renewal."""
    async with shift(tmp_path, 1.0, slots=1) as work:
        work.benchmark.may_open.clear()
        await work.queue.admit(SOUND)
        await work.until(lambda: work.benchmark.opened == 1)
        for renewals in (1, 2, 3):
            work.clock.advance(RENEW_S)
            await work.until(lambda renewals=renewals: work.queue.renewals == renewals)  # type: ignore[misc]
        work.benchmark.may_open.set()
        await work.until_done(SOUND)
        assert work.queue.renewals == 3
        await work.queue.admit(BROKEN)
        await work.until(lambda: work.clock.pauses == [1.0])
        assert work.queue.renewals == 3


async def outlive_the_lease(work: Shift, refusal: ServiceError) -> None:
    """Let SOUND end after the process stood still for longer than its lease; the queue refuses to renew that."""
    work.benchmark.may_open.clear()
    await work.queue.admit(SOUND)
    await work.until(lambda: work.benchmark.opened == 1)
    work.queue.refuses = refusal
    work.clock.pass_unseen(LEASE_S + 1)
    work.benchmark.may_open.set()


async def test_a_result_outlasts_a_queue_that_is_away(tmp_path: Path) -> None:
    """D10: whether the unit is still ours cannot be asked; a queue that is away gives it to nobody."""
    async with shift(tmp_path, 1.0, slots=1) as work:
        await outlive_the_lease(work, ServiceError("the queue is away"))
        await work.until_done(SOUND)
        assert await work.records.settled(RUN) == {SOUND.key}


async def test_a_worker_of_a_replaced_driver_stores_nothing_and_ends(tmp_path: Path) -> None:
    """D2: its driver's turn is over, so what it has done is another worker's to do."""
    async with shift(tmp_path, 1.0, slots=1) as work:
        await outlive_the_lease(work, TurnOverError("another driver has started a turn"))
        with pytest.raises(TurnOverError):
            await asyncio.wait_for(asyncio.shield(work.running), 30)
        assert await work.records.settled(RUN) == set()
