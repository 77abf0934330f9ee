"""Where a launch's parts run. The driver sees the same few things, whatever process they are in."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.directory.episode_store import EpisodeStore
from chime_dist.adapters.directory.file_journal import FileJournal
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.garbage import rare_collections
from chime_dist.adapters.local.change_feed import ChangeFeed
from chime_dist.adapters.local.queue import LocalQueue
from chime_dist.adapters.redis.preflight import preflight
from chime_dist.config.cluster import ClusterConfig
from chime_dist.config.run import RunConfig
from chime_dist.core.episode import Role
from chime_dist.engine.driver import BankControl
from chime_dist.engine.meters import Snapshot, meters_of
from chime_dist.engine.roles import RoleRunner, RunModels
from chime_dist.ports import Backbone, BankReader, Embedder, Journal, Models, Queue, RecordStore
from chime_dist.wiring import embedders, services
from chime_dist.wiring.pacers import pacer
from chime_dist.wiring.services import LaunchSpec


class OwnedBank(BankReader, BankControl, Protocol):
    """What episodes read and what the driver asks."""


class Execution(Protocol):
    """A running launch. The end, or error, of ``serve`` or ``work`` before the driver's ends the launch."""

    queue: Queue
    journal: Journal
    records: RecordStore
    bank: OwnedBank

    async def serve(self) -> None:
        """Commit until cancelled."""
        ...

    async def work(self) -> None:
        """Run episodes until ``stop_workers``."""
        ...

    async def stop_workers(self) -> None:
        """Claim no more; ``work`` returns when the open episodes have ended. May be called again."""
        ...

    async def gathered(self) -> list[Snapshot | None]:
        """What each process of the launch has gathered; None for one that does not answer at once."""
        ...


def worker_name(index: int) -> str:
    """Unique in the launch, restarts included: a name's earlier process may still hold leases."""
    return f"{socket.gethostname()}-{index}-{secrets.token_hex(4)}"


def slot_shares(cluster: ClusterConfig) -> list[int]:
    """Slots of each worker, as even as they go."""
    return [
        cluster.slots // cluster.workers + (i < cluster.slots % cluster.workers) for i in range(cluster.workers)
    ]


async def all_or_none(parts: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all to their end; the first error cancels the others and is raised as it is, not in a group."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class QueueParts:
    """Queue and journal as configured, and the file that mirrors a journal kept elsewhere."""

    def __init__(self, queue: Queue, journal: Journal, mirror: Journal | None) -> None:
        self.queue = queue
        self.journal = journal
        self.mirror = mirror

    @classmethod
    async def open(cls, spec: LaunchSpec, directory: LaunchDirectory, stack: AsyncExitStack) -> QueueParts:
        """Connect, or build in process; what was opened closes with ``stack``. Raises ServiceError.

        A server that others run was found fit before its driver's token was taken (``one_driver``).
        """

        def folder_of(run_id: str) -> Path:
            return directory.run(run_id).path

        if spec.redis_url is None:
            clock = SystemClock()
            feed = ChangeFeed(clock)
            return cls(LocalQueue(clock, feed, spec.cluster.lease_s), FileJournal(folder_of, feed), None)
        connection, queue, journal = services.redis_parts(spec)
        stack.push_async_callback(connection.close)
        stack.push_async_callback(queue.close)
        if spec.cluster.redis.mode == "embedded":
            await preflight(connection)
        return cls(queue, journal, FileJournal(folder_of))


class LocalExecution:
    """Everything in this process: workers are coroutines, role runners are called directly."""

    def __init__(self, spec: LaunchSpec, parts: QueueParts, records: EpisodeStore, embedder: Embedder) -> None:
        self.queue = parts.queue
        self.journal = parts.journal
        self.records: RecordStore = records
        self._runners: dict[tuple[Role, str], RoleRunner] = {}
        self._clients: dict[str, Backbone] = {}
        self._spec = spec
        self._embedder = embedder
        owner = services.bank_owner(spec, self.queue, self.journal, embedder.fingerprint, self._models_of)
        self.bank: OwnedBank = owner
        self._owner = owner
        self._workers = [
            services.worker(spec, worker_name(index), slots, self.queue, records, owner, self._models_of)
            for index, slots in enumerate(slot_shares(spec.cluster))
        ]

    @classmethod
    async def start(
        cls, spec: LaunchSpec, parts: QueueParts, directory: LaunchDirectory, stack: AsyncExitStack
    ) -> LocalExecution:
        """Load the embedder, open records and banks."""
        embedder = await embedders.embedder(spec)
        records = await EpisodeStore.open(directory, now=datetime.now(UTC))
        stack.push_async_callback(records.close)
        execution = cls(spec, parts, records, embedder)
        stack.push_async_callback(execution._close)
        stack.enter_context(rare_collections())
        await execution._owner.open()
        return execution

    async def serve(self) -> None:
        """See ``Execution``."""
        await self._owner.run()

    async def work(self) -> None:
        """See ``Execution``."""
        await all_or_none(worker.run() for worker in self._workers)

    async def stop_workers(self) -> None:
        """See ``Execution``."""
        for worker in self._workers:
            worker.stop()

    async def gathered(self) -> list[Snapshot | None]:
        """See ``Execution``."""
        return [meters_of(self._spec.launch).snapshot()]

    def _models_of(self, run: RunConfig) -> Models:
        roles = {}
        for role in services.ROLES:
            name = run.backbone_of(role).name
            key = (role, name)
            if name not in self._clients:
                self._clients[name] = services.client(self._spec, name, pacer(self._spec, name))
            if key not in self._runners:
                self._runners[key] = services.role_runner(self._spec, role, name, self._clients[name])
            roles[role] = self._runners[key]
        return RunModels(roles, self._embedder)

    async def _close(self) -> None:
        await asyncio.gather(*(client.close() for client in self._clients.values()))
        await self._owner.close()
