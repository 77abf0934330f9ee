"""Whether Redis, Qdrant and Ray are there and fit for a launch."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from chime_dist.adapters.qdrant.server_calls import answers, check_version, connected, tried_collection
from chime_dist.adapters.ray.versions import Versions, cluster_versions
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.preflight import preflight
from chime_dist.adapters.redis.server import SOCKET_PATH_LIMIT, EmbeddedRedis
from chime_dist.adapters.redis.tls import TlsFiles
from chime_dist.adapters.redis.trial import ahead_s, tried
from chime_dist.config.cluster import QDRANT_URL, REDIS_URL, ClusterConfig, QdrantConfig
from chime_dist.errors import ChimeDistError
from chime_dist.wiring import services
from chime_dist.wiring.health.finding import Finding, ok, problem, warning
from chime_dist.wiring.services import LaunchSpec

PATIENCE_S = 5.0
"""How long a server may take to answer, in seconds."""

MOST_SKEW_S = 2.0
"""Clocks that differ by more than this are worth a word, in seconds."""

_SYNC_FIX = "CONFIG SET appendfsync always (and set it in redis.conf)"


async def redis_finding(cluster: ClusterConfig) -> Finding:
    """Version, persistence, eviction, our rights on a server; that an embedded one starts and its socket fits."""
    redis = cluster.redis
    if redis.mode == "local":
        return ok("redis", "not used: the queue is in this process")
    try:
        if redis.url is not None:
            return await _fit(redis.url.reveal(), redis.assume_durable, services.redis_files(cluster))
        with tempfile.TemporaryDirectory(prefix="chime-doctor-") as folder:
            server = await EmbeddedRedis.start(Path(folder))
            try:
                found = await _fit(server.url, False, TlsFiles())
                length = len(str(server.socket).encode())
                return ok("redis", f"{found.what}; its socket's path has {length} of {SOCKET_PATH_LIMIT} bytes")
            finally:
                await server.stop()
    except ChimeDistError as error:
        return problem(
            "redis", str(error), "" if redis.mode == "embedded" else f"check cluster.redis or {REDIS_URL}"
        )


async def _fit(url: str, assume_durable: bool, files: TlsFiles) -> Finding:
    connection = RedisConnection(url, patience_s=PATIENCE_S, files=files)
    try:
        fitness = await preflight(connection, assume_durable)
        await tried(connection)
    finally:
        await connection.close()
    name = f"Redis {fitness.version} at {connection.address}"
    if fitness.appendfsync is None:
        if fitness.eviction_assumed:
            return ok("redis", f"{name}: that it persists and does not evict is assumed")
        return ok("redis", f"{name} does not evict; that it persists is assumed")
    if fitness.appendfsync != "always":
        lost = "a crash of its machine loses about a second of acknowledged work; finished episodes are kept"
        return warning("redis", f"{name}: appendfsync is {fitness.appendfsync}, so {lost}", _SYNC_FIX)
    return ok("redis", f"{name} persists every write and does not evict")


async def clock_finding(cluster: ClusterConfig) -> Finding | None:
    """This host's clock against a Redis server's; None where others run none, or it does not answer."""
    if cluster.redis.url is None:
        return None
    try:
        files = services.redis_files(cluster)
        connection = RedisConnection(cluster.redis.url.reveal(), patience_s=PATIENCE_S, files=files)
        try:
            ahead = await ahead_s(connection)
        finally:
            await connection.close()
    except ChimeDistError:
        return None
    if abs(ahead) <= MOST_SKEW_S:
        return ok("clock", f"within {MOST_SKEW_S:g} s of the Redis server's")
    behind = "behind" if ahead > 0 else "ahead of"
    return warning(
        "clock",
        f"this host is {abs(ahead):,.1f} s {behind} the Redis server: leases keep to the server's clock, but times"
        " in rows and logs of several hosts will not agree",
        "synchronise the clocks of all hosts (chronyd, systemd-timesyncd)",
    )


async def qdrant_finding(spec: LaunchSpec) -> Finding:
    """That a server answers; that the embedded engine is installed."""
    qdrant = spec.cluster.qdrant
    if qdrant.url is None:
        try:
            await services.bank_store(spec).close()
        except ChimeDistError as error:
            return problem("qdrant", str(error))
        return ok(
            "qdrant", "not used: search is in this process" if qdrant.mode == "memory" else "embedded engine"
        )
    address = urlsplit(qdrant.url.reveal()).netloc.rpartition("@")[2]
    try:
        return await _answering(qdrant, f"Qdrant at {address}")
    except ChimeDistError as error:
        return problem("qdrant", str(error), f"check cluster.qdrant.url and api_key, or {QDRANT_URL}")


async def _answering(qdrant: QdrantConfig, where: str) -> Finding:
    client = connected(*services.qdrant_address(qdrant), timeout_s=round(PATIENCE_S), patience_s=PATIENCE_S)
    try:
        async with answers(where):
            version = await check_version(client, where)
            # A key may be good for reading alone, and without one a server tells its version and nothing else.
            await tried_collection(client)
    finally:
        await client.close()
    return ok("qdrant", f"{where} answers, version {version}, and takes collections")


async def ray_finding(cluster: ClusterConfig) -> Finding:
    """That a cluster runs at its address, with our Ray and our Python; it is not joined."""
    if cluster.execution != "ray":
        return ok("ray", "not used: everything runs in this process")
    address = cluster.ray.address
    if address is None or not cluster.ray.remote:
        return ok("ray", "a launch starts it on this machine")
    parts = urlsplit(address if "://" in address else f"//{address}")
    if parts.hostname is None or parts.port is None:
        return warning("ray", f"{address!r} names no host and port, so only joining tells whether it is there")
    try:
        async with asyncio.timeout(PATIENCE_S):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except (OSError, TimeoutError) as error:
        return problem(
            "ray",
            f"nothing listens at {address} ({error or 'no answer'})",
            "check cluster.ray.address or RAY_ADDRESS, and start the head with: ray start --head",
        )
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    if parts.scheme not in ("", "gcs"):
        return ok("ray", f"something listens at {address}")
    return versions_finding(address, await cluster_versions(parts.netloc), Versions.ours())


def versions_finding(address: str, theirs: Versions | None, ours: Versions) -> Finding:
    """Ray lets nobody join whose Ray or Python is another one."""
    if theirs is None:
        what = f"what listens at {address} does not answer as the head of a Ray cluster"
        return problem(
            "ray", what, "check the port in cluster.ray.address or RAY_ADDRESS; a head's is 6379 by default"
        )
    if theirs != ours:
        return problem(
            "ray",
            f"the cluster at {address} has Ray {theirs.ray} and Python {theirs.python}; here are Ray {ours.ray}"
            f" and Python {ours.python}",
            f"install ray=={theirs.ray} into a Python {theirs.python} here, or the cluster anew",
        )
    return ok("ray", f"a cluster at {address} has our Ray {ours.ray} and Python {ours.python}")
