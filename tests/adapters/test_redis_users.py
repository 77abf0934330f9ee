"""Redis users with the fewest rights that a launch needs, and what is said where one is missing."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_token import RedisDriverToken
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.journal import RedisJournal
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.launch_keys import LaunchKeys
from chime_dist.adapters.redis.pacer import RedisPacer
from chime_dist.adapters.redis.pending import pending_units
from chime_dist.adapters.redis.preflight import Fitness, preflight
from chime_dist.adapters.redis.queue import RedisQueue
from chime_dist.config.cluster import ClusterConfig
from chime_dist.core.pacing import PaceLimits, Pauses
from chime_dist.errors import ServiceError
from chime_dist.ports import Appended, Completed
from chime_dist.wiring.health.servers import redis_finding
from tests.adapters.lossy_proxy import LossyProxy
from tests.contract.labs import LEASE_S, PASSWORD, launch_user, proposal_of, redis_server, set_user, train_unit

BY_PYTHON = {"info", "config|get", "select", "time", "script|load", "evalsha"} | {
    *("hdel", "hget", "incrby", "llen", "lrange", "xpending", "xrange", "xread", "xreadgroup", "scan", "unlink")
}
"""What the adapters send beside what their scripts call."""


MINIMAL = launch_user()
ALL_BUT_DANGEROUS = ["on", f">{PASSWORD}", "~chime:*", "+@all", "-@dangerous"]


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture
async def admin(redis_url: str) -> AsyncIterator[RedisConnection]:
    connection = RedisConnection(redis_url)
    yield connection
    await connection.commands.acl_deluser("chime")
    await connection.close()


async def user(admin: RedisConnection, rules: list[str]) -> str:
    """The URL of a user with these rules and no others."""
    await set_user(admin, rules)
    return f"unix://chime:{PASSWORD}@{admin.address}?db=0"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[RedisConnection]:
    connection = RedisConnection(url, patience_s=600.0)
    try:
        async with asyncio.timeout(60):
            yield connection
    finally:
        await connection.close()


async def everything(connection: RedisConnection) -> None:
    """What queue, journal, pace, driver token, the look at leases and the cleaning ask of a server."""
    keys = RedisKeys(f"test-{uuid.uuid4()}")
    turn = DriverTurn()
    queue, journal = RedisQueue(connection, keys, LEASE_S, turn), RedisJournal(connection, keys, turn)
    token = RedisDriverToken(connection, keys, LEASE_S)
    await token.take()
    await queue.reset()
    for position in range(3):
        assert await queue.admit(train_unit(position))
    first, second, third = await queue.claim("w", 3, 0.0)
    assert await queue.claim("w", 1, 0.01) == []
    assert await queue.renew([first, second]) == []
    assert await queue.release(third)
    assert len(await pending_units(connection, keys)) == 3
    assert await queue.complete(first, proposal_of(first.unit)) is Completed.STORED
    await queue.submit(proposal_of(second.unit))
    assert await queue.proposal("run", 1) is not None
    await queue.forget("run", 1)
    assert len(await queue.outstanding()) == 2
    cursor, told = await queue.changes("0-0", 0.0)
    assert [change.kind for change in told] == ["completed", "completed"]
    assert await queue.changes(cursor, 0.01) == (cursor, [])
    fence = await journal.take_fence("run")
    assert await journal.append("run", fence, 0, "line") is Appended.APPENDED
    assert (await journal.read("run"), await journal.head("run")) == (["line"], 1)
    pacer = RedisPacer(connection, keys, "m", PaceLimits(max_in_flight=1, requests_per_minute=60), Pauses())
    assert await pacer.enter("call", 10, 60.0) == 0
    await pacer.leave("call", 0, 0.0, answered=False)
    await token.leave()
    left = LaunchKeys(connection, keys)
    assert await left.remove() > 0
    assert await left.count() == 0


async def test_the_documented_user_can_do_all_that_a_launch_does(admin: RedisConnection) -> None:
    url = await user(admin, MINIMAL)
    async with connected(url) as connection:
        assert (await preflight(connection)).appendfsync == "always"
        await everything(connection)


def test_the_documented_user_may_do_nothing_that_is_not_needed() -> None:
    """The commands in our scripts, and the few that are sent without one."""
    scripts = files("chime_dist.adapters.redis").joinpath("lua")
    calls = "".join(script.read_text() for script in scripts.iterdir() if script.name.endswith(".lua"))
    needed = BY_PYTHON | {name.lower() for name in re.findall(r"redis\.p?call\('(\w+)'", calls)}
    assert {rule[1:] for rule in MINIMAL if rule.startswith("+")} == needed
    assert [rule for rule in MINIMAL if rule.startswith(("~", "&", "-"))] == ["~chime:*", "-@all"]


async def test_a_user_without_dangerous_commands_works_where_durability_is_vouched_for(
    admin: RedisConnection,
) -> None:
    """D7: INFO and CONFIG are dangerous to Redis; version and kind are still looked at."""
    url = await user(admin, ALL_BUT_DANGEROUS)
    async with connected(url) as connection:
        with pytest.raises(ServiceError, match=r"INFO is forbidden .*\+info, or set redis\.assume_durable: true"):
            await preflight(connection)
        with capture_logs() as logs:
            fitness = await preflight(connection, assume_durable=True)
        assert fitness == Fitness(version="6.2.14", appendfsync=None, eviction_assumed=True)
        assert [entry["event"] for entry in logs] == ["redis.durability_assumed"]
        await everything(connection)


async def test_redis_cluster_is_refused_to_a_user_that_may_not_read_info(
    admin: RedisConnection, tmp_path: Path
) -> None:
    """HELLO says it too; the real server's answer with another kind in it."""
    url = await user(admin, ALL_BUT_DANGEROUS)
    proxy = LossyProxy(url, tmp_path / "proxy.sock")
    proxy.rewrite(rb"\$10\r\nstandalone", b"$7\r\ncluster")
    async with (
        proxy.running(),
        connected(url.replace(admin.address, proxy.url.removeprefix("unix://"))) as connection,
    ):
        with pytest.raises(ServiceError, match="cluster-enabled is yes, and Redis Cluster is not supported"):
            await preflight(connection, assume_durable=True)


