"""Who may call a backbone now: its limits hold for a whole launch, whatever processes its callers are in."""

from __future__ import annotations

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.local.pacer import LocalPacer
from chime_dist.adapters.local.pacer_fallback import FallbackPacer
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.pacer import RedisPacer
from chime_dist.config.cluster import HttpEndpoint
from chime_dist.config.serving import VllmEndpoint
from chime_dist.core.episode import Role
from chime_dist.core.pacing import PaceLimits, Pauses
from chime_dist.ports import Pacer
from chime_dist.wiring.services import ROLES, LaunchSpec, redis_connection

PACE_PATIENCE_S = 5.0
"""How long a call waits for a word of Redis, in seconds. Less than queue and journal do: it can go without."""


def local_pacer(spec: LaunchSpec, name: str) -> LocalPacer:
    """Of the callers of the backbone called ``name`` in this process alone."""
    return LocalPacer(SystemClock(), *_pace(spec, name))


def pacer(spec: LaunchSpec, name: str, role: Role | None = None) -> Pacer:
    """Who may call the backbone called ``name`` now, asked by ``role``'s process, or by that of all roles.

    Under Ray its roles live in processes of their own; they meet in Redis where there are limits to share. Without
    limits a slow-down stays inside each role's process: its next call is told the same. Where Redis does not
    answer, each of these processes keeps to its share.
    """
    limits, pausing = _pace(spec, name)
    if spec.cluster.execution == "local" or not limits.any:
        return local_pacer(spec, name)
    connection = redis_connection(spec, PACE_PATIENCE_S)
    others = [other.value for other in ROLES if other is not role]
    shared = RedisPacer(
        connection, RedisKeys(spec.launch), name, limits, pausing, role.value if role else "", others
    )
    callers = {asker for run in spec.runs.values() for asker in ROLES if run.backbone_of(asker).name == name}
    clock = SystemClock()
    return FallbackPacer(name, shared, LocalPacer(clock, limits.share(len(callers)), pausing), clock)


def _pace(spec: LaunchSpec, name: str) -> tuple[PaceLimits, Pauses]:
    """Limits of the backbone called ``name``, none where its endpoint takes none, and its pauses."""
    endpoint, run = spec.cluster.endpoints[name], next(iter(spec.runs.values()))
    limits = endpoint.limits if isinstance(endpoint, HttpEndpoint | VllmEndpoint) else PaceLimits()
    return limits, Pauses.beside(run.requests)
