"""The pace of one backbone in Redis, shared by every process of a launch that calls it."""

from __future__ import annotations

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.scripts import PaceScripts
from chime_dist.core.pacing import PaceLimits, Pauses


class RedisPacer:
    """Implements ``ports.Pacer``. Every method raises ServiceError when Redis stays unreachable."""

    def __init__(
        self, connection: RedisConnection, keys: RedisKeys, backbone: str, limits: PaceLimits, pausing: Pauses
    ) -> None:
        self._connection = connection
        self._scripts = PaceScripts(connection.commands, keys, backbone, limits, pausing)
        self._backbone = backbone

    async def enter(self, call: str, tokens: int, lasts_s: float) -> float:
        """See ``ports.Pacer``."""
        return await self._connection.run(
            f"asking for a call to {self._backbone}", lambda: self._scripts.enter(call, tokens, lasts_s)
        )

    async def leave(self, call: str, tokens_beyond: int, slow_down: float | None) -> None:
        """See ``ports.Pacer``."""
        await self._connection.run(
            f"settling a call to {self._backbone}", lambda: self._scripts.leave(call, tokens_beyond, slow_down)
        )
