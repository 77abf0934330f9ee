"""Under Ray: actors of every kind die by kill -9, a node falls silent or is taken away; the launch goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from chime_dist.adapters.redis.server import EmbeddedRedis
from tests.chaos.nursery import Child, Nursery
from tests.chaos.patience import eventually
from tests.chaos.placement import placed, titled
from tests.chaos.ray_nodes import Node, Nodes
from tests.chaos.served_model import ServedModel
from tests.chaos.sweeps import Sweep, Undisturbed

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

KINDS = ("Embedder", "Planner", "Worker", "Bank", "Executor", "Record", "Gate")
"""In the order in which they die; every kind has work left when its turn comes."""
WORKER = "ray::WorkerActor"


@pytest.fixture(scope="module")
def nodes(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """One cluster, which outlives its second nodes."""
    with Nodes(nursery, tmp_path_factory.mktemp("ray") / "nodes") as nodes:
        yield nodes


@asynccontextmanager
async def only_worker_on(
    node: Node, nodes: Nodes, nursery: Nursery, folder: Path, server: EmbeddedRedis
) -> AsyncIterator[tuple[Sweep, Child, ServedModel]]:
    """A launch in mid-stream whose only worker is on ``node`` and has open episodes: the model holds them."""
    async with ServedModel() as model:
        sweep = Sweep.prepare(
            nursery,
            folder,
            redis=server.url,
            model=model.url,
            workers=1,
            lease_s=2.0,
            max_deliveries=20,
            ray=nodes.address,
        )
        child = sweep.start()
        await asyncio.to_thread(placed, WORKER, node, nodes.first)
        await eventually(lambda: len(sweep.rows()) >= 4, child)
        await held(model, child)
        yield sweep, child, model


async def held(model: ServedModel, child: Child) -> None:
    """Return when an open episode waits for the model, and will until it is released."""
    model.hold()
    await eventually(lambda: model.held > 0, child)


def test_one_actor_of_every_kind_dies_and_the_launch_ends_as_if_nothing_had_happened(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path
) -> None:
    """C1, C2, C8, D1: seven deaths in thirty episodes, no resume."""
    sweep = Sweep.prepare(nursery, tmp_path / "sweep", latency_s=0.1, lease_s=2.0, max_deliveries=20, ray="local")
    child = sweep.start()
    doomed = list(KINDS)
    while child.code() is None and doomed:
        if not sweep.launched or len(sweep.rows()) < 2 * (len(KINDS) - len(doomed)) + 1:
            time.sleep(0.05)
            continue
        for process in child.descendants():
            if titled(process, f"ray::{doomed[0]}Actor"):
                process.kill()
                doomed.pop(0)
                break
    started = child.descendants()
    assert child.end() == 0, child.said
    assert not doomed
    sweep.assert_as_if_nothing_had_happened(calm)
    assert not psutil.wait_procs(started, timeout=20)[1]


async def test_a_node_that_falls_silent_costs_its_leases_and_nothing_else(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, redis_server: EmbeddedRedis, nodes: Nodes
) -> None:
    """C1, D1, D2: the raylet of the second node is stopped; Ray starts the worker elsewhere, the old one lives on
    and works as well, and is ended in mid-episode when the node wakes up. Nothing counts twice."""
    second = await asyncio.to_thread(nodes.add)
    async with only_worker_on(second, nodes, nursery, tmp_path / "sweep", redis_server) as (sweep, child, model):
        [old] = second.processes(WORKER)
        second.silence()
        await eventually(lambda: bool(nodes.first.processes(WORKER)), child)
        assert old.status() != psutil.STATUS_ZOMBIE, "nobody told it"
        rows = len(sweep.rows())
        model.release()
        await eventually(lambda: len(sweep.rows()) >= rows + 4, child)
        await held(model, child)
        second.wake()
        # Ray has given the node up, and it is told so.
        await eventually(lambda: not old.is_running(), child)
        model.release()
        assert await asyncio.to_thread(child.end) == 0, child.said
    sweep.assert_as_if_nothing_had_happened(calm)


async def test_a_node_that_is_taken_away_costs_its_leases_and_nothing_else(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, redis_server: EmbeddedRedis, nodes: Nodes
) -> None:
    """C1, C8, D1: kill -9 of everything on the second node, a worker with open episodes among it; Ray starts its
    actors on the first."""
    second = await asyncio.to_thread(nodes.add)
    async with only_worker_on(second, nodes, nursery, tmp_path / "sweep", redis_server) as (sweep, child, model):
        await asyncio.to_thread(second.kill)
        model.release()
        assert await asyncio.to_thread(child.end) == 0, child.said
    sweep.assert_as_if_nothing_had_happened(calm)
    assert max(row["delivery"] for row in sweep.rows()) > 1, "what it held was delivered again"
