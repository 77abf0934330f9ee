"""Backbones that a launch serves itself: started before its runs, shown to work, and ended with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from chime_dist.adapters.directory.artifact_json import encode, read
from chime_dist.adapters.directory.durable_file import replace_files
from chime_dist.adapters.directory.launch_directory import MANIFEST, LaunchDirectory
from chime_dist.adapters.vllm.engine_api import EngineApi
from chime_dist.adapters.vllm.metrics import EngineMetrics
from chime_dist.adapters.vllm.status import FleetStatus, PrefixCache, ServingStatus
from chime_dist.config.cluster import RayConfig
from chime_dist.config.models import EMBEDDER_ENDPOINT
from chime_dist.config.serving import VllmEndpoint
from chime_dist.errors import RunDirectoryError
from chime_dist.wiring.services import LaunchSpec

if TYPE_CHECKING:
    from chime_dist.adapters.vllm.fleet import Fleet

FOLDER = "serving"
"""Inside a launch's folder: logs of replicas and routers, and the status."""

STATUS = "status.json"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Wanted:
    """One backbone to serve."""

    model: str
    """What requests call it."""
    endpoint: VllmEndpoint


@dataclass(slots=True)
class Serving:
    """The backbones that are served now, by endpoint name."""

    launch: str
    folder: Path
    fleets: dict[str, Fleet] = field(default_factory=dict)
    caches: tuple[PrefixCache, ...] = ()
    """Filled when the serving ends: how much of the prompts the prefix caches saved."""

    @property
    def urls(self) -> dict[str, str]:
        """Base URLs, with the version."""
        return {name: fleet.url for name, fleet in self.fleets.items()}

    @property
    def status(self) -> ServingStatus:
        """As it is now."""
        fleets: tuple[FleetStatus, ...] = tuple(fleet.status for fleet in self.fleets.values())
        return ServingStatus(
            launch=self.launch, pid=os.getpid(), time=datetime.now(UTC), fleets=fleets, caches=self.caches
        )

    def write_status(self) -> None:
        """Put the status into its file; it is for people, so a full disk does not matter here."""
        try:
            replace_files([(self.folder / STATUS, encode(self.status, "the status") + b"\n")])
        except OSError as error:
            log.warning("serving.status_not_written", error=str(error))

    async def stop(self) -> None:
        """Read what the prefix caches saved, drain and end everything."""
        told = await asyncio.gather(*(fleet.metrics() for fleet in self.fleets.values()))
        self.caches = tuple(
            cache_of(name, index, metrics)
            for name, replicas in zip(self.fleets, told, strict=True)
            for index, metrics in replicas.items()
        )
        for cache in self.caches:
            log.info("serving.prefix_cache", **cache.model_dump(), hit_rate=cache.hit_rate)
        await asyncio.gather(*(fleet.stop() for fleet in self.fleets.values()))
        self.write_status()


def wanted_of(spec: LaunchSpec) -> dict[str, Wanted]:
    """What a launch must serve itself, by endpoint name."""
    models = {name: model.model for name, model in spec.models.items()}
    if spec.embedder.kind == "http":
        models[EMBEDDER_ENDPOINT] = spec.embedder.model
    endpoints = spec.cluster.endpoints
    return {
        name: Wanted(model, endpoint)
        for name, model in models.items()
        if isinstance(endpoint := endpoints.get(name), VllmEndpoint)
    }


async def serve(
    launch: str,
    folder: Path,
    wanted: Mapping[str, Wanted],
    ray: RayConfig,
    stack: AsyncExitStack,
    stopping: asyncio.Event,
) -> Serving | None:
    """Serve ``wanted`` on the cluster of ``ray`` until ``stack`` closes; every replica answers on return.

    None where ``stopping`` was set before: weights can take long to load. Logs and the status are in ``folder``.
    Raises ServiceError (no cluster) and ServingError; nothing is left then.
    """
    serving = Serving(launch, folder)
    starting = asyncio.create_task(_start(serving, wanted, ray, stack))
    stop = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return None
        starting.result()
        return serving
    finally:
        for task in (starting, stop):
            task.cancel()
        await asyncio.gather(starting, stop, return_exceptions=True)


