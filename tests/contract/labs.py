"""Queues and journals to put under test, each with a hand on its clock."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from chime_dist.adapters.directory.file_journal import FileJournal
from chime_dist.adapters.local.change_feed import ChangeFeed
from chime_dist.adapters.local.queue import LocalQueue
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.journal import RedisJournal
from chime_dist.adapters.redis.keys import NOBODY, RedisKeys
from chime_dist.adapters.redis.queue import RedisQueue
from chime_dist.adapters.redis.server import EmbeddedRedis
from chime_dist.adapters.redis.tls import TlsFiles
from chime_dist.core.episode import Outcome, Proposal, Unit
from chime_dist.ports import Journal, Queue
from tests.adapters.tls_proxy import Authority

PASSWORD = "launch-password"
"""Of the user with the fewest rights."""

LEASE_S = 60.0
"""Longer than any test: leases run out only where a test lets time pass."""

Kind = Literal["local", "redis", "secured"]
"""In this process; a server; the same over TLS with a client's certificate, by a user with the fewest rights."""


def train_unit(position: int = 0, run_id: str = "run") -> Unit:
    return Unit(run_id=run_id, phase="train", epoch=0, position=position, task=f"task {position}", read_version=0)


def eval_unit(position: int = 0, run_id: str = "run") -> Unit:
    return Unit(run_id=run_id, phase="eval", epoch=1, position=position, task=f"task {position}", read_version=7)


def proposal_of(unit: Unit, attempt: str = "first") -> Proposal:
    return Proposal(
        run_id=unit.run_id,
        position=unit.position,
        task=unit.task,
        attempt=attempt,
        read_version=unit.read_version,
        outcome=Outcome.SUCCESS,
        diagnosis={"label": "planning", "confidence": 0.1 + 0.2},
        content={"plan": {"scenario": "订单 “A”\n\t{}", "vector": "AACAPwAAAMA="}},
    )


class SkippingClock:
    """Real time that a test can put forward."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def skip(self, seconds: float) -> None:
        """Put the clock forward."""
        self._skipped += seconds

    def now(self) -> datetime:
        """See ``ports.Clock``."""
        return datetime.now(UTC) + timedelta(seconds=self._skipped)

    def monotonic(self) -> float:
        """See ``ports.Clock``."""
        return time.monotonic() + self._skipped

    async def sleep(self, seconds: float) -> None:
        """See ``ports.Clock``. Takes real time, so that waits end."""
        await asyncio.sleep(seconds)


class Lab(ABC):
    """A queue, a journal that tells the queue's change feed, and time that passes on demand."""

    queue: Queue
    journal: Journal

    @abstractmethod
    async def pass_time(self, seconds: float) -> None:
        """Make every lease ``seconds`` older."""


class LocalLab(Lab):
    """Everything in this process, files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._clock = SkippingClock()
        feed = ChangeFeed(self._clock)
        self.queue = LocalQueue(self._clock, feed, LEASE_S)
        self.journal = FileJournal(lambda run_id: folder / run_id, feed)

    async def pass_time(self, seconds: float) -> None:
        """See ``Lab``."""
        self._clock.skip(seconds)


class RedisLab(Lab):
    """A launch of its own on a real server."""

    def __init__(
        self,
        url: str,
        lease_s: float = LEASE_S,
        keys: RedisKeys | None = None,
        files: TlsFiles = TlsFiles(),  # noqa: B008 - frozen
        turn: str = "",
    ) -> None:
        self.turn = DriverTurn(turn)
        self.keys = keys or RedisKeys(f"test-{uuid.uuid4()}")
        self.connection = RedisConnection(url, patience_s=5.0, files=files)
        self.queue: RedisQueue = RedisQueue(self.connection, self.keys, lease_s, self.turn)
        self.journal = RedisJournal(self.connection, self.keys, self.turn)

    def joined(self, url: str, lease_s: float = LEASE_S) -> RedisLab:
        """Another process's view of the same launch, in the turn that this one has now."""
        return RedisLab(url, lease_s, self.keys, turn=self.turn.name)

    async def pass_time(self, seconds: float) -> None:
        """Set the server's idle times back; owners and delivery counts stay (JUSTID)."""
        redis = self.connection.commands
        for row in await redis.xpending_range(self.keys.ready, self.turn.name, "-", "+", 1000):
            if row["consumer"] == NOBODY:
                continue  # idle since 1970; there is no earlier time
            idle = int(row["time_since_delivered"]) + round(seconds * 1000)
            entry, owner = str(row["message_id"]), str(row["consumer"])
            await redis.xclaim(self.keys.ready, self.turn.name, owner, 0, [entry], idle=idle, justid=True)

    async def clean(self) -> None:
        """Remove the launch's keys."""
        redis = self.connection.commands
        async for name in redis.scan_iter(match=self.keys.pattern):
            await redis.delete(name)


@asynccontextmanager
async def open_lab(kind: Kind, url: str, folder: Path) -> AsyncIterator[Lab]:
    """A lab whose queue has been reset once; its Redis keys are removed afterwards."""
    if kind == "local":
        local = LocalLab(folder)
        await local.queue.reset()
        yield local
        await local.queue.close()
        return
    async with open_redis_lab(url) if kind == "redis" else _open_secured_lab(url, folder) as lab:
        yield lab


def launch_user() -> list[str]:
    """The rules of the user that deploy/redis.conf recommends, with ``PASSWORD``."""
    conf = Path(__file__).parents[2] / "deploy" / "redis.conf"
    [line] = re.findall(r"^# user chime (.*)$", conf.read_text(encoding="utf-8"), re.MULTILINE)
    return [rule.replace(">PASSWORD", f">{PASSWORD}") for rule in str(line).split(" ")]


async def set_user(connection: RedisConnection, rules: Sequence[str]) -> None:
    """Give the user ``chime`` these rules and no others."""
    server: Any = connection.commands
    await server.execute_command("ACL", "SETUSER", "chime", "reset", *rules)


@asynccontextmanager
async def _open_secured_lab(url: str, folder: Path) -> AsyncIterator[RedisLab]:
    owner = RedisLab(url)
    await set_user(owner.connection, launch_user())
    authority = Authority.founded(folder)
    try:
        async with authority.listening(url, ask_client=True) as port:
            secured = f"rediss://chime:{PASSWORD}@localhost:{port}/0"
            lab = RedisLab(secured, keys=owner.keys, files=authority.client())
            await lab.queue.reset()
            try:
                yield lab
            finally:
                await lab.queue.close()
        await owner.clean()
    finally:
        await owner.queue.close()


@asynccontextmanager
async def open_redis_lab(url: str, lease_s: float = LEASE_S) -> AsyncIterator[RedisLab]:
    """The same, for tests that look into Redis."""
    lab = RedisLab(url, lease_s)
    await lab.queue.reset()
    try:
        yield lab
        await lab.clean()
    finally:
        await lab.queue.close()


@contextmanager
def redis_server() -> Iterator[str]:
    """URL of the Redis under test: CHIME_TEST_REDIS_URL where it is set, else an embedded server of our own."""
    if url := os.environ.get("CHIME_TEST_REDIS_URL"):
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="chime-test-") as folder:
        server = asyncio.run(EmbeddedRedis.start(Path(folder)))
        try:
            yield server.url
        finally:
            asyncio.run(server.stop())
