"""The host of the bank's owner is cut off from everybody else, and comes back after it was replaced."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from chime_dist.adapters.redis.server import EmbeddedRedis
from tests.chaos.fleets import BANK, DRIVER, Fleet
from tests.chaos.nursery import FAILED, Nursery
from tests.chaos.parts import NETWORK
from tests.chaos.patience import eventually
from tests.chaos.placement import placed
from tests.chaos.ray_hosts import BRIDGE, RayHosts, ip
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
        ip("netns", "add", self.name)
        ip("link", "add", self.link, "type", "veth", "peer", "name", inside, "netns", self.name)
        ip("addr", "add", f"{OUTSIDE}/30", "dev", self.link)
        ip("-n", self.name, "addr", "add", f"{INSIDE}/30", "dev", inside)
        for words in (("link", "set", self.link, "up"), ("-n", self.name, "link", "set", inside, "up")):
            ip(*words)

    def cut(self) -> None:
        """Nothing passes any more, and nobody is told."""
        ip("link", "set", self.link, "down")

    def heal(self) -> None:
        """Everything passes again."""
        ip("link", "set", self.link, "up")


@pytest.fixture
def as_root() -> None:
    """Hosts are made by root only."""
    if os.geteuid() != 0:
        pytest.skip("NOT RUN: a partition of hosts needs root (network namespaces); run `make chaos` as root")


@pytest.fixture
def host(as_root: None) -> Iterator[Host]:
    """A host of its own, gone after the test."""
    host = Host(f"cd{os.getpid() % 100_000}")
    try:
        host.build()
        yield host
    finally:
        # The link's other end, and thereby the link, goes with its namespace.
        subprocess.run(["ip", "netns", "del", host.name], check=False, capture_output=True, timeout=10)


@dataclass(slots=True)
class Relay:
    """A server behind a unix socket, at an address that other hosts reach too."""

    url: str = ""
    refused: list[str] = field(default_factory=list)
    """Addresses of clients whose append was answered with ``fenced``, each time."""


@asynccontextmanager
async def over_tcp(socket: Path, address: str = OUTSIDE) -> AsyncIterator[Relay]:
    """Relay inside the block."""
    relay = Relay()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: str = "") -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if client and b"\r\nfenced\r\n" in data:
                    relay.refused.append(client)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(socket)
        client = writer.get_extra_info("peername")[0]
        await asyncio.gather(pump(reader, to_server), pump(from_server, writer, client))

    server = await asyncio.start_server(accept, address)
    try:
        relay.url = f"redis://{address}:{server.sockets[0].getsockname()[1]}/0"
        yield relay
    finally:
        server.close()


async def test_an_owner_whose_host_was_cut_off_appends_nothing_when_it_is_back(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, redis_server: EmbeddedRedis, host: Host
) -> None:
    """R7, D2, design "BankActor": its append is on the way while the link is down; a newer owner has the fence."""
    async with over_tcp(redis_server.socket) as relay:
        fleet = Fleet(Sweep.prepare(nursery, tmp_path / "sweep", redis=relay.url, lease_s=2.0, max_deliveries=20))
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
        assert relay.refused == [INSIDE]
        current.signal(signal.SIGCONT)
        assert await asyncio.to_thread(fleet.keep_up) == 0, fleet.parts[DRIVER].said
    fleet.sweep.assert_as_if_nothing_had_happened(calm)


@pytest.mark.usefixtures("as_root")
async def test_a_bank_actor_whose_host_is_cut_off_is_replaced_on_another_and_appends_nothing_when_it_is_back(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, redis_server: EmbeddedRedis
) -> None:
    """R7, C1, D2, design "BankActor": three hosts under Ray. The owner stands before its third append when its
    host falls silent; Ray starts another owner elsewhere, which takes a new fence and goes on; then the link is
    back, the old owner is still alive, and its append is refused."""
    with RayHosts(nursery, tmp_path / "hosts") as hosts:
        first, second, third = hosts.hosts
        head = hosts.join(first)
        doomed = hosts.join(second, {"CHIME_FAULT_STOP": "bank.committing:3"})
        await eventually(lambda: hosts.joined(head) and hosts.joined(doomed))
        async with over_tcp(redis_server.socket, BRIDGE) as relay:
            sweep = Sweep.prepare(
                nursery,
                tmp_path / "sweep",
                redis=relay.url,
                qdrant="memory",
                latency_s=0.3,
                lease_s=2.0,
                max_deliveries=20,
                ray=hosts.address,
            )
            child = hosts.sweep(sweep.folder)
            stale = await asyncio.to_thread(placed, "ray::BankActor", second, first)
            # With it a worker, which asks the old owner for a while when the link is back.
            await asyncio.to_thread(placed, "ray::WorkerActor", second, first)
            other = hosts.join(third)
            await eventually(lambda: hosts.joined(other) and stale.status() == psutil.STATUS_STOPPED, child)
            [raylet] = second.processes("/raylet/raylet")
            # Else it would end its actors as soon as it hears that it was given up.
            raylet.suspend()
            second.cut()
            before = committed(sweep)
            await eventually(lambda: committed(sweep) > before, child)
            stale.resume()
            second.heal()
            await eventually(lambda: second.address in relay.refused, child)
            raylet.resume()
            assert await asyncio.to_thread(child.end) == 0, child.said
        assert set(relay.refused) == {second.address}
    sweep.assert_as_if_nothing_had_happened(calm)


def committed(sweep: Sweep) -> int:
    """Positions in journal.jsonl."""
    return sum(path.read_bytes().count(b"\n") for path in sweep.launch.rglob("journal.jsonl"))
