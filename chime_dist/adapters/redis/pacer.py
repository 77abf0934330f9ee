"""The pace of one backbone in Redis, shared by every process of a launch that calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.scripts import PaceScripts
from chime_dist.core.pacing import PaceLimits, Pauses


class RedisPacer:
    """Implements ``ports.Pacer``, for a ``FallbackPacer`` to ask: all methods raise ServiceError when Redis stays
    unreachable."""

    def __init__(
        self,
        connection: RedisConnection,
        keys: RedisKeys,
        backbone: str,
        limits: PaceLimits,
        pausing: Pauses,
        caller: str = "",
        others: Sequence[str] = (),
    ) -> None:
        """``caller`` names the one process of the launch that uses this object; ``others`` call the backbone too.

        What an earlier process of this name had in flight ended with it: its places are free at the first call,
        and not only when they run out, which may take most of an hour.
        """
        self._connection = connection
        self._scripts = PaceScripts(connection.commands, keys, backbone, limits, pausing, caller, others)
        self._backbone = backbone
        self._beginning = asyncio.Lock()
        self._begun = False

    async def enter(self, call: str, tokens: int, lasts_s: float) -> float:
        """See ``ports.Pacer``."""
        async with self._beginning:
            if not self._begun:
                await self._connection.run(f"beginning to call {self._backbone}", self._scripts.begin)
                self._begun = True
        return await self._connection.run(
            f"asking for a call to {self._backbone}", lambda: self._scripts.enter(call, tokens, lasts_s)
        )

    async def leave(self, call: str, tokens_beyond: int, slow_down: float | None, *, answered: bool) -> None:
        """See ``ports.Pacer``."""
        await self._connection.run(
            f"settling a call to {self._backbone}",
            lambda: self._scripts.leave(call, tokens_beyond, slow_down, answered=answered),
        )
