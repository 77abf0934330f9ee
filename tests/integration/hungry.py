"""One WorkerActor on a Ray cluster of its own, whose only task takes all the memory that Ray's monitor allows.

Run as ``python -m tests.integration.hungry REDIS_URL FOLDER``, because the monitor reads its limit from the
environment when Ray starts. The records become lines of FOLDER/rows.jsonl.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.ray.actors import WorkerActor
from chime_dist.adapters.ray.cluster import RayCluster
from chime_dist.adapters.ray.handles import RayWorkers
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.pending import pending_units
from chime_dist.adapters.redis.queue import RedisQueue
from chime_dist.core.episode import EpisodeTrace, Unit
from chime_dist.engine.episode import EpisodeRunner, RunServices
from chime_dist.engine.outage import Outages
from chime_dist.engine.worker import Delivery, Worker
from chime_dist.methods.no_plan.method import NoPlan, NoPlanOptions
from tests.integration.launching import RUN, models_on
from tests.integration.test_field_benchmarks import EmptyBank, Polite, Talk

HEADROOM = 0.1
"""Share of the machine's memory that may be taken before Ray kills; Ray itself needs some of it."""
LAUNCH = "hungry"
LEASE_S = 4.0
KEYS = RedisKeys(LAUNCH)
UNIT = Unit(run_id=RUN, phase="eval", epoch=1, position=0, task="greedy-0", read_version=0)


@dataclass
class Rows:
    """Records as lines of a file, and no memory of them."""

    file: Path

    async def write(self, trace: EpisodeTrace) -> EpisodeTrace:
        """See ``ports.RecordStore``."""
        with self.file.open("a") as rows:
            rows.write(trace.record.model_dump_json() + "\n")
        return trace

    async def final(self, unit: Unit) -> EpisodeTrace | None:
        """Nothing was finished before."""
        return None

    async def settled(self, run_id: str) -> frozenset[str]:
        """Likewise."""
        return frozenset()

    async def tally(self, run_id: str) -> Mapping[str, int]:
        """Likewise."""
        return {}


@dataclass(frozen=True)
class Factory:
    """Builds the worker in the actor's process."""

    url: str
    folder: Path
    turn: str

    async def __call__(self, name: str) -> Worker:
        """Called in the actor."""
        clock = SystemClock()
        outages = Outages(clock, 60.0)
        services = RunServices(NoPlan(NoPlanOptions()), Talk([UNIT.task]), models_on(Polite()), 60.0)
        return Worker(
            name,
            RedisQueue(RedisConnection(self.url), KEYS, LEASE_S, DriverTurn(self.turn)),
            Rows(self.folder / "rows.jsonl"),
            EpisodeRunner({RUN: services}, EmptyBank(), clock, outages, name),
            clock,
            outages=outages,
            slots=1,
            max_deliveries=1,
            renew_every_s=LEASE_S / 3,
            redelivery_pause_s=0.0,
        )


async def main(url: str, folder: Path) -> None:
    """Run the unit to its end."""
    memory = psutil.virtual_memory()
    os.environ["RAY_memory_usage_threshold"] = f"{1 - memory.available / memory.total + HEADROOM:.3f}"  # noqa: SIM112 - its name
    os.environ["RAY_memory_monitor_refresh_ms"] = "100"  # noqa: SIM112
    connection = RedisConnection(url)
    queue = RedisQueue(connection, KEYS, LEASE_S, DriverTurn())
    turn = await queue.reset()
    await queue.admit(UNIT)

    async def held(consumer: str) -> frozenset[Delivery]:
        pending = await pending_units(connection, KEYS)
        return frozenset((unit.unit, unit.delivery) for unit in pending if unit.consumer == consumer)

    names = iter(f"worker-{n}" for n in range(1000))
    cluster = RayCluster.connect(LAUNCH, None, 1, LAUNCH)
    actor = cluster.actor(WorkerActor, "worker-0", LAUNCH, Factory(url, folder, turn))
    workers = RayWorkers({actor: lambda: next(names)}, held)
    working = asyncio.create_task(workers.run())
    while await queue.outstanding():
        assert not working.done(), working.exception()
        await asyncio.sleep(0.1)
    await workers.stop()
    await working
    cluster.leave()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
