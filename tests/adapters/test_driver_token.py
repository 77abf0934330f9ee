"""One driver per launch, wherever it runs (design "The queue"): a token in Redis that names its holder."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from chime_dist.adapters.local.driver_token import LocalDriverToken
from chime_dist.adapters.process_identity import ProcessIdentity
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_token import Driver, RedisDriverToken
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.scripts import DriverScripts
from chime_dist.errors import RunDirectoryError, ServiceError
from chime_dist.ports import DriverToken
from tests.adapters.lossy_proxy import LossyProxy
from tests.contract.labs import redis_server

LASTS_S = 60.0
"""Longer than any test."""

US = ProcessIdentity.ours()
ELSEWHERE = US.model_copy(update={"host": "node-7", "machine": "another boot/pid:[1]", "pid": 41})
"""A process of another machine: nobody here can tell whether it lives."""


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture
def keys() -> RedisKeys:
    return RedisKeys(f"test-{uuid.uuid4()}")


@pytest.fixture
async def connection(redis_url: str) -> AsyncIterator[RedisConnection]:
    connection = RedisConnection(redis_url)
    yield connection
    await connection.close()


@pytest.fixture
def living() -> Iterator[ProcessIdentity]:
    """Another process of this machine."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield ProcessIdentity.of(process.pid)


