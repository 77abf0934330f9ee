"""All replicas of one backbone and the router before them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chime_dist.adapters.vllm.actor import node_address, work_folder
from chime_dist.adapters.vllm.engine_api import EngineApi
from chime_dist.adapters.vllm.metrics import EngineMetrics
from chime_dist.adapters.vllm.replica import Replica, Served
from chime_dist.adapters.vllm.router import Router
from chime_dist.adapters.vllm.status import FleetStatus


class Fleet:
    """A served backbone; ``start`` makes it, over a connection to Ray that outlives it."""

    def __init__(self, served: Served, router: Router, changed: Callable[[], None]) -> None:
        self._served = served
        self._router = router
        self._replicas = [Replica(served, i, router, changed) for i in range(served.endpoint.replicas)]

    @classmethod
    async def start(cls, served: Served, changed: Callable[[], None] = lambda: None) -> Fleet:
        """Return once every replica has completed a token. ``changed`` is told of every change of ``status``.

        Raises ServingError: a replica has no room, ends, or is not ready in time. Nothing is left then.
        """
        served.logs.mkdir(parents=True, exist_ok=True)
        router = await Router.start(
            served.backbone,
            served.endpoint,
            served.host or node_address(),
            work_folder(served.launch, f"{served.file_name}-router"),
            served.logs / f"{served.file_name}-router.log",
        )
        fleet = cls(served, router, changed)
        starts = [asyncio.create_task(replica.start()) for replica in fleet._replicas]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await fleet.stop()
            raise
        return fleet

    @property
    def url(self) -> str:
        """What clients use, with the version."""
        return f"{self._router.url}/v1"

    @property
    def router_pid(self) -> int:
        """See ``Router``."""
        return self._router.pid

    @property
    def status(self) -> FleetStatus:
        """As it is now."""
        return FleetStatus(
            backbone=self._served.backbone,
            model=self._served.model,
            url=self.url,
            replicas=tuple(replica.status for replica in self._replicas),
            router_restarts=self._router.restarts,
        )

    async def metrics(self) -> dict[int, EngineMetrics]:
        """Of each replica that serves and tells, by index; counted since its last start."""
        serving = {i: replica.url for i, replica in enumerate(self._replicas) if replica.url is not None}
        told = await asyncio.gather(*(EngineApi(url).metrics() for url in serving.values()))
        return {i: metrics for i, metrics in zip(serving, told, strict=True) if metrics is not None}

    @property
    def api(self) -> EngineApi:
        """Whichever replica the router chooses."""
        return EngineApi(self._router.url)

    async def stop(self) -> None:
        """Drain and end every replica, then the router; leaves no process behind."""
        await asyncio.gather(*(replica.stop() for replica in self._replicas))
        await self._router.stop()
