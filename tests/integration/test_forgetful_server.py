"""A server that restarts without its last second, under a driver that took note of what it has forgotten."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chime_dist.adapters.local.memory_store import MemoryStore
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.journal import RedisJournal
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.queue import RedisQueue
from chime_dist.core.episode import Proposal
from chime_dist.engine.driver import Ending
from chime_dist.ports import Change, Completed, Lease
from tests.integration.launching import RUN, Launched, UnreliableQueue, new_directory, plan_of
from tests.integration.toy import JitteryBackbone, ToyBenchmark

LISTENERS = 2
"""Who follows the changes: the driver and the bank's owner."""
FORGOTTEN = f"{RUN}:train:1"


class ForgetfulQueue(UnreliableQueue):
    """Position 1 is completed, everybody hears of it, and then nothing of it is left in the server: not its
    admission, not its completion. Position 0 waits for that, so that nothing of position 1 is committed."""

    def __init__(self, inner: RedisQueue, connection: RedisConnection, keys: RedisKeys) -> None:
        super().__init__(inner, seed=0, rate=0.0)
        self._commands = connection.commands
        self._keys = keys
        self._heard: set[asyncio.Task[object] | None] = set()
        self._took_note: set[asyncio.Task[object] | None] = set()
        self.forgot = asyncio.Event()

    async def complete(self, lease: Lease, proposal: Proposal | None) -> Completed:
        """Position 0 comes last."""
        if lease.unit.position == 0 and lease.unit.phase == "train":
            await self.forgot.wait()
        return await super().complete(lease, proposal)

    async def changes(self, since: str, timeout_s: float) -> tuple[str, list[Change]]:
        """Who comes again after it was told has taken note of what it was told."""
        listener = asyncio.current_task()
        if listener in self._heard:
            self._took_note.add(listener)
        if len(self._took_note) == LISTENERS and not self.forgot.is_set():
            await self._commands.hdel(self._keys.proposals(RUN), "1")
            await self._commands.hdel(self._keys.units, FORGOTTEN)
            self.forgot.set()
        cursor, changes = await super().changes(since, timeout_s)
        if any(change.unit == FORGOTTEN for change in changes):
            self._heard.add(listener)
        return cursor, changes


async def test_a_completion_that_the_server_forgot_with_its_admission_is_handed_in_again(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D10: the position was in nobody's hands any more, so the launch would wait for it for ever."""
    monkeypatch.setattr("chime_dist.engine.driver.RECHECK_S", 0.1)
    directory, benchmark = new_directory(tmp_path), ToyBenchmark(8)
    connection, keys, turn = RedisConnection(redis_url), RedisKeys(directory.id), DriverTurn()
    queue = ForgetfulQueue(RedisQueue(connection, keys, 30.0, turn), connection, keys)
    launched = Launched(
        directory,
        plan_of(benchmark, 4),
        benchmark,
        JitteryBackbone(0.0, 0),
        queue,
        RedisJournal(connection, keys, turn),
        MemoryStore(),
    )
    assert await asyncio.wait_for(launched.run(), 60.0) is Ending.COMPLETE
    assert queue.forgot.is_set()
    assert [entry.position for entry in await launched.entries()] == list(range(8))
    rows = directory.run(RUN).episodes.read_text().splitlines()
    assert len(rows) == 8, "what was finished was run again"
    await connection.close()
