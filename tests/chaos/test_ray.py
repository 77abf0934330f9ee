"""Under Ray: actors of every kind die by kill -9, and a node falls silent; the launch goes on."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import psutil
import pytest

from chime_dist.adapters.redis.server import EmbeddedRedis
from tests.chaos.nursery import Nursery
from tests.chaos.patience import eventually
from tests.chaos.ray_nodes import TwoNodes
from tests.chaos.sweeps import Sweep, Undisturbed

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

KINDS = ("Embedder", "Planner", "Worker", "Bank", "Executor", "Record", "Gate")
"""In the order in which they die; every kind has work left when its turn comes."""
PATIENCE_S = 240.0


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
            if _title(process).startswith(f"ray::{doomed[0]}Actor"):
                process.kill()
                doomed.pop(0)
                break
    started = child.descendants()
    assert child.end(PATIENCE_S) == 0, child.said
    assert not doomed
    sweep.assert_as_if_nothing_had_happened(calm)
    assert not psutil.wait_procs(started, timeout=20)[1]


async def test_a_node_that_falls_silent_costs_its_leases_and_nothing_else(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, redis_server: EmbeddedRedis
) -> None:
    """C1, D1, D2: the raylet of the second node is stopped; Ray starts its actors elsewhere, their old processes
    live on, and when the node wakes up nothing of theirs counts twice."""
    with TwoNodes(nursery, tmp_path / "nodes") as nodes:
        sweep = Sweep.prepare(
            nursery,
            tmp_path / "sweep",
            redis=redis_server.url,
            latency_s=0.2,
            lease_s=2.0,
            max_deliveries=20,
            ray=nodes.address,
        )
        child = sweep.start()
        await eventually(lambda: sweep.launched and len(sweep.rows()) >= 4)
        silent = psutil.Process(nodes.raylet)
        assert any("Actor" in _title(process) for process in silent.children()), "nothing runs on the second node"
        silent.suspend()
        rows = len(sweep.rows())
        await eventually(lambda: child.code() is not None or len(sweep.rows()) >= rows + 12)
        silent.resume()
        assert await asyncio.to_thread(child.end, PATIENCE_S) == 0, child.said
    sweep.assert_as_if_nothing_had_happened(calm)


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