async def test_a_user_that_may_not_read_config_is_told_of_assume_durable(admin: RedisConnection) -> None:
    """D10: as for services that forbid CONFIG to everybody."""
    async with connected(await user(admin, [*ALL_BUT_DANGEROUS, "+info"])) as connection:
        with pytest.raises(
            ServiceError, match=r"CONFIG GET appendfsync is forbidden.*redis\.assume_durable: true"
        ):
            await preflight(connection)
        assert (await preflight(connection, assume_durable=True)).appendfsync is None


async def test_the_doctor_looks_with_the_users_rights(admin: RedisConnection) -> None:
    redis = {"url": await user(admin, MINIMAL)}
    found = await redis_finding(ClusterConfig.model_validate({"redis": redis}))
    assert (found.level, "persists every write" in found.what) == ("ok", True)
    vouched = {"url": await user(admin, ALL_BUT_DANGEROUS), "assume_durable": True}
    found = await redis_finding(ClusterConfig.model_validate({"redis": vouched}))
    assert (found.level, "that it persists and does not evict is assumed" in found.what) == ("ok", True)
    found = await redis_finding(ClusterConfig.model_validate({"redis": {**vouched, "assume_durable": False}}))
    assert (found.level, "+info" in found.what) == ("problem", True)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (["-xreadgroup"], r"Allow the Redis user .*\(ACL SETUSER; deploy/redis\.conf"),
        (["-evalsha"], r"Allow the Redis user the command: \+evalsha"),
        (["-lrange"], r"Allow the Redis user the command: \+lrange"),
        (["resetkeys", "~other:*"], r"Allow the Redis user its keys: ~chime:\*"),
    ],
)
async def test_a_missing_right_is_named_and_not_asked_for_again(
    admin: RedisConnection, missing: list[str], message: str
) -> None:
    """A permission is not an outage: with ten minutes of patience the answer comes at once."""
    url = await user(admin, [*MINIMAL, *missing])
    with pytest.raises(ServiceError, match=message):
        async with connected(url) as connection:
            await everything(connection)


async def test_wrong_and_absent_credentials_say_which_variable_to_set(
    admin: RedisConnection,
) -> None:
    """WRONGPASS and NOAUTH: not retried, not repeated."""
    await user(admin, MINIMAL)
    async with connected(f"unix://chime:canary-secret@{admin.address}") as connection:
        with pytest.raises(
            ServiceError, match="Check user and password in the Redis URL: CHIME_REDIS_URL"
        ) as error:
            await preflight(connection)
    assert "canary" not in str(error.value)
    await admin.commands.config_set("requirepass", "right")
    try:
        async with connected(f"unix://{admin.address}") as connection:
            with pytest.raises(ServiceError, match=r"Put the user and its password into CHIME_REDIS_URL"):
                await preflight(connection)
    finally:
        await admin.commands.config_set("requirepass", "")
