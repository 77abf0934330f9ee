"""One replica as the driver keeps it: its room on the cluster, its actors, its place at the router."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import ray
import structlog
from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from chime_dist.adapters.vllm.actor import STOP_S, ReplicaActor
from chime_dist.adapters.vllm.command import NodeRank
from chime_dist.adapters.vllm.engine_api import EngineApi
from chime_dist.adapters.vllm.keeping import Keeping
from chime_dist.adapters.vllm.need import need_of
from chime_dist.adapters.vllm.placement import placed
from chime_dist.adapters.vllm.router import Router
from chime_dist.adapters.vllm.status import ReplicaStatus, State
from chime_dist.config.serving import VllmEndpoint
from chime_dist.errors import ServingError

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Served:
    """What a fleet serves, for whom."""

    launch: str
    backbone: str
    model: str
    """What requests call it."""
    endpoint: VllmEndpoint
    logs: Path
    """Folder of the replicas' logs."""
    host: str | None
    """Where servers listen; None is each node's own address."""

    @property
    def file_name(self) -> str:
        """The backbone's name where a slash would mean a folder."""
        return quote(self.backbone, safe="")


class Replica:
    """One replica: its room, its actors, and its place at the router."""

    def __init__(self, served: Served, index: int, router: Router, changed: Callable[[], None]) -> None:
        self._served = served
        self._index = index
        self._router = router
        self._changed = changed
        self._group: PlacementGroup | None = None
        self._actors: list[ActorHandle[Any]] = []
        self._keeping = Keeping(f"replica {index} of {served.backbone}", self._ended, self._begin)
        self._state: State = "starting"
        self._start_s: float | None = None
        self.url: str | None = None
        """Without a path; None while it does not serve."""

    @property
    def status(self) -> ReplicaStatus:
        """As it is now."""
        return ReplicaStatus(
            index=self._index,
            state=self._state,
            url=self.url,
            restarts=self._keeping.restarts.total,
            start_s=self._start_s,
            log=str(self._log_path(0)),
        )

    async def start(self) -> None:
        """Place it, start it, and keep it up from then on. Raises ServingError."""
        await self._begin()
        self._keeping.start()

    async def stop(self) -> None:
        """Take it from the router, wait for its requests (``drain_timeout_s``), end it, give its room back."""
        await self._keeping.stop()
        try:
            if self.url is not None:
                await self._router.remove(self.url)
                if not await EngineApi(self.url).idle(self._served.endpoint.drain_timeout_s):
                    log.warning("serving.cut_off", backbone=self._served.backbone, replica=self._index)
            await self._stop_actors()
        finally:
            self._leave("stopped")
            self._give_room_back()

    async def _begin(self) -> None:
        served, started = self._served, time.monotonic()
        name = f"{served.backbone} replica {self._index}"
        try:
            if self._group is None:
                label = f"backbone {served.backbone!r}, replica {self._index} of launch {served.launch}"
                self._group = await placed(label, need_of(served.endpoint), served.endpoint.placement_timeout_s)
            self._actors = [self._actor(rank) for rank in range(served.endpoint.nodes)]
            url = await self._started(*await self._met())
            await self._router.add(url)
        except RayTaskError as error:
            self._leave("restarting")
            if isinstance(error.cause, ServingError):
                raise error.cause from None
            raise ServingError(f"{name} failed to start: {error}") from error
        except RayError as error:
            self._leave("restarting")
            raise ServingError(f"{name}: its actor died while it started: {error}") from error
        except BaseException:
            self._leave("restarting")
            raise
        self.url, self._state, self._start_s = url, "serving", round(time.monotonic() - started, 1)
        log.info(
            "serving.replica_ready", backbone=served.backbone, replica=self._index, url=url, took_s=self._start_s
        )
        self._changed()

    def _actor(self, rank: int) -> ActorHandle[Any]:
        served, endpoint = self._served, self._served.endpoint
        assert self._group is not None
        name = self._part(rank)
        options: dict[str, Any] = {
            # Another name for each start: Ray gives a dead actor's free some time later.
            "name": f"chime-{served.launch}-serving-{name}-{secrets.token_hex(4)}",
            "num_cpus": endpoint.cpus,
            "num_gpus": endpoint.gpus_per_node,
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=rank
            ),
        }
        actor: Any = ray.remote(ReplicaActor).options(**options)
        handle: ActorHandle[Any] = actor.remote(served.launch, name, self._log_path(rank), served.host)
        return handle

    async def _met(self) -> tuple[str, int]:
        """Wait until every actor lives; returns where the parts of the replica meet."""
        patience_s = self._served.endpoint.placement_timeout_s
        addresses: list[tuple[str, int]]
        try:
            async with asyncio.timeout(patience_s):
                addresses = await asyncio.gather(*(actor.address.remote() for actor in self._actors))
        except TimeoutError:
            # Its node is gone, and Ray waits for another. The next start asks for room anew and says what lacks.
            self._give_room_back()
            raise ServingError(
                f"its room on the cluster is gone, and did not come back in {patience_s:g} s"
            ) from None
        host, port = addresses[0]
        return host, port

    async def _started(self, host: str, port: int) -> str:
        endpoint, model = self._served.endpoint, self._served.model
        ranks: list[NodeRank | None] = [None]
        if endpoint.nodes > 1:
            ranks = [NodeRank(rank, endpoint.nodes, host, port) for rank in range(endpoint.nodes)]
        first, *others = self._actors
        await asyncio.gather(
            *(actor.start.remote(endpoint, model, rank) for actor, rank in zip(others, ranks[1:], strict=True))
        )
        answering = asyncio.ensure_future(_url(first.start.remote(endpoint, model, ranks[0])))
        ends = [asyncio.ensure_future(_why(actor)) for actor in others]
        try:
            done, _ = await asyncio.wait({answering, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if answering not in done:
                # The first part would wait for the others until its time is over.
                raise ServingError(f"{self._part(0)}: a part of it on another node ended: {done.pop().result()}")
            return answering.result()
        finally:
            for task in (answering, *ends):
                task.cancel()

    async def _ended(self) -> str:
        ends = [asyncio.ensure_future(_why(actor)) for actor in self._actors]
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        url = self.url
        self._leave("restarting")
        if url is not None:
            await self._router.remove(url)
        return done.pop().result()

    async def _stop_actors(self) -> None:
        stops = [actor.stop.remote() for actor in self._actors]
        try:
            async with asyncio.timeout(2 * STOP_S):
                await asyncio.gather(*stops)
        except (RayError, TimeoutError) as error:
            log.warning(
                "serving.stop_failed", backbone=self._served.backbone, error=f"{type(error).__name__}: {error}"
            )

    def _leave(self, state: State) -> None:
        # Whatever the actor still runs dies with its process.
        for actor in self._actors:
            ray.kill(actor, no_restart=True)
        self._actors, self.url, self._state = [], None, state
        self._changed()

    def _give_room_back(self) -> None:
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None

    def _part(self, rank: int) -> str:
        name = f"{self._served.file_name}-{self._index}"
        return name if rank == 0 else f"{name}-node{rank}"

    def _log_path(self, rank: int) -> Path:
        return self._served.logs / f"{self._part(rank)}.log"


async def _url(started: Any) -> str:
    return str(await started)


async def _why(actor: ActorHandle[Any]) -> str:
    try:
        return str(await actor.ended.remote())
    except RayError as error:
        return f"its actor died ({type(error).__name__})"
