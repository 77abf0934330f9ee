"""The servers that a launch starts for itself on the driver's machine, and ends with it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from pydantic import SecretStr

from chime_dist.adapters.models.llamacpp import LlamaCppServer, LlamaCppSettings
from chime_dist.adapters.redis.server import EmbeddedRedis
from chime_dist.config.cluster import LlamaCppEndpoint
from chime_dist.wiring import services
from chime_dist.wiring.services import LaunchSpec


async def with_own_servers(
    spec: LaunchSpec, logs: Path, keeping: asyncio.Task[None], stack: AsyncExitStack
) -> tuple[LaunchSpec, asyncio.Task[None]]:
    """Start what the config embeds, until ``stack`` is closed: the spec with the addresses, and ``keeping`` in a
    task that also ends, with an error, where an embedded Redis does.

    ``logs`` is the folder of the model servers' logs. Raises ServiceError, MissingExtraError, ConfigError.
    """
    redis = spec.cluster.redis
    if redis.mode == "embedded":
        server = await EmbeddedRedis.start(spec.state_dir / services.REDIS_FOLDER)
        stack.push_async_callback(server.stop)
        keeping = asyncio.create_task(_first_end(keeping, server))
        stack.push_async_callback(_cancelled, keeping)
        spec = replace(spec, redis_url=SecretStr(server.url))
    elif redis.url is not None:
        spec = replace(spec, redis_url=SecretStr(redis.url.reveal()))
    served = {}
    for name in spec.models:
        endpoint = spec.cluster.endpoints[name]
        if isinstance(endpoint, LlamaCppEndpoint):
            model = await LlamaCppServer.start(_llamacpp(endpoint), logs / f"{name}.log")
            stack.push_async_callback(model.stop)
            served[name] = model.url
    return replace(spec, served=served), keeping


async def _first_end(keeping: asyncio.Task[None], server: EmbeddedRedis) -> None:
    dying = asyncio.create_task(server.died())
    try:
        await asyncio.wait([keeping, dying], return_when=asyncio.FIRST_COMPLETED)
        (keeping if keeping.done() else dying).result()
    finally:
        await _cancelled(dying)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _llamacpp(endpoint: LlamaCppEndpoint) -> LlamaCppSettings:
    settings = LlamaCppSettings(slots=endpoint.slots, slot_tokens=endpoint.slot_tokens, threads=endpoint.threads)
    return settings.model_copy(update={"model": endpoint.model_path}) if endpoint.model_path else settings
