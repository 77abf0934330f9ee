"""D7, D10: a Redis that could lose acknowledged work is refused with the setting, its value and the fix."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.preflight import preflight
from chime_dist.adapters.redis.server import find_redis_server
from chime_dist.errors import ServiceError
from tests.adapters.lossy_proxy import LossyProxy


@contextmanager
def server_with(**settings: str) -> Iterator[str]:
    """URL of a server as somebody else set it up; underscores in names stand for dashes."""
    with tempfile.TemporaryDirectory(prefix="chime-") as folder:
        given = {"port": "0", "unixsocket": f"{folder}/r.sock", "dir": folder, "save": "", "appendonly": "yes"}
        given |= {name.replace("_", "-"): value for name, value in settings.items()}
        options = [part for name, value in given.items() for part in (f"--{name}", *value.split(" "))]
        process = subprocess.Popen([find_redis_server(), *options], stdout=subprocess.DEVNULL)
        try:
            yield f"unix://{folder}/r.sock"
        finally:
            process.terminate()
            process.wait()


@asynccontextmanager
async def connection_to(**settings: str) -> AsyncIterator[RedisConnection]:
    with server_with(**settings) as url:
        connection = RedisConnection(url)
        try:
            # Retried until the server is up.
            await connection.run("connecting", connection.commands.ping)
            yield connection
        finally:
            await connection.close()


async def test_a_durable_server_passes_in_silence() -> None:
    async with connection_to(appendfsync="always") as connection:
        with capture_logs() as logs:
            await preflight(connection)
    assert logs == []


async def test_syncing_every_second_passes_with_a_warning_that_says_what_it_can_lose() -> None:
    """D10: an operator may choose it; the run directory covers what it loses."""
    async with connection_to(appendfsync="everysec") as connection:
        with capture_logs() as logs:
            await preflight(connection)
    (entry,) = logs
    assert (entry["log_level"], entry["event"]) == ("warning", "redis.may_lose_a_second")
    assert (entry["setting"], entry["value"]) == ("appendfsync", "everysec")
    assert "one second of acknowledged" in entry["loses"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"maxmemory_policy": "allkeys-lru", "maxmemory": "100mb"},
            r"maxmemory-policy is allkeys-lru \(maxmemory 104857600 bytes\).*SET maxmemory-policy noeviction",
        ),
        ({"maxmemory_policy": "volatile-ttl"}, r"maxmemory-policy is volatile-ttl \(maxmemory 0 bytes\)"),
        ({"appendonly": "no"}, "appendonly is no.*CONFIG SET appendonly yes.*assume_durable"),
        ({"appendfsync": "no"}, "appendfsync is no.*CONFIG SET appendfsync always"),
        (
            {"rename_command": "CONFIG ", "appendfsync": "always"},
            "CONFIG GET appendfsync is forbidden.*assume_durable",
        ),
    ],
)
async def test_a_server_that_could_lose_work_is_refused(settings: dict[str, str], message: str) -> None:
    async with connection_to(**settings) as connection:
        with pytest.raises(ServiceError, match=f"Redis at .*r.sock: {message}"):
            await preflight(connection)


@pytest.mark.parametrize(
    ("pattern", "text", "message"),
    [
        (rb"redis_version:\d\.\d", b"redis_version:6.0", r"version is 6\.0\.\d+; install Redis 6\.2 or later"),
        (rb"cluster_enabled:0", b"cluster_enabled:1", "cluster-enabled is yes.*cluster-enabled no"),
    ],
)
async def test_a_server_of_the_wrong_kind_is_refused(pattern: bytes, text: bytes, message: str) -> None:
    """The real server's INFO with another kind in it: a cluster's node would open a port of its own."""
    with tempfile.TemporaryDirectory(prefix="chime-") as folder:
        async with connection_to() as direct:
            proxy = LossyProxy(f"unix://{direct.address}", Path(folder, "p.sock"))
            proxy.rewrite(pattern, text)
            async with proxy.running():
                connection = RedisConnection(proxy.url)
                with pytest.raises(ServiceError, match=message):
                    await preflight(connection)
                await connection.close()


async def test_a_wrong_password_is_no_outage() -> None:
    """It is not tried again for half a minute, and it is not repeated."""
    async with connection_to(requirepass="") as direct:
        await direct.commands.config_set("requirepass", "right")
        connection = RedisConnection(f"unix://:canary-secret@{direct.address}")
        with pytest.raises(ServiceError, match="Check user and password in the Redis URL") as error:
            await preflight(connection)
        assert "canary" not in str(error.value)
        await connection.close()


@pytest.mark.parametrize("settings", [{"appendonly": "no"}, {"rename_command": "CONFIG "}, {"appendfsync": "no"}])
async def test_persistence_can_be_vouched_for(settings: dict[str, str]) -> None:
    async with connection_to(**settings) as connection:
        await preflight(connection, assume_durable=True)


async def test_nobody_can_vouch_for_eviction() -> None:
    """D7: assume_durable is about disks, not about work removed from memory."""
    async with connection_to(maxmemory_policy="allkeys-lru") as connection:
        with pytest.raises(ServiceError, match="maxmemory-policy is allkeys-lru"):
            await preflight(connection, assume_durable=True)
