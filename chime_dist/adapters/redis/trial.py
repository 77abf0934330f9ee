"""Everything that a launch asks of Redis, tried once on keys of nobody's, which are removed again."""

from __future__ import annotations

import time
import uuid

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_token import RedisDriverToken
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.journal import RedisJournal
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.pacer import RedisPacer
from chime_dist.adapters.redis.pending import pending_units
from chime_dist.adapters.redis.queue import RedisQueue
from chime_dist.core.episode import Unit
from chime_dist.core.pacing import PaceLimits, Pauses

_RUN = "trial"
_LASTS_S = 60.0


async def tried(connection: RedisConnection) -> None:
    """Walk two units through token, queue, pace and journal.

    Raises ServiceError, naming the command or the keys, where the user that we are lacks a right.
    """
    keys = RedisKeys(f"doctor-{uuid.uuid4().hex}")
    try:
        await _walk(connection, keys)
    finally:
        shared = (keys.driver, keys.turn, keys.ready, keys.units, keys.open, keys.changes)
        own = (keys.proposals(_RUN), keys.fence(_RUN), keys.journal(_RUN), keys.pace(_RUN), keys.flights(_RUN, ""))
        await connection.run("removing the trial's keys", lambda: connection.commands.delete(*shared, *own))


async def _walk(connection: RedisConnection, keys: RedisKeys) -> None:
    turn = DriverTurn()
    token, queue = RedisDriverToken(connection, keys, _LASTS_S), RedisQueue(connection, keys, _LASTS_S, turn)
    await token.take()
    await queue.reset()
    cursor, _ = await queue.changes("", 0.0)
    for position in range(2):
        await queue.admit(
            Unit(run_id=_RUN, phase="train", epoch=0, position=position, task="trial", read_version=0)
        )
    first, second = await queue.claim("doctor", 2, 1.0)
    await queue.renew([first, second])
    await pending_units(connection, keys)
    await queue.release(second)
    await queue.complete(first, None)
    await queue.proposal(_RUN, 0)
    await queue.forget(_RUN, 0)
    await queue.outstanding()
    await queue.changes(cursor, 0.0)
    journal, pacer = RedisJournal(connection, keys, turn), RedisPacer(connection, keys, _RUN, _LIMITS, Pauses())
    fence = await journal.take_fence(_RUN)
    await journal.append(_RUN, fence, 0, "{}")
    await journal.read(_RUN)
    await journal.head(_RUN)
    await pacer.enter("trial", 1, 1.0)
    await pacer.leave("trial", 0, None, answered=True)
    await token.leave()


_LIMITS = PaceLimits(max_in_flight=1, tokens_per_minute=1_000, requests_per_minute=1_000)


async def ahead_s(connection: RedisConnection) -> float:
    """How far the server's clock is ahead of this host's, in seconds. Raises ServiceError."""
    before = time.time()
    seconds, microseconds = await connection.run("reading TIME", connection.commands.time)
    return float(seconds) + float(microseconds) / 1e6 - (before + time.time()) / 2
