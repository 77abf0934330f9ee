"""What the actors of a launch have gathered. An actor that is gone, restarting or busy holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ray.actor import ActorHandle
from ray.exceptions import RayError

from chime_dist.engine.meters import Snapshot

PATIENCE_S = 2.0
"""How long an actor may take to answer, in seconds; Prometheus gives a scrape 10."""


async def gathered(launch: str, actors: Sequence[ActorHandle[Any]]) -> list[Snapshot | None]:
    """Of each actor, in order; None for one that does not answer in time."""
    return list(await asyncio.gather(*(_asked(launch, actor) for actor in actors)))


async def _asked(launch: str, actor: ActorHandle[Any]) -> Snapshot | None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            snapshot: Snapshot = await actor.gathered.remote(launch)
    except (RayError, TimeoutError):
        return None
    return snapshot
