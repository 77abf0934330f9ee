"""Refuse a Redis that could lose acknowledged work, before a launch depends on it (D7, D10)."""

from __future__ import annotations

from typing import Any

import structlog
from redis.exceptions import ResponseError

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.errors import ServiceError

log = structlog.get_logger()

OLDEST = (6, 2)
"""First version with XAUTOCLAIM's companions that the queue uses (XPENDING IDLE)."""


async def preflight(connection: RedisConnection, assume_durable: bool = False) -> None:
    """Raise ServiceError, naming the setting, its value and the fix, where Redis is not fit to hold a launch.

    Refused: older than 6.2, Redis Cluster, any eviction policy but noeviction, no append-only file, or one that is
    never synced. ``appendfsync everysec`` is accepted with a warning. ``assume_durable`` (config
    ``redis.assume_durable``) waives the checks of persistence only, for servers that persist in their own way or
    forbid CONFIG.
    """
    info = await connection.run("reading INFO", lambda: connection.commands.info())
    where = f"Redis at {connection.address}"
    _check_kind(info, where)
    if assume_durable:
        log.info("redis.durability_assumed", address=connection.address)
        return
    if not info.get("aof_enabled"):
        raise ServiceError(
            f"{where}: appendonly is no, so a restart loses the queue and the journal. "
            "Run: CONFIG SET appendonly yes (and set it in redis.conf), or set redis.assume_durable: true where "
            "the service persists in its own way"
        )
    _check_sync(await _appendfsync(connection, where), where)


def _check_kind(info: dict[str, Any], where: str) -> None:
    version = str(info["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise ServiceError(f"{where}: version is {version}; install Redis 6.2 or later")
    if info.get("cluster_enabled"):
        raise ServiceError(
            f"{where}: cluster-enabled is yes, and Redis Cluster is not supported. "
            "Use a server, or a primary with replicas, started with cluster-enabled no"
        )
    policy, limit = info.get("maxmemory_policy", "unknown"), info.get("maxmemory", "unknown")
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