def ended_process() -> ProcessIdentity:
    """A process of this machine that was alive a moment ago."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        return ProcessIdentity.of(process.pid)


@asynccontextmanager
async def kept(token: DriverToken) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(token.keep())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_driver_that_has_left_makes_room_for_the_next(
    connection: RedisConnection, keys: RedisKeys
) -> None:
    first, second = (RedisDriverToken(connection, keys, LASTS_S) for _ in range(2))
    await first.take()
    await first.leave()
    await second.take()
    await first.leave()
    assert await connection.commands.exists(keys.driver), "the first one gave back what was the second's"
    await second.leave()
    assert not await connection.commands.exists(keys.driver)


async def test_the_token_says_who_drives_since_when_and_runs_out(
    connection: RedisConnection, keys: RedisKeys
) -> None:
    token = RedisDriverToken(connection, keys, LASTS_S)
    await token.take()
    driver = Driver.model_validate_json(str(await connection.commands.get(keys.driver)))
    assert driver.process == US
    assert driver.since.endswith("+00:00")
    assert 0 < await connection.commands.pttl(keys.driver) <= LASTS_S * 1000


async def test_a_living_driver_of_this_machine_is_named_at_once(
    connection: RedisConnection, keys: RedisKeys, living: ProcessIdentity
) -> None:
    """The directory was copied, so its lock keeps nobody off."""
    await RedisDriverToken(connection, keys, LASTS_S, living).take()
    message = (
        rf"launch {keys.launch} is driven by process {living.pid} on {living.host} since 20.*\+00:00, which is "
        rf"alive.*Leave the launch to it; or end it there \(kill {living.pid}\), wait for its end, and resume"
    )
    async with asyncio.timeout(LASTS_S / 2):
        with pytest.raises(RunDirectoryError, match=message):
            await RedisDriverToken(connection, keys, LASTS_S).take()


async def test_a_living_driver_elsewhere_is_known_by_its_renewals(
    connection: RedisConnection, keys: RedisKeys
) -> None:
    """Another host: first it may be dead, with its next renewal it is not."""
    theirs = RedisDriverToken(connection, keys, 1.0, ELSEWHERE)
    await theirs.take()
    async with kept(theirs):
        with (
            capture_logs() as logs,
            pytest.raises(RunDirectoryError, match=r"process 41 on node-7 since .*kill 41"),
        ):
            await RedisDriverToken(connection, keys, 1.0).take()
    assert [(entry["event"], "process 41 on node-7" in entry["holder"]) for entry in logs] == [
        ("driver.waiting", True)
    ]


async def test_a_dead_driver_elsewhere_runs_out(connection: RedisConnection, keys: RedisKeys) -> None:
    """Bounded: a resume waits for the rest of the token's time, by the server's clock."""
    await RedisDriverToken(connection, keys, 0.2, ELSEWHERE).take()
    ours = RedisDriverToken(connection, keys, LASTS_S)
    with capture_logs() as logs:
        async with asyncio.timeout(30):
            await ours.take()
    [waited] = logs
    assert (waited["event"], waited["at_most_s"] <= 0.2) == ("driver.waiting", True)


async def test_a_dead_driver_of_this_machine_is_replaced_at_once(
    connection: RedisConnection, keys: RedisKeys
) -> None:
    """C7: after kill -9 a resume does not wait, because the process provably ended."""
    dead = ended_process()
    await RedisDriverToken(connection, keys, LASTS_S, dead).take()
    with capture_logs() as logs:
        async with asyncio.timeout(LASTS_S / 2):
            await RedisDriverToken(connection, keys, LASTS_S).take()
    [replaced] = logs
    assert (replaced["event"], f"process {dead.pid} on" in replaced["dead"]) == ("driver.replaced", True)


async def test_of_two_that_replace_a_dead_driver_one_gets_the_launch(
    connection: RedisConnection, keys: RedisKeys
) -> None:
    """The dead token is compared where it is replaced: the second finds the first, not the dead."""
    scripts = DriverScripts(connection.commands, keys)
    await scripts.hold("dead", 60_000)
    assert (await scripts.hold("first", 60_000, "dead"))[0] == "first"
    assert (await scripts.hold("second", 60_000, "dead"))[0] == "first"


@pytest.mark.parametrize("lost", [b"EVALSHA", b"TIME"])
async def test_a_lost_reply_is_no_second_driver(redis_url: str, keys: RedisKeys, lost: bytes) -> None:
    """D4: the command that took the token is sent again, and finds its own value."""
    with tempfile.TemporaryDirectory(prefix="chime-") as folder:
        async with LossyProxy(redis_url, Path(folder, "proxy.sock")).running() as proxy:
            connection = RedisConnection(proxy.url)
            token = RedisDriverToken(connection, keys, LASTS_S)
            await token.take()
            await token.leave()
            proxy.lose(lost)
            await token.take()
            assert proxy.lost == 1
            await token.leave()
            assert not await connection.commands.exists(keys.driver)
            await connection.close()


async def test_keeping_renews_the_token(connection: RedisConnection, keys: RedisKeys) -> None:
    token = RedisDriverToken(connection, keys, 0.6)
    await token.take()
    value = await connection.commands.get(keys.driver)
    async with kept(token):
        left = await connection.commands.pttl(keys.driver)
        async with asyncio.timeout(30):
            while (now := await connection.commands.pttl(keys.driver)) <= left:
                left = now
                await asyncio.sleep(0.01)
    assert await connection.commands.get(keys.driver) == value


async def test_keeping_takes_a_token_back_that_the_server_forgot(
    connection: RedisConnection, keys: RedisKeys
) -> None:
    """D10: a server that came back without its data, and no other driver."""
    token = RedisDriverToken(connection, keys, 0.3)
    await token.take()
    async with kept(token):
        await connection.commands.delete(keys.driver)
        value = None
        async with asyncio.timeout(30):
            while value is None:
                value = await connection.commands.get(keys.driver)
    assert Driver.model_validate_json(str(value)).process == US


async def test_a_driver_that_was_replaced_is_told_by_whom(connection: RedisConnection, keys: RedisKeys) -> None:
    """It was frozen for longer than its token lasts."""
    token = RedisDriverToken(connection, keys, 0.3)
    await token.take()
    await connection.commands.delete(keys.driver)
    await RedisDriverToken(connection, keys, LASTS_S, ELSEWHERE).take()
    async with asyncio.timeout(30):
        with pytest.raises(
            ServiceError, match=r"silent for more than 0\.3 s.*process 41 on node-7.*has the launch"
        ):
            await token.keep()
    await token.leave()
    assert await connection.commands.exists(keys.driver), "it gave back what was another's"


async def test_at_the_memory_limit_a_driver_stays_the_driver(connection: RedisConnection, keys: RedisKeys) -> None:
    """D7: a launch waits there for its workers to hand in, which must not cost it its token."""
    token = RedisDriverToken(connection, keys, 0.6)
    await token.take()
    await connection.commands.config_set("maxmemory", "1mb")
    try:
        async with kept(token) as keeping, asyncio.timeout(30):
            left = await connection.commands.pttl(keys.driver)
            while (now := await connection.commands.pttl(keys.driver)) <= left:
                left = now
                await asyncio.sleep(0.01)
            assert not keeping.done()
    finally:
        await connection.commands.config_set("maxmemory", "0")


async def test_a_token_of_another_version_is_waited_for(connection: RedisConnection, keys: RedisKeys) -> None:
    await connection.commands.set(keys.driver, "another version's", px=100)
    async with asyncio.timeout(30):
        await RedisDriverToken(connection, keys, LASTS_S).take()


async def test_in_process_the_directorys_lock_is_the_token() -> None:
    token = LocalDriverToken()
    await token.take()
    async with kept(token) as keeping:
        await asyncio.sleep(0)
        assert not keeping.done()
    await token.leave()


def test_what_cannot_be_known_of_a_process_is_not_guessed() -> None:
    """Ids mean nothing on another machine, and nothing after a reboot."""
    assert US.gone() is False
    assert ended_process().gone() is True
    assert US.model_copy(update={"started": 1}).gone() is True, "another process has its id now"
    assert ELSEWHERE.gone() is None
    assert US.model_copy(update={"machine": ""}).gone() is None
    assert US.model_copy(update={"started": None}).gone() is None
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.DEVNULL)
    identity = ProcessIdentity.of(child.pid)
    child.communicate()
    assert identity.gone() is True
