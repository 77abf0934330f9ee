"""The pace of a backbone: the same in one process and in Redis, where many processes share it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.local.pacer import LocalPacer
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.pacer import RedisPacer
from chime_dist.adapters.redis.scripts import PaceScripts
from chime_dist.core.pacing import ROOM_POLL_S, Pace, PaceLimits, Pauses
from chime_dist.ports import Pacer

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.integers(0, 5), st.integers(0, 40), st.floats(0, 5)),
        st.tuples(
            st.just("leave"),
            st.integers(0, 5),
            st.integers(-40, 80),
            st.one_of(st.sampled_from(["answered", "broken"]), st.floats(0, 2000)),
        ),
        st.tuples(st.just("pass"), st.floats(0, 30)),
        st.tuples(st.just("set back"), st.floats(0, 4000)),
    ),
    max_size=30,
)
LIMITS = st.builds(
    PaceLimits,
    requests_per_minute=st.one_of(st.none(), st.integers(2, 60)),
    tokens_per_minute=st.one_of(st.none(), st.integers(2, 600)),
    max_in_flight=st.one_of(st.none(), st.integers(1, 3)),
)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[RedisConnection]:
    connection = RedisConnection(url)
    try:
        yield connection
    finally:
        await connection.close()


PAUSE_ANSWER_PAUSE = [
    *(("enter", 0, 0, 5.0), ("leave", 0, 0, 0.0), ("pass", 1.0)),
    *(("enter", 1, 0, 5.0), ("leave", 1, 0, "answered"), ("pass", 3.0)),
    *(("enter", 2, 0, 5.0), ("leave", 2, 0, 0.0), ("enter", 3, 0, 5.0)),
]
"""An answer between two slow-downs: the second pause is as short as the first."""
PAUSE_TIMEOUT_PAUSE = [
    ("leave", 1, 0, "broken") if step[:2] == ("leave", 1) else step for step in PAUSE_ANSWER_PAUSE
]
"""A call without an answer between them: it is twice as long."""


@example(limits=PaceLimits(), steps=PAUSE_ANSWER_PAUSE)
@example(limits=PaceLimits(), steps=PAUSE_TIMEOUT_PAUSE)
@settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(limits=LIMITS, steps=STEPS)
def test_redis_answers_like_the_rule(redis_url: str, limits: PaceLimits, steps: list[tuple[object, ...]]) -> None:
    """Every wait of every history agrees, whatever the limits."""

    async def walk() -> None:
        async with connected(redis_url) as connection:
            keys = RedisKeys(f"pace-{uuid.uuid4().hex}")
            scripts = PaceScripts(connection.commands, keys, "b", limits, Pauses(), "me", ["other"])
            now = 1_800_000_000.0
            pace = Pace(limits, now)
            for step in steps:
                match step:
                    case ("enter", int(call), int(tokens), float(lasts_s)):
                        expected = pace.enter(now, str(call), tokens, lasts_s)
                        answered = await scripts.enter(str(call), tokens, lasts_s, now=now)
                        assert answered == pytest.approx(expected, rel=1e-6, abs=1e-5)
                    case ("leave", int(call), int(beyond), end):
                        asked, answered = (end if isinstance(end, float) else None), end == "answered"
                        pace.leave(now, str(call), beyond, asked, answered=answered)
                        await scripts.leave(str(call), beyond, asked, answered=answered, now=now)
                    case ("pass", float(seconds)):
                        now += seconds
                    case ("set back", float(seconds)):
                        now -= seconds

    asyncio.run(walk())


@asynccontextmanager
async def two_callers(kind: str, redis_url: str, limits: PaceLimits) -> AsyncIterator[tuple[Pacer, Pacer]]:
    """Two parts of a launch that call one backbone: of one process, or of two."""
    if kind == "local":
        shared = LocalPacer(SystemClock(), limits, Pauses())
        yield shared, shared
        return
    async with connected(redis_url) as one, connected(redis_url) as other:
        keys = RedisKeys(f"pace-{uuid.uuid4().hex}")
        yield (
            RedisPacer(one, keys, "b", limits, Pauses(), "one", ["other"]),
            RedisPacer(other, keys, "b", limits, Pauses(), "other", ["one"]),
        )


@pytest.mark.parametrize("kind", ["local", "redis"])
async def test_a_slow_down_that_one_was_told_holds_for_the_other(kind: str, redis_url: str) -> None:
    """A9."""
    async with two_callers(kind, redis_url, PaceLimits()) as (one, other):
        assert await one.enter("a", 10, 60.0) == 0
        await one.leave("a", 0, 300.0, answered=False)
        assert 290 < await other.enter("b", 10, 60.0) <= 300


@pytest.mark.parametrize("kind", ["local", "redis"])
async def test_room_in_flight_is_shared(kind: str, redis_url: str) -> None:
    async with two_callers(kind, redis_url, PaceLimits(max_in_flight=1)) as (one, other):
        assert await one.enter("a", 10, 60.0) == 0
        assert await other.enter("b", 10, 60.0) > 0
        await one.leave("a", 0, None, answered=True)
        assert await other.enter("b", 10, 60.0) == 0


async def test_the_calls_of_a_process_that_was_killed_hold_no_places_of_the_one_that_follows_it(
    redis_url: str,
) -> None:
    """R60: a launch that was killed with its backbone full goes on at once, and the others' calls still count."""
    limits, keys = PaceLimits(max_in_flight=2), RedisKeys(f"pace-{uuid.uuid4().hex}")
    async with connected(redis_url) as connection:

        def starts(caller: str, other: str) -> RedisPacer:
            return RedisPacer(connection, keys, "b", limits, Pauses(), caller, [other])

        killed, lives = starts("executor", "planner"), starts("planner", "executor")
        assert await killed.enter("a", 10, 2460.0) == 0
        assert await lives.enter("b", 10, 2460.0) == 0
        follower = starts("executor", "planner")
        waits = await asyncio.gather(follower.enter("c", 10, 60.0), follower.enter("d", 10, 60.0))
        assert list(waits) == [0, ROOM_POLL_S]


async def test_a_command_that_is_sent_again_counts_once(redis_url: str) -> None:
    """D4: a lost reply makes the connection ask again."""
    limits = PaceLimits(requests_per_minute=24, tokens_per_minute=240)
    async with connected(redis_url) as connection:
        keys = RedisKeys(f"pace-{uuid.uuid4().hex}")
        scripts = PaceScripts(connection.commands, keys, "b", limits, Pauses(), "me", [])
        for _ in range(5):
            assert await scripts.enter("a", 20, 60.0, now=100.0) == 0
        assert await scripts.enter("b", 1, 60.0, now=100.0) == 0
        for _ in range(5):
            await scripts.leave("a", 10, None, answered=True, now=100.0)
        # Tokens: 20 held, 21 taken, 10 owed beyond: 11 short, at (240 - 20) / 60 a second.
        assert await scripts.enter("c", 1, 60.0, now=100.0) == pytest.approx(11 * 60 / 220)
