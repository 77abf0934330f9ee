"""The actors: thin hosts for engine objects.

Each takes a factory, a picklable callable that builds the engine object inside the actor's process and event
loop. A restarted actor starts from its constructor, so everything it needs comes from the factory and from
storage (C1). Task retries are off everywhere: a repeated call is the caller's decision (C2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, Literal, TypeVar

import structlog

from chime_dist.adapters import launch_processes
from chime_dist.adapters.ray.deaths import Life
from chime_dist.core.bank import BankState
from chime_dist.core.episode import EpisodeTrace, Unit
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.engine.bank_owner import BankOwner
from chime_dist.engine.meters import Snapshot, meters_of
from chime_dist.engine.roles import RoleRunner
from chime_dist.engine.worker import Delivery, Worker
from chime_dist.errors import TurnOverError
from chime_dist.ports import BankQuery, Embedded, Embedder, EmbedderFingerprint, Hit, RecordStore

log = structlog.get_logger()

T = TypeVar("T")

SWEEP_EVERY_S = 20.0
"""Between two looks at what dead workers left on a node, in seconds."""


class _Once(Generic[T]):
    """Something built at its first use, by the loop that uses it: clients and locks bind to a loop."""

    def __init__(self, factory: Callable[[], Awaitable[T]]) -> None:
        self._factory = factory
        self._building = asyncio.Lock()
        self._built: T | None = None

    async def get(self) -> T:
        """The one instance; a failed build is tried again by the next call."""
        async with self._building:
            if self._built is None:
                self._built = await self._factory()
            return self._built


class _Gathering:
    """An actor that can be asked what its process has gathered."""

    async def gathered(self, launch: str) -> Snapshot:
        """See ``engine.meters``."""
        return meters_of(launch).snapshot()


class BankActor(_Gathering):
    """Owns the banks of a launch: commits, and reads at pinned versions. Takes a new fence at every start."""

    def __init__(self, factory: Callable[[], Awaitable[BankOwner]]) -> None:
        self._factory = factory
        self._opened = _Once(self._open)

    async def serve(self) -> None:
        """Open the banks and commit until the owner fails; its error is the call's."""
        try:
            _, commits = await self._opened.get()
            await asyncio.shield(commits)
        except TurnOverError as error:
            log.warning("bank.turn_over", reason=str(error))
            raise

    async def search(self, query: BankQuery) -> list[Hit]:
        """See ``ports.BankReader``."""
        return await (await self._owner()).search(query)

    async def export(self, run_id: str, version: int) -> BankState:
        """See ``ports.BankReader``."""
        return await (await self._owner()).export(run_id, version)

    async def digest(self, run_id: str) -> str:
        """See ``engine.driver.BankControl``."""
        return await (await self._owner()).digest(run_id)

    async def close(self) -> None:
        """Stop committing and release the store."""
        owner, commits = await self._opened.get()
        commits.cancel()
        await asyncio.gather(commits, return_exceptions=True)
        await owner.close()

    async def _open(self) -> tuple[BankOwner, asyncio.Task[None]]:
        owner = await self._factory()
        await owner.open()
        return owner, asyncio.create_task(owner.run())

    async def _owner(self) -> BankOwner:
        owner, commits = await self._opened.get()
        if commits.done():
            # A fenced or broken owner must not answer reads as if nothing had happened.
            commits.result()
        return owner


class RoleActor(_Gathering):
    """One role on one backbone: one model turn per call."""

    def __init__(self, factory: Callable[[], RoleRunner]) -> None:
        self._factory = factory
        self._runner: RoleRunner | None = None

    async def turn(self, turn: Turn, session_id: str, budget_s: float) -> ChatReply:
        """See ``ports.Models``."""
        if self._runner is None:
            # Here and not in the constructor: the HTTP client binds to the loop that calls it.
            self._runner = self._factory()
        return await self._runner.turn(turn, session_id, budget_s)

    async def probe(self, budget_s: float) -> None:
        """See ``ports.Models``."""
        if self._runner is None:
            self._runner = self._factory()
        await self._runner.probe(budget_s)


class PlannerActor(RoleActor):
    """Turns a task and plan memories into a plan."""


class ExecutorActor(RoleActor):
    """Turns a plan, exec memories and what happened so far into the next action."""


class GateActor(RoleActor):
    """Turns a scored trajectory into a diagnosis, and two lessons into one."""


class EmbedderActor(_Gathering):
    """Texts to vectors."""

    def __init__(self, factory: Callable[[], Awaitable[Embedder]]) -> None:
        self._embedder = _Once(factory)

    async def fingerprint(self) -> EmbedderFingerprint:
        """See ``ports.Embedder``; loads the model."""
        return (await self._embedder.get()).fingerprint

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> Embedded:
        """See ``ports.Embedder``."""
        return await (await self._embedder.get()).embed(texts, kind)


class RecordActor(_Gathering):
    """The run directory's one writer. Lives on the driver's node, where the directory is."""

    def __init__(self, factory: Callable[[], Awaitable[RecordStore]]) -> None:
        self._records = _Once(factory)

    async def write(self, trace: EpisodeTrace) -> EpisodeTrace:
        """See ``ports.RecordStore``."""
        return await (await self._records.get()).write(trace)

    async def final(self, unit: Unit) -> EpisodeTrace | None:
        """See ``ports.RecordStore``."""
        return await (await self._records.get()).final(unit)

    async def settled(self, run_id: str) -> frozenset[str]:
        """See ``ports.RecordStore``."""
        return await (await self._records.get()).settled(run_id)

    async def tally(self, run_id: str) -> Mapping[str, int]:
        """See ``ports.RecordStore``."""
        return dict(await (await self._records.get()).tally(run_id))


class WorkerActor(_Gathering):
    """Runs episodes. Dies and comes back without memory: its leases run out and its units are redelivered.

    What its benchmarks start is marked as its own; what an earlier worker's left on this node is ended at its
    start and then again and again, because a killed worker may come back on another node (C7).
    """

    def __init__(self, launch: str, factory: Callable[[str], Awaitable[Worker]]) -> None:
        """``factory`` takes the name under which the worker claims."""
        self._launch = launch
        self._factory = factory
        self._worker: Worker | None = None

    async def run(self, name: str, out_of_memory: frozenset[Delivery]) -> None:
        """Work until ``stop``; raises what the worker raises. See ``tell`` for ``out_of_memory``."""
        await asyncio.to_thread(launch_processes.begin, self._launch)
        sweeping = asyncio.create_task(self._sweep())
        try:
            worker = await self._factory(name)
            self._worker = worker
            worker.told_out_of_memory(out_of_memory)
            await worker.run()
        except TurnOverError as error:
            # Its own driver may be frozen, and then hears of it late or never.
            log.warning("worker.turn_over", worker=name, reason=str(error))
            raise
        finally:
            sweeping.cancel()

    async def life(self) -> Life:
        """This process."""
        return Life.own()

    async def tell(self, out_of_memory: frozenset[Delivery]) -> None:
        """See ``engine.worker.Worker.told_out_of_memory``."""
        if self._worker is not None:
            self._worker.told_out_of_memory(out_of_memory)

    async def stop(self) -> None:
        """Claim no more. The open episodes end before ``run`` returns."""
        if self._worker is not None:
            self._worker.stop()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            await asyncio.to_thread(launch_processes.sweep, self._launch)
