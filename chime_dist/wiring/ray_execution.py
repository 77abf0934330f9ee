"""A launch on Ray: the same parts as the local execution, each in its actor."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from chime_dist.adapters.directory.episode_store import EpisodeStore
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.garbage import collect_rarely
from chime_dist.adapters.ray.actors import (
    BankActor,
    EmbedderActor,
    ExecutorActor,
    GateActor,
    PlannerActor,
    RecordActor,
    WorkerActor,
)
from chime_dist.adapters.ray.cluster import RayCluster
from chime_dist.adapters.ray.gathering import gathered
from chime_dist.adapters.ray.handles import RayBank, RayModels, RayRecords, RayWorkers
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.pending import pending_units
from chime_dist.config.run import RunConfig
from chime_dist.core.episode import Role
from chime_dist.engine.bank_owner import BankOwner
from chime_dist.engine.meters import Snapshot
from chime_dist.engine.roles import RoleRunner
from chime_dist.engine.worker import Delivery, Worker
from chime_dist.ports import Embedder, EmbedderFingerprint, RecordStore
from chime_dist.wiring import embedders, services
from chime_dist.wiring.execution import OwnedBank, QueueParts, slot_shares, worker_name
from chime_dist.wiring.pacers import pacer
from chime_dist.wiring.services import LaunchSpec

_ROLE_ACTORS = {Role.PLANNER: PlannerActor, Role.EXECUTOR: ExecutorActor, Role.GATE: GateActor}


@dataclass(frozen=True, slots=True)
class RemoteModels:
    """Names of the role actors by role and backbone, and of the embedder's."""

    roles: Mapping[tuple[Role, str], str]
    embedder: str

    def of(self, run: RunConfig) -> RayModels:
        """The models of one run."""
        roles = {role: self.roles[role, run.backbone_of(role).name] for role in services.ROLES}
        return RayModels(roles, self.embedder)


@dataclass(frozen=True, slots=True)
class _Role:
    spec: LaunchSpec
    role: Role
    backbone: str

    def __call__(self) -> RoleRunner:
        services.log_here(self.spec)
        paced = pacer(self.spec, self.backbone, self.role)
        client = services.client(self.spec, self.backbone, paced)
        return services.role_runner(self.spec, self.role, self.backbone, client)


@dataclass(frozen=True, slots=True)
class _Embedder:
    spec: LaunchSpec

    async def __call__(self) -> Embedder:
        services.log_here(self.spec)
        return await embedders.embedder(self.spec)


@dataclass(frozen=True, slots=True)
class _Records:
    spec: LaunchSpec

    async def __call__(self) -> RecordStore:
        services.log_here(self.spec)
        return await EpisodeStore.open(LaunchDirectory.open(self.spec.directory), now=datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class _Bank:
    spec: LaunchSpec
    models: RemoteModels
    fingerprint: EmbedderFingerprint

    async def __call__(self) -> BankOwner:
        services.log_here(self.spec)
        collect_rarely()
        _, queue, journal = services.redis_parts(self.spec)
        return services.bank_owner(self.spec, queue, journal, self.fingerprint, self.models.of)


@dataclass(frozen=True, slots=True)
class _Worker:
    spec: LaunchSpec
    slots: int
    models: RemoteModels
    records: str
    bank: str

    async def __call__(self, name: str) -> Worker:
        services.log_here(self.spec)
        collect_rarely()
        _, queue, _ = services.redis_parts(self.spec)
        return services.worker(
            self.spec,
            name,
            self.slots,
            queue,
            RayRecords(self.records),
            RayBank(self.bank),
            self.models.of,
        )


class RayExecution:
    """Implements ``Execution`` on a Ray cluster."""

    def __init__(self, spec: LaunchSpec, parts: QueueParts, cluster: RayCluster) -> None:
        self.queue = parts.queue
        self.journal = parts.journal
        self._spec = spec
        self._cluster = cluster

    @classmethod
    async def start(
        cls, spec: LaunchSpec, parts: QueueParts, directory: LaunchDirectory, stack: AsyncExitStack
    ) -> RayExecution:
        """Join or start the cluster and create every actor. Raises ServiceError, and what a part raises."""
        ray = spec.cluster.ray
        cluster = await asyncio.to_thread(
            RayCluster.connect, spec.launch, ray.address, ray.num_cpus, ray.namespace
        )
        signals_are_ours()
        stack.callback(cluster.leave)
        execution = cls(spec, parts, cluster)
        await execution._create()
        return execution

    async def serve(self) -> None:
        """See ``Execution``."""
        await self._bank.serve()

    async def work(self) -> None:
        """See ``Execution``."""
        await self._workers.run()

    async def stop_workers(self) -> None:
        """See ``Execution``."""
        await self._workers.stop()

    async def gathered(self) -> list[Snapshot | None]:
        """See ``Execution``."""
        return await gathered(self._spec.launch, self._cluster.actors)

    async def _create(self) -> None:
        spec, cluster = self._spec, self._cluster
        records = cluster.actor(RecordActor, "records", _Records(spec), here=True)
        embedder = cluster.actor(EmbedderActor, "embedder", _Embedder(spec))
        roles = {
            (role, name): cluster.actor(_ROLE_ACTORS[role], f"{role.value}-{name}", _Role(spec, role, name))
            for role, name in sorted(_roles_in_use(spec))
        }
        models = RemoteModels(roles, embedder)
        self.records: RecordStore = RayRecords(records)
        fingerprint = await models.of(next(iter(spec.runs.values()))).fingerprint()
        # An embedded projection lies on the driver's disk, an embedded Redis answers on its host only. Any other
        # owner may run anywhere, and be replaced anywhere: what it holds is rebuilt from the journal.
        here = spec.cluster.qdrant.mode == "edge" or spec.cluster.redis.mode == "embedded"
        bank = cluster.actor(BankActor, "bank", _Bank(spec, models, fingerprint), here=here)
        self._bank = RayBank(bank)
        self.bank: OwnedBank = self._bank
        workers = {}
        for index, slots in enumerate(slot_shares(spec.cluster)):
            factory = _Worker(spec, slots, models, records, bank)
            actor = cluster.actor(WorkerActor, f"worker-{index}", spec.launch, factory)
            workers[actor] = partial(worker_name, index)
        self._workers = RayWorkers(workers, self._held)

    async def _held(self, consumer: str) -> frozenset[Delivery]:
        connection = services.redis_connection(self._spec)
        try:
            pending = await pending_units(connection, RedisKeys(self._spec.launch))
        finally:
            await connection.close()
        return frozenset((unit.unit, unit.delivery) for unit in pending if unit.consumer == consumer)


def signals_are_ours() -> None:
    """Undo Ray's SIGTERM handler: it calls ours too, but 3 s later it aborts the process."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        signal.siginterrupt(signal.SIGTERM, False)


def _roles_in_use(spec: LaunchSpec) -> set[tuple[Role, str]]:
    return {(role, run.backbone_of(role).name) for run in spec.runs.values() for role in services.ROLES}
