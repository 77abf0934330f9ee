"""The host of the bank's owner is cut off from everybody else, and comes back after it was replaced."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from chime_dist.adapters.redis.server import EmbeddedRedis
from tests.chaos.fleets import BANK, DRIVER, Fleet
from tests.chaos.nursery import FAILED, Nursery
from tests.chaos.parts import NETWORK
from tests.chaos.patience import eventually
from tests.chaos.sweeps import Sweep, Undisturbed

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

OUTSIDE, INSIDE = "198.18.77.1", "198.18.77.2"
"""Out of the block that is reserved for tests of networks."""


@dataclass(frozen=True, slots=True)
class Host:
    """A network namespace with one link to ours."""

    name: str

    @property
    def link(self) -> str:
        """Our end of it."""
        return f"{self.name}a"

    def build(self) -> None:
        """Make both; the link is up."""
        inside = f"{self.name}b"
        _ip("netns", "add", self.name)
        _ip("link", "add", self.link, "type", "veth", "peer", "name", inside, "netns", self.name)
        _ip("addr", "add", f"{OUTSIDE}/30", "dev", self.link)
        _ip("-n", self.name, "addr", "add", f"{INSIDE}/30", "dev", inside)
        for words in (("link", "set", self.link, "up"), ("-n", self.name, "link", "set", inside, "up")):
            _ip(*words)

    def cut(self) -> None:
        """Nothing passes any more, and nobody is told."""
        _ip("link", "set", self.link, "down")

    def heal(self) -> None:
        """Everything passes again."""
        _ip("link", "set", self.link, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=10)


@pytest.fixture
def host() -> Iterator[Host]:
    """A host of its own, gone after the test; made by root only."""
    if os.geteuid() != 0:
        pytest.skip("NOT RUN: a partition of hosts needs root (network namespaces); run `make chaos` as root")
    host = Host(f"cd{os.getpid() % 100_000}")
    try:
        host.build()
        yield host
    finally:
        # The link's other end, and thereby the link, goes with its namespace.
        subprocess.run(["ip", "netns", "del", host.name], check=False, capture_output=True, timeout=10)


@asynccontextmanager
async def over_tcp(socket: Path) -> AsyncIterator[str]:
    """The server behind ``socket`` at an address that the other host reaches too."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(socket)
        await asyncio.gather(pump(reader, to_server), pump(from_server, writer))

    server = await asyncio.start_server(accept, OUTSIDE)
    try:
        yield f"redis://{OUTSIDE}:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()


async def test_an_owner_whose_host_was_cut_off_appends_nothing_when_it_is_back(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, redis_server: EmbeddedRedis, host: Host
) -> None:
    """R7, D2, design "BankActor": its append is on the way while the link is down; a newer owner has the fence."""
    async with over_tcp(redis_server.socket) as url:
        fleet = Fleet(Sweep.prepare(nursery, tmp_path / "sweep", redis=url, lease_s=2.0, max_deliveries=20))
        fleet.start_all(bank={NETWORK: host.name, "CHIME_FAULT_STOP": "bank.committing:6"})
        stale = fleet.parts[BANK]
        await eventually(lambda: stale.stopped)
        host.cut()
        stale.signal(signal.SIGCONT)
        current = fleet.start(BANK, {"CHIME_FAULT_STOP": "bank.appended:4"})
        await eventually(lambda: current.stopped)
        assert stale.code() is None, "it lives on and does not know"
        host.heal()
        assert await asyncio.to_thread(stale.end) == FAILED
        assert "FencedError" in stale.said
        current.signal(signal.SIGCONT)
        assert await asyncio.to_thread(fleet.keep_up) == 0, fleet.parts[DRIVER].said
    fleet.sweep.assert_as_if_nothing_had_happened(calm)