async def serve_for(
    spec: LaunchSpec, stack: AsyncExitStack, stopping: asyncio.Event, tell: Callable[[str], None]
) -> tuple[LaunchSpec, Mapping[str, Fleet]]:
    """The spec with the URLs of everything that the launch serves, and what serves it; see ``serve``.

    ``tell`` is told how much the prefix caches saved, at the end. Without URLs where ``stopping`` was set.
    """
    wanted = wanted_of(spec)
    if not wanted:
        return spec, {}
    served: list[Serving] = []
    # First in, last out: what the caches saved is known when the serving has ended.
    stack.callback(_tell_caches, served, tell)
    replicas = sum(want.endpoint.replicas for want in wanted.values())
    tell(f"starting {replicas} vLLM replicas of {', '.join(wanted)}; logs: {spec.directory / FOLDER}")
    serving = await serve(spec.launch, spec.directory / FOLDER, wanted, spec.cluster.ray, stack, stopping)
    if serving is None:
        return spec, {}
    served.append(serving)
    return replace(spec, served={**spec.served, **serving.urls}), serving.fleets


def _tell_caches(served: Sequence[Serving], tell: Callable[[str], None]) -> None:
    for serving in served:
        for cache in serving.caches:
            tell(f"prefix cache, {cache}")


async def _start(serving: Serving, wanted: Mapping[str, Wanted], ray: RayConfig, stack: AsyncExitStack) -> None:
    # Ray takes a second to import; a launch that serves nothing never needs it here.
    from chime_dist.adapters.ray.cluster import RayCluster
    from chime_dist.adapters.vllm.fleet import Fleet
    from chime_dist.adapters.vllm.replica import Served
    from chime_dist.wiring.ray_execution import signals_are_ours

    # Ray makes its workers nice to whatever else a machine does, and models with them. It only counts where the
    # cluster is started here.
    os.environ.setdefault("RAY_worker_niceness", "0")
    launch, folder = serving.launch, serving.folder
    cluster = await asyncio.to_thread(RayCluster.connect, launch, ray.address, ray.num_cpus, ray.namespace)
    signals_are_ours()
    stack.callback(cluster.leave)
    stack.push_async_callback(serving.stop)
    for name, want in wanted.items():
        # Weights are read from one disk or network: one backbone after the other, its replicas together.
        host = None if ray.remote else "127.0.0.1"
        served = Served(launch, name, want.model, want.endpoint, folder, host)
        serving.fleets[name] = await Fleet.start(served, serving.write_status)
        serving.write_status()
        log.info("serving.ready", backbone=name, url=serving.fleets[name].url, replicas=want.endpoint.replicas)


def read_status(folder: Path) -> ServingStatus:
    """The status of what a launch serves, named as any command takes a launch, or of a ``chime-dist serve``, named
    by its folder. Raises RunDirectoryError."""
    file = folder / FOLDER / STATUS
    if not file.is_file() and not (folder / MANIFEST).is_file():
        # The folder of a serve, or a launch by another name.
        alone = folder / STATUS
        file = alone if alone.is_file() else LaunchDirectory.open(folder).path / FOLDER / STATUS
    if (status := read(ServingStatus, file)) is None:
        raise RunDirectoryError(f"{file} is not there: this launch serves no backbone, or has not begun to")
    return status


async def live_metrics(status: ServingStatus) -> dict[tuple[str, int], EngineMetrics]:
    """What each replica that serves says now, by backbone and index; those that do not answer are left out."""
    replicas = [(fleet.backbone, replica) for fleet in status.fleets for replica in fleet.replicas]
    serving = {(backbone, replica.index): replica.url for backbone, replica in replicas if replica.url is not None}
    told = await asyncio.gather(*(EngineApi(url).metrics() for url in serving.values()))
    return {key: metrics for key, metrics in zip(serving, told, strict=True) if metrics is not None}


def cache_of(backbone: str, replica: int, metrics: EngineMetrics) -> PrefixCache:
    """The part of ``metrics`` that is worth keeping."""
    return PrefixCache(
        backbone=backbone, replica=replica, queries=metrics.prefix_queries, hits=metrics.prefix_hits
    )
