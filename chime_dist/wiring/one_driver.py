"""That one process drives a launch: its token, held from before the first change until after the last."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from chime_dist.adapters.local.driver_token import LocalDriverToken
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_token import RedisDriverToken
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.preflight import preflight
from chime_dist.config.cluster import ClusterConfig
from chime_dist.ports import DriverToken
from chime_dist.wiring import services


@contextlib.asynccontextmanager
async def driving(
    cluster: ClusterConfig, launch: str, tell: Callable[[str], None]
) -> AsyncIterator[asyncio.Task[None]]:
    """Drive inside the block; the task ends, with an error, only where the launch is another driver's. ``tell``
    hears that a Redis server is waited for.

    A Redis server is found fit first. Raises RunDirectoryError where another driver is alive, ServiceError,
    ConfigError.
    """
    async with contextlib.AsyncExitStack() as stack:
        token: DriverToken = LocalDriverToken()
        # An embedded server is this process's own, and its directory's lock keeps others off.
        if cluster.redis.url is not None:
            url, files = cluster.redis.url.reveal(), services.redis_files(cluster)
            connection = RedisConnection(url, files=files, tell=tell)
            stack.push_async_callback(connection.close)
            await preflight(connection, cluster.redis.assume_durable)
            token = RedisDriverToken(connection, RedisKeys(launch), cluster.lease_s)
        await token.take()
        stack.push_async_callback(token.leave)
        keeping = asyncio.create_task(token.keep())
        try:
            yield keeping
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
