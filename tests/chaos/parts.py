"""The parts of a launch as processes of their own, without Ray: what dies here is one part, not the launch.

The driver's process is ``chime-dist sweep`` with another execution: its bank and its workers are elsewhere, its
records are called from there. Each function here is the body of one process, in the sweep's folder.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import pickle
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chime_dist.adapters import launch_processes
from chime_dist.adapters.directory.episode_store import EpisodeStore
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.benchmarks.credit_world.benchmark import CreditWorld
from chime_dist.config.run import RunConfig
from chime_dist.engine.roles import RunModels
from chime_dist.ports import Embedder, Environment, Models
from chime_dist.wiring import embedders, services
from chime_dist.wiring import launch as launching
from chime_dist.wiring.execution import QueueParts, worker_name
from chime_dist.wiring.pacers import pacer
from chime_dist.wiring.services import LaunchSpec
from tests.chaos.counting import chime_dist, count_calls
from tests.chaos.remote import Remote, served

SPEC, RECORDS, BANK = Path("spec.pickle"), Path("records.rpc"), Path("bank.rpc")
NETWORK = "CHIME_DRILL_NETWORK"
"""The environment variable that names the network namespace in which the bank's owner lives."""
POISON = "CHIME_DRILL_POISON"
"""The environment variable that names a task whose worker dies."""
LITTER, LEFT = "CHIME_DRILL_LITTER", Path("left.txt")
"""The one that names a task whose worker leaves a session of processes and dies, once; the session's leader."""


class Apart:
    """``wiring.execution.Execution`` whose bank and workers are other processes."""

    def __init__(self, parts: QueueParts, records: EpisodeStore) -> None:
        self.queue = parts.queue
        self.journal = parts.journal
        self.records = records
        self.bank: Any = Remote(BANK)
        self._stopping = asyncio.Event()

    @classmethod
    async def start(
        cls, spec: LaunchSpec, parts: QueueParts, directory: LaunchDirectory, stack: AsyncExitStack
    ) -> Apart:
        """Open the records and tell the others what to build."""
        records = await EpisodeStore.open(directory, now=datetime.now(UTC))
        stack.push_async_callback(records.close)
        await stack.enter_async_context(served(records, RECORDS))
        draft = SPEC.with_suffix(".draft")
        draft.write_bytes(pickle.dumps(spec))
        draft.replace(SPEC)
        return cls(parts, records)

    async def serve(self) -> None:
        """Somebody else commits."""
        await asyncio.Event().wait()

    async def work(self) -> None:
        """Somebody else works."""
        await self._stopping.wait()

    async def stop_workers(self) -> None:
        """Who started them ends them."""
        self._stopping.set()


def drive(*arguments: str) -> None:
    """The driver and the records."""
    launching._execution = Apart.start  # type: ignore[assignment]
    chime_dist(*arguments)


def own_bank() -> None:
    """The bank's owner."""
    if name := os.environ.get(NETWORK):
        with Path("/run/netns", name).open() as namespace:
            assert ctypes.CDLL(None).setns(namespace.fileno(), 0) == 0, name
    asyncio.run(_own_bank(_spec()))


def work(index: int, slots: int) -> None:
    """One worker."""
    asyncio.run(_work(_spec(), index, slots))


def _spec() -> LaunchSpec:
    count_calls()
    deadline = time.monotonic() + 30.0
    while not SPEC.exists():
        assert time.monotonic() < deadline, "no driver"
        time.sleep(0.01)
    spec = pickle.loads(SPEC.read_bytes())
    assert isinstance(spec, LaunchSpec)
    services.log_here(spec)
    return spec


async def _own_bank(spec: LaunchSpec) -> None:
    connection, queue, journal = services.redis_parts(spec)
    embedder = await embedders.embedder(spec)
    owner = services.bank_owner(
        spec, queue, journal, embedder.fingerprint, lambda run: _models(spec, run, embedder)
    )
    await owner.open()
    async with served(owner, BANK):
        await owner.run()
    await connection.close()


async def _work(spec: LaunchSpec, index: int, slots: int) -> None:
    _, queue, _ = services.redis_parts(spec)
    embedder = await embedders.embedder(spec)
    # As ray.actors.WorkerActor does.
    launch_processes.begin(spec.launch)
    if poison := os.environ.get(POISON):
        _poison(poison, lambda: True)
    if litter := os.environ.get(LITTER):
        _poison(litter, _left)
    worker = services.worker(
        spec,
        worker_name(index),
        slots,
        queue,
        Remote(RECORDS),
        Remote(BANK),
        lambda run: _models(spec, run, embedder),
    )
    await worker.run()


def _models(spec: LaunchSpec, run: RunConfig, embedder: Embedder) -> Models:
    roles = {}
    for role in services.ROLES:
        name = run.backbone_of(role).name
        roles[role] = services.role_runner(spec, role, name, services.client(spec, name, pacer(spec, name)))
    return RunModels(roles, embedder)


def _left() -> bool:
    """Leave processes as benchmarks have them; False where that was done before."""
    if LEFT.exists():
        return False
    leader = subprocess.Popen(["bash", "-c", "sleep 311 & wait"], start_new_session=True)
    LEFT.write_text(str(leader.pid))
    return True


def _poison(task: str, deadly: Callable[[], bool]) -> None:
    """Have this process die of one task, shortly after it was opened."""
    opened = CreditWorld.open

    async def open_or_die(self: CreditWorld, task_id: str) -> Environment:
        if task_id == task and deadly():
            await asyncio.sleep(0.02)
            os.kill(os.getpid(), signal.SIGKILL)
        return await opened(self, task_id)

    CreditWorld.open = open_or_die  # type: ignore[assignment,method-assign]
