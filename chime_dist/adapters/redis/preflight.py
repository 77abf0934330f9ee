"""Refuse a Redis that could lose acknowledged work, before a launch depends on it (D7, D10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog
from redis.exceptions import ResponseError

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.refusals import forbidden
from chime_dist.errors import ServiceError

log = structlog.get_logger()

OLDEST = (6, 2)
"""First version with XAUTOCLAIM's companions that the queue uses (XPENDING IDLE)."""


@dataclass(frozen=True, slots=True)
class Fitness:
    """A server that may hold a launch."""

    version: str
    appendfsync: str | None
    """``always`` or ``everysec``; None where persistence is assumed."""
    eviction_assumed: bool = False
    """Whether nobody could see that it does not evict."""


async def preflight(connection: RedisConnection, assume_durable: bool = False) -> Fitness:
    """Raise ServiceError, naming the setting, its value and the fix, where Redis is not fit to hold a launch.

    Refused: older than 6.2, Redis Cluster, any eviction policy but noeviction, no append-only file, or one that is
    never synced. ``appendfsync everysec`` is accepted with a warning. ``assume_durable`` (config
    ``redis.assume_durable``) waives the checks of persistence only, for servers that persist in their own way or
    forbid CONFIG; where the user may not even read INFO it vouches for the absence of eviction too.
    """
    where = f"Redis at {connection.address}"
    info = await _info(connection, where, assume_durable)
    _check_kind(info, where)
    version = str(info["redis_version"])
    if assume_durable:
        log.info("redis.durability_assumed", address=connection.address)
        return Fitness(version, None, eviction_assumed="maxmemory_policy" not in info)
    if not info.get("aof_enabled"):
        raise ServiceError(
            f"{where}: appendonly is no, so a restart loses the queue and the journal. "
            "Run: CONFIG SET appendonly yes (and set it in redis.conf), or set redis.assume_durable: true where "
            "the service persists in its own way"
        )
    appendfsync = await _appendfsync(connection, where)
    _check_sync(appendfsync, where)
    return Fitness(version, appendfsync)


async def _info(connection: RedisConnection, where: str, assume_durable: bool) -> dict[str, Any]:
    """INFO; what HELLO tells, which nobody can be forbidden, where the user may not read it."""

    async def ask() -> dict[str, Any]:
        try:
            return dict(await connection.commands.info())
        except ResponseError as error:
            if not forbidden(error):
                raise
            if not assume_durable:
                raise ServiceError(
                    f"{where}: INFO is forbidden ({error}), so nobody can tell whether the server persists and"
                    " what it evicts. Allow the Redis user +info, or set redis.assume_durable: true if it keeps"
                    " every acknowledged write and its maxmemory-policy is noeviction"
                ) from error
        server: Any = connection.commands
        told = await server.execute_command("HELLO", "2")
        facts = told if isinstance(told, dict) else dict(zip(told[::2], told[1::2], strict=True))
        return {
            "redis_version": facts["version"],
            "cluster_enabled": facts["mode"] == "cluster",
        }

    return await connection.run("reading INFO", ask)


def _check_kind(info: dict[str, Any], where: str) -> None:
    version = str(info["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise ServiceError(f"{where}: version is {version}; install Redis 6.2 or later")
    if info.get("cluster_enabled"):
        raise ServiceError(
            f"{where}: cluster-enabled is yes, and Redis Cluster is not supported. "
            "Use a server, or a primary with replicas, started with cluster-enabled no"
        )
    policy, limit = info.get("maxmemory_policy", "noeviction"), info.get("maxmemory", "unknown")
    if policy != "noeviction":
        raise ServiceError(
            f"{where}: maxmemory-policy is {policy} (maxmemory {limit} bytes), which removes work "
            "that was not done yet. Run: CONFIG SET maxmemory-policy noeviction (and set it in redis.conf)"
        )


async def _appendfsync(connection: RedisConnection, where: str) -> str:
    async def ask() -> str:
        try:
            return str((await connection.commands.config_get("appendfsync"))["appendfsync"])
        except ResponseError as error:
            raise ServiceError(
                f"{where}: CONFIG GET appendfsync is forbidden ({error}), so nobody can tell what a crash loses. "
                "Set redis.assume_durable: true if the service keeps every acknowledged write, or allow CONFIG GET"
            ) from error

    return await connection.run("reading CONFIG", ask)


def _check_sync(appendfsync: str, where: str) -> None:
    if appendfsync == "no":
        raise ServiceError(
            f"{where}: appendfsync is no, so a crash of its machine loses up to half a minute of acknowledged "
            "work. Run: CONFIG SET appendfsync always (and set it in redis.conf)"
        )
    if appendfsync == "everysec":
        log.warning(
            "redis.may_lose_a_second",
            where=where,
            setting="appendfsync",
            value=appendfsync,
            loses="about one second of acknowledged admissions, completions and commits in a crash; finished "
            "episodes stay in the run directory and are not run again",
            fix="CONFIG SET appendfsync always",
        )
