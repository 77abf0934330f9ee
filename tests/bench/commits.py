"""Train commits per second through the bank's owner, beside bare appends of the same journal lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.directory.durable_file import AppendLog
from chime_dist.adapters.directory.file_journal import FileJournal
from chime_dist.adapters.local.change_feed import ChangeFeed
from chime_dist.adapters.local.queue import LocalQueue
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.journal import RedisJournal
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.queue import RedisQueue
from chime_dist.ports import Journal, Queue
from tests.bench.banks import OneBank, fill, proposals
from tests.bench.measurement import Mark, Measurement, alone, scratch
from tests.bench.rig import redis_connection

Kind = Literal["file", "redis always", "redis everysec"]

_LEASE_S = 60.0


class _Case(NamedTuple):
    kind: Kind
    items: int
    """In the bank at the start."""
    commits: int


_FULL = (
    _Case("file", 0, 400),
    _Case("redis always", 0, 400),
    _Case("redis everysec", 0, 400),
    _Case("file", 4000, 40),
)
_QUICK = (_Case("file", 4, 8), _Case("redis always", 0, 8))


class _Opened(NamedTuple):
    queue: Queue
    journal: Journal
    append: Callable[[str], Awaitable[object]]
    """One bare durable append."""


async def measure(quick: bool) -> list[Measurement]:
    """Commits per second by journal; each inserts two memories of 1,024 dimensions and moves six."""
    found: list[Measurement] = []
    for case in _QUICK if quick else _FULL:
        found += alone(_measure, case)
    return found


async def _measure(case: _Case) -> list[Measurement]:
    with scratch() as folder:
        async with _opened(case.kind, folder) as parts:
            bank = OneBank(folder, parts.queue, parts.journal, "memory")
            await parts.queue.reset()
            start = await fill(parts.journal, bank.run_id, case.items)
            await bank.owner.open()
            for proposal in proposals(bank.run_id, start, case.commits):
                await parts.queue.submit(proposal)
            began = Mark.now()
            await bank.commit_until(start + case.commits)
            spent = Mark.now().since(began)
            lines = await parts.journal.read(bank.run_id, start)
            began = Mark.now()
            for line in lines:
                await parts.append(line)
            bare = Mark.now().since(began)
            await bank.owner.close()
    name = f"{case.kind}, {case.items:,} items at the start"
    return [
        Measurement(
            bench="commits",
            case=name,
            metric="commits",
            unit="1/s",
            value=case.commits / spent.wall_s,
            floor=case.commits / bare.wall_s,
            floor_of="bare durable appends of the same lines",
            better="higher",
        ),
        Measurement(
            bench="commits",
            case=name,
            metric="CPU per commit",
            unit="ms",
            value=1000 * spent.cpu_s / case.commits,
            floor=1000 * bare.cpu_s / case.commits,
            floor_of="bare durable appends of the same lines",
        ),
    ]


@asynccontextmanager
async def _opened(kind: Kind, folder: Path) -> AsyncIterator[_Opened]:
    if kind == "file":
        clock = SystemClock()
        feed = ChangeFeed(clock)
        log = AppendLog(folder / "bare.jsonl")

        async def append(line: str) -> object:
            return log.append([line.encode()])

        yield _Opened(LocalQueue(clock, feed, _LEASE_S), FileJournal(lambda run_id: folder / run_id, feed), append)
        log.close()
        return
    async with redis_connection(folder, "always" if kind == "redis always" else "everysec") as connection:
        keys = RedisKeys("bench")

        async def push(line: str) -> object:
            return await connection.commands.rpush("bare", line)

        turn = DriverTurn()
        queue, journal = RedisQueue(connection, keys, _LEASE_S, turn), RedisJournal(connection, keys, turn)
        yield _Opened(queue, journal, push)
