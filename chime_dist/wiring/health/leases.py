"""What the queue of a launch that runs knows of its workers."""

from __future__ import annotations

import os

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.pending import PendingUnit, pending_units
from chime_dist.adapters.redis.server import socket_of
from chime_dist.config.cluster import ClusterConfig, with_environment
from chime_dist.errors import ChimeDistError
from chime_dist.wiring import services
from chime_dist.wiring.health.finding import Finding, ok, problem, warning
from chime_dist.wiring.stored_cluster import stored_cluster

PATIENCE_S = 3.0
"""How long Redis may take to answer, in seconds."""


async def lease_findings(launch: LaunchDirectory) -> list[Finding]:
    """Leases of workers that no longer renew them. Empty for a queue inside the driver's process."""
    try:
        cluster = with_environment(stored_cluster(launch, ("redis", "state_dir", "lease_s")), os.environ)
        url = _url(launch, cluster)
        if url is None:
            return []
        connection = RedisConnection(url, patience_s=PATIENCE_S, files=services.redis_files(cluster))
        try:
            pending = await pending_units(connection, RedisKeys(launch.id))
        finally:
            await connection.close()
    except ChimeDistError as error:
        return [warning("leases", f"the queue cannot be looked into: {error}")]
    return _judged(pending, cluster.lease_s)


def _url(launch: LaunchDirectory, cluster: ClusterConfig) -> str | None:
    if cluster.redis.url is not None:
        return cluster.redis.url.reveal()
    if cluster.redis.mode == "embedded":
        return f"unix://{socket_of(services.state_dir(cluster, launch.id) / services.REDIS_FOLDER)}"
    return None


def _judged(pending: list[PendingUnit], lease_s: float) -> list[Finding]:
    silent = [unit for unit in pending if unit.silent_s > lease_s]
    if not silent:
        return [ok("leases", f"{len(pending)} units are held, every lease is renewed in time")]
    found = [
        warning(
            "leases",
            f"{unit.unit} (delivery {unit.delivery}): {unit.consumer or 'nobody'} has it, silent for "
            f"{unit.silent_s:,.0f} s, lease {lease_s:g} s",
        )
        for unit in silent
    ]
    if len(silent) == len(pending):
        fix = "every worker is dead, cut off or frozen: end the driver, and resume"
        return [*found, problem("leases", "no worker renews a lease", fix)]
    return found
