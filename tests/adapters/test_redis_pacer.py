"""The shared pace at a Redis that is full or gone: a call waits for its backbone's limits, not for our server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.local import pacer_fallback
from chime_dist.adapters.local.pacer import LocalPacer
from chime_dist.adapters.local.pacer_fallback import FallbackPacer
from chime_dist.adapters.models.chat import ChatBackbone
from chime_dist.adapters.models.chat_request import ChatSettings
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.pacer import RedisPacer
from chime_dist.adapters.redis.server import EmbeddedRedis
from chime_dist.core.model_call import ChatRequest
from chime_dist.core.pacing import PaceLimits, Pauses
from chime_dist.core.retry import RetryPolicy
from chime_dist.ports import Pacer
from tests.adapters.stub_server import StubServer, answers

ASK = ChatRequest(messages=({"role": "user", "content": "Where is Paris?"},), session_id="run:train:12")
LIMITS = PaceLimits(requests_per_minute=600, tokens_per_minute=60_000, max_in_flight=2)


@asynccontextmanager
async def asking(pacer: Pacer) -> AsyncIterator[ChatBackbone]:
    """A backbone that answers, paced by ``pacer``."""
    async with StubServer([answers()]) as server:
        settings = ChatSettings(name="stub", base_url=server.url, model="m", retry=RetryPolicy(max_retries=0))
        backbone = ChatBackbone(settings, SystemClock(), pacer=pacer)
        try:
            yield backbone
        finally:
            await backbone.close()


async def test_at_the_memory_limit_calls_go_on_and_their_limits_hold(tmp_path: Path) -> None:
    """D7: open episodes must come to their end, or nothing would ever be handed in and make room."""
    server = await EmbeddedRedis.start(tmp_path)
    connection = RedisConnection(server.url, patience_s=0.2)
    pacer = RedisPacer(connection, RedisKeys("full"), "m", LIMITS, Pauses())
    await connection.commands.config_set("maxmemory", 1)
    try:
        async with asking(pacer) as backbone:
            replies = await asyncio.gather(*(backbone.complete(ASK, budget_s=20) for _ in range(3)))
        assert [reply.text for reply in replies] == ["ok"] * 3
        assert [await pacer.enter(call, 10, 60.0) for call in "ab"] == [0, 0]
        assert await pacer.enter("c", 10, 60.0) > 0
        await pacer.leave("a", 0, 300.0, answered=False)
        assert await pacer.enter("c", 10, 60.0) > 290
    finally:
        await connection.close()
        await server.stop()


async def test_calls_outlive_their_redis_and_share_it_again_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D6: a call that was let in ends while Redis is gone, others begin; afterwards every place is there."""
    monkeypatch.setattr(pacer_fallback, "AGAIN_S", 0.0)
    server = await EmbeddedRedis.start(tmp_path)
    connection, clock = RedisConnection(server.url, patience_s=0.1), SystemClock()
    shared = RedisPacer(connection, RedisKeys("gone"), "m", LIMITS, Pauses())
    pacer = FallbackPacer("m", shared, LocalPacer(clock, LIMITS.share(2), Pauses()), clock)
    assert await pacer.enter("a", 10, 600.0) == 0
    await server.stop()
    async with asking(pacer) as backbone:
        replies = await asyncio.gather(*(backbone.complete(ASK, budget_s=20) for _ in range(2)))
    await pacer.leave("a", 0, None, answered=True)
    assert [reply.text for reply in replies] == ["ok"] * 2
    server = await EmbeddedRedis.start(tmp_path)
    try:
        assert [await pacer.enter(call, 10, 600.0) for call in "bc"] == [0, 0]
        assert await shared.enter("d", 10, 600.0) > 0, "both are in where everybody sees them"
    finally:
        await connection.close()
        await server.stop()
