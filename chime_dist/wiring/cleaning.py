"""What a launch left outside its results, and its removal.

Everything here is a copy, or was on its way: ``journal.jsonl`` holds every version that any episode has read, and
the records hold every finished episode. So an incomplete launch can be resumed after it was cleaned, and rebuilds
what it needs.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

from chime_dist.adapters import launch_processes
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.qdrant.launch_points import LaunchPoints
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.launch_keys import LaunchKeys
from chime_dist.adapters.redis.server import socket_of
from chime_dist.adapters.redis.server_lock import ServerLock
from chime_dist.config.cluster import with_environment
from chime_dist.errors import RunDirectoryError
from chime_dist.wiring import services
from chime_dist.wiring.stored_cluster import stored_cluster

REDIS_PATIENCE_S = 5.0
"""How long a server may be away before the cleaning is given up, in seconds."""

_OWNED_WAIT_S = 5.0

What = Literal["processes", "points", "keys", "state", "socket", "results"]


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that can go."""

    what: What
    place: str
    amount: int
    unit: Literal["process", "point", "key", "byte", "socket"]


class _Part(Protocol):
    async def find(self) -> Leftover: ...

    async def remove(self) -> Leftover: ...


async def leftovers(launch: LaunchDirectory, *, results: bool) -> list[Leftover]:
    """What ``clean`` would remove now.

    Raises ConfigError, RunDirectoryError where the launch is driven, ServiceError.
    """
    launch.require_undriven()
    async with _parts(launch, results=results) as (parts, keys):
        if keys is not None and (driver := await keys.driver()) is not None:
            raise RunDirectoryError(
                f"{launch.path}: {driver} drives this launch, says its token in Redis; wait for its end, or end it"
            )
        return [found for part in parts if (found := await part.find()).amount]


async def clean(launch: LaunchDirectory, *, results: bool) -> list[Leftover]:
    """Remove it, and the launch's folder as well with ``results``; what was there is the answer.

    Nobody can drive the launch meanwhile. Raises what ``leftovers`` raises; then a part may be removed, and the
    next call removes the rest.
    """
    with launch.driver_lock() as lock:
        lock.acquire(datetime.now(UTC))
        async with _parts(launch, results=results) as (parts, keys), AsyncExitStack() as stack:
            keeping = None
            if keys is not None:
                keeping = await stack.enter_async_context(keys.held(_lease_s(launch)))
            removed = []
            for part in parts:
                if keeping is not None and keeping.done():
                    # Somebody else drives the launch now.
                    keeping.result()
                removed.append(await part.remove())
            return [one for one in removed if one.amount]


def _lease_s(launch: LaunchDirectory) -> float:
    return stored_cluster(launch, ("lease_s",)).lease_s


@asynccontextmanager
async def _parts(
    launch: LaunchDirectory, *, results: bool
) -> AsyncIterator[tuple[Sequence[_Part], LaunchKeys | None]]:
    cluster = with_environment(stored_cluster(launch, ("redis", "qdrant", "state_dir")), os.environ)
    async with AsyncExitStack() as stack:
        # Fences begin anew without their keys, so whatever carries a fence goes before them.
        parts: list[_Part] = [_Processes(launch.id)]
        if cluster.qdrant.mode == "server":
            points = LaunchPoints.connect(*services.qdrant_address(cluster.qdrant), launch.id)
            stack.push_async_callback(points.close)
            parts.append(_Points(points, f"the Qdrant server {cluster.qdrant.url}"))
        keys = None
        if cluster.redis.url is not None:
            url, files = cluster.redis.url.reveal(), services.redis_files(cluster)
            connection = RedisConnection(url, REDIS_PATIENCE_S, files=files)
            stack.push_async_callback(connection.close)
            keys = LaunchKeys(connection, RedisKeys(launch.id))
            parts.append(_Keys(keys, f"Redis at {connection.address}"))
        state = services.state_dir(cluster, launch.id)
        parts += [_Socket(socket_of(state / services.REDIS_FOLDER)), _Folder("state", state)]
        if results:
            parts.append(_Folder("results", launch.path))
        yield parts, keys


@dataclass(frozen=True, slots=True)
class _Processes:
    launch: str

    async def find(self) -> Leftover:
        return self._left(len(await asyncio.to_thread(launch_processes.orphans, self.launch)))

    async def remove(self) -> Leftover:
        return self._left(await asyncio.to_thread(launch_processes.sweep, self.launch))

    def _left(self, amount: int) -> Leftover:
        return Leftover("processes", "this machine", amount, "process")


@dataclass(frozen=True, slots=True)
class _Points:
    points: LaunchPoints
    place: str

    async def find(self) -> Leftover:
        return Leftover("points", self.place, await self.points.count(), "point")

    async def remove(self) -> Leftover:
        return Leftover("points", self.place, await self.points.remove(), "point")


@dataclass(frozen=True, slots=True)
class _Keys:
    keys: LaunchKeys
    place: str

    async def find(self) -> Leftover:
        return Leftover("keys", self.place, await self.keys.count(), "key")

    async def remove(self) -> Leftover:
        return Leftover("keys", self.place, await self.keys.remove(), "key")


@dataclass(frozen=True, slots=True)
class _Socket:
    path: Path

    async def find(self) -> Leftover:
        return Leftover("socket", str(self.path), int(self.path.exists()), "socket")

    async def remove(self) -> Leftover:
        found = await self.find()
        self.path.unlink(missing_ok=True)
        return found


@dataclass(frozen=True, slots=True)
class _Folder:
    what: Literal["state", "results"]
    path: Path

    async def find(self) -> Leftover:
        size = await asyncio.to_thread(_bytes_below, self.path) if self.path.is_dir() else 0
        return Leftover(self.what, str(self.path), size, "byte")

    async def remove(self) -> Leftover:
        found = await self.find()
        redis = self.path / services.REDIS_FOLDER
        if self.what == "state" and redis.is_dir():
            # A server that outlived its driver is stopped by this, and none starts while it is held.
            lock = await ServerLock.acquire(redis, _OWNED_WAIT_S)
            try:
                await self._remove()
            finally:
                lock.close()
        else:
            await self._remove()
        return found

    async def _remove(self) -> None:
        try:
            await asyncio.to_thread(shutil.rmtree, self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunDirectoryError(f"{self.path}: cannot be removed ({error}); check its owner") from error


def _bytes_below(folder: Path) -> int:
    """What the files take on the disk; those that vanish meanwhile count nothing. 1 at least for a folder."""
    size = 1
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                size += Path(place, name).lstat().st_blocks * 512
            except OSError:
                continue
    return size
