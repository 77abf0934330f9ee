"""The journals of one launch in Redis: a list of sealed lines and a fence per run."""

from __future__ import annotations

from typing import cast

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.scripts import JournalScripts
from chime_dist.ports import Appended

_PAGE = 256
"""Lines in one read: a line with vectors is tens of kilobytes, and the server serves nobody else meanwhile."""


class RedisJournal:
    """Implements ``ports.Journal``. Durable on return where the server syncs always (``redis_preflight``).

    Every method raises ServiceError when Redis stays unreachable or has lost the launch's keys (D7); those that
    write raise TurnOverError where another driver has begun a turn.
    """

    def __init__(self, connection: RedisConnection, keys: RedisKeys, turn: DriverTurn) -> None:
        """``turn`` is the process's, which its queue shares."""
        self._connection = connection
        self._keys = keys
        self._scripts = JournalScripts(connection.commands, keys, turn)

    async def take_fence(self, run_id: str) -> int:
        """See ``ports.Journal``. Re-sent after a lost reply it skips a number, which is harmless."""
        return await self._connection.run(f"taking a fence of {run_id}", lambda: self._scripts.take_fence(run_id))

    async def append(self, run_id: str, fence: int, position: int, line: str) -> Appended:
        """See ``ports.Journal``.

        A line that is there answers ALREADY_SAME whoever owns the journal now, so a command that is re-sent after
        a lost reply never reads as fenced (D4); then turn, fence and head are checked in this order. Raises
        ValueError for a negative position or a line that is not one line, ServiceError for a fence that was never
        given.
        """
        if position < 0 or not line or "\n" in line:
            raise ValueError(f"position {position}: a journal holds non-empty single lines from position 0 on")
        answer = await self._connection.run(
            f"appending position {position} of {run_id}",
            lambda: self._scripts.append(run_id, fence, position, line),
        )
        return Appended(answer)

    async def read(self, run_id: str, start: int = 0) -> list[str]:
        """See ``ports.Journal``."""
        name, lines = self._keys.journal(run_id), list[str]()
        while True:
            first = start + len(lines)
            page = await self._connection.run(
                f"reading the journal of {run_id}",
                lambda: self._connection.commands.lrange(name, first, first + _PAGE - 1),  # noqa: B023 - awaited here
            )
            lines += cast("list[str]", page)
            if len(page) < _PAGE:
                return lines

    async def head(self, run_id: str) -> int:
        """See ``ports.Journal``."""
        name = self._keys.journal(run_id)
        return int(
            await self._connection.run(
                f"reading the head of {run_id}", lambda: self._connection.commands.llen(name)
            )
        )
