"""What a launch has on a Redis server, to be counted and removed: every key of its, and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_token import Driver, RedisDriverToken
from chime_dist.adapters.redis.keys import RedisKeys

_PAGE = 1_000
"""Keys that the server looks at for one answer; it serves others in between."""


class LaunchKeys:
    """The keys of one launch. Does not close ``connection``.

    Methods raise ServiceError where the server cannot be used; its user needs ``+scan`` and ``+unlink``.
    """

    def __init__(self, connection: RedisConnection, keys: RedisKeys) -> None:
        self._connection = connection
        self._keys = keys

    async def count(self) -> int:
        """How many there are."""
        return sum([len(page) async for page in self._pages()])

    async def driver(self) -> Driver | None:
        """Who holds the driver's token and is not known to have ended; None where nobody does."""
        commands = self._connection.commands
        value = await self._connection.run("asking who drives", lambda: commands.get(self._keys.driver))
        driver = None if value is None else Driver.parsed(str(value))
        return None if driver is None or driver.process.gone() else driver

    @asynccontextmanager
    async def held(self, lasts_s: float) -> AsyncIterator[asyncio.Task[None]]:
        """Hold the driver's token, so that nobody begins to drive; ``lasts_s`` seconds after we died it runs out.

        The task renews it, and ends, with an error, only where it is another's. Raises RunDirectoryError where a
        driver is alive; one that cannot be judged from here is waited for until its token runs out.
        """
        token = RedisDriverToken(self._connection, self._keys, lasts_s)
        await token.take()
        keeping = asyncio.create_task(token.keep())
        try:
            yield keeping
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await token.leave()

    async def remove(self) -> int:
        """Remove everything but the driver's token; returns how many keys that were."""
        removed = 0
        async for page in self._pages():
            if doomed := [key for key in page if key != self._keys.driver]:
                removed += await self._unlink(doomed)
        return removed

    async def _unlink(self, doomed: list[str]) -> int:
        commands = self._connection.commands
        return int(await self._connection.run("removing keys", lambda: commands.unlink(*doomed)))

    async def _pages(self) -> AsyncIterator[list[str]]:
        cursor, page = await self._page(0)
        yield page
        while cursor:
            cursor, page = await self._page(cursor)
            yield page

    async def _page(self, cursor: int) -> tuple[int, list[str]]:
        scan, pattern = self._connection.commands.scan, self._keys.pattern
        found = await self._connection.run("listing keys", lambda: scan(cursor, match=pattern, count=_PAGE))
        return found[0], [str(key) for key in found[1]]
