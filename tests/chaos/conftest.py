"""One nursery and one undisturbed run for the whole folder, and what holds after each of its tests."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from chime_dist.adapters.redis.server import EmbeddedRedis
from tests.chaos.nursery import Nursery
from tests.chaos.patience import until
from tests.chaos.sweeps import Sweep, Undisturbed, costs

GONE_S = 20.0
"""How long processes may take to end after a test, in seconds."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the disturbances cost."""
    if costs:
        terminalreporter.section("recovery: longest silence, repeated work")
        for cost in costs:
            terminalreporter.write_line(cost)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """After every test no process lives in its folder or was told about it."""
    yield
    with suppress(AssertionError):
        until(lambda: not inhabitants(tmp_path), GONE_S)
    assert inhabitants(tmp_path) == []


def inhabitants(folder: Path) -> list[str]:
    """Processes other than this one that work in ``folder`` or name it, by number and title."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            title = " ".join(process.cmdline())
            at_home = str(folder) in title or Path(process.cwd()).is_relative_to(folder)
            if at_home and process.pid != os.getpid():
                found.append(f"{process.pid} {title}")
    return found


@pytest.fixture(scope="session")
def nursery(ray_sessions: None) -> Iterator[Nursery]:
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
