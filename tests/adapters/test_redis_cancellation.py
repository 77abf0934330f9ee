"""Whoever cancels a task that talks to Redis may wait for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from chime_dist.adapters.redis.connection import RedisConnection
from tests.contract.labs import redis_server


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


async def _command(connection: RedisConnection) -> None:
    await connection.run("a command", lambda: connection.commands.hget("no-hash", "no-field"))


async def _waiting(connection: RedisConnection) -> None:
    await connection.wait("a wait", lambda: connection.blocking.xread({"no-stream": "0"}, count=1, block=50))


@pytest.mark.parametrize("talk", [_command, _waiting])
async def test_a_task_that_is_cancelled_at_any_turn_of_the_loop_ends(
    redis_url: str, talk: Callable[[RedisConnection], Awaitable[None]]
) -> None:
    """redis-py sends under ``asyncio.wait_for``, which forgets some cancellations before Python 3.12."""
    connection = RedisConnection(redis_url)
    await talk(connection)

    async def talk_then_idle() -> None:
        await talk(connection)
        await asyncio.Event().wait()

    try:
        for turns in range(12):
            task = asyncio.create_task(talk_then_idle())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            _, running = await asyncio.wait([task], timeout=5.0)
            assert not running, f"cancelled after {turns} turns, it went on"
            assert task.cancelled()
    finally:
        await connection.close()


async def test_a_timeout_around_a_command_stays_a_timeout(redis_url: str) -> None:
    """The cancellation that a timeout uses is its own to translate."""
    connection = RedisConnection(redis_url)

    async def ask_for_ever() -> None:
        async with asyncio.timeout(0.01):
            while True:
                await _command(connection)

    try:
        with pytest.raises(TimeoutError):
            await ask_for_ever()
        await _command(connection)
    finally:
        await connection.close()
