"""What a launch has on a Qdrant server, to be counted and removed: every point of its, and nobody else's."""

from __future__ import annotations

from typing import Self

from qdrant_client import AsyncQdrantClient, models

from chime_dist.adapters.qdrant.points import Selection
from chime_dist.adapters.qdrant.server_calls import (
    BANK_PREFIX,
    answers,
    bank_collections,
    check,
    connected,
    filter_of,
)


class LaunchPoints:
    """The points of one launch, of whichever run and fence. Collections are left, others may be about to use them.

    Takes over ``client`` and closes it. Methods raise ServiceError where the server cannot be used.
    """

    def __init__(self, client: AsyncQdrantClient, launch: str, prefix: str = BANK_PREFIX) -> None:
        self._client = client
        self._launch = launch
        self._prefix = prefix

    @classmethod
    def connect(cls, url: str, api_key: str | None, ca_file: str | None, launch: str) -> Self:
        """Of the server at ``url``; see ``server_calls.connected``, which raises ConfigError."""
        return cls(connected(url, api_key, ca_file, patience_s=5.0), launch)

    async def count(self) -> int:
        """How many there are."""
        async with answers(f"points of {self._launch}"):
            return sum([await self._count(name) for name in await self._collections()])

    async def remove(self) -> int:
        """Remove all; returns how many there were."""
        where, removed = f"points of {self._launch}", 0
        async with answers(where):
            for name in await self._collections():
                if found := await self._count(name):
                    doomed = models.FilterSelector(filter=self._filter())
                    check(await self._client.delete(name, points_selector=doomed, wait=True), where)
                    removed += found
        return removed

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def _collections(self) -> list[str]:
        return await bank_collections(self._client, self._prefix)

    async def _count(self, collection: str) -> int:
        return (await self._client.count(collection, count_filter=self._filter(), exact=True)).count

    def _filter(self) -> models.Filter:
        return filter_of(Selection({"launch": self._launch}, {}))
