"""One nursery and one undisturbed run for the whole folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from chime_dist.adapters.redis.server import EmbeddedRedis
from tests.chaos.nursery import Nursery
from tests.chaos.sweeps import Sweep, Undisturbed


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where processes come from."""
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="session")
def calm(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The sweep as it runs when nobody touches it."""
    sweep = Sweep.prepare(nursery, tmp_path_factory.mktemp("calm") / "sweep")
    child = sweep.start()
    assert child.end() == 0, child.said
    events = {event.kind for entry in sweep.entries() for event in entry.events}
    assert {"content.insert", "content.merge"} <= events, "a world in which nothing happens proves nothing"
    return sweep.observed()


@pytest.fixture
async def redis_server(tmp_path: Path) -> AsyncIterator[EmbeddedRedis]:
    """A server that belongs to no launch and syncs every write (20 ms)."""
    server = await EmbeddedRedis.start(tmp_path / "redis")
    yield server
    await server.stop()
