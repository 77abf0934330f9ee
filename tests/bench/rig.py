"""Whole launches of ``credit_world`` as a user would start them, with looks at the clock on the way."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.server import EmbeddedRedis
from chime_dist.benchmarks.credit_world.benchmark import CreditWorld, CreditWorldOptions
from chime_dist.config.sweep import SweepConfig
from chime_dist.config.validation import validated
from chime_dist.core.window import StreamShape
from chime_dist.engine.driver import Driver, Ending
from chime_dist.engine.plan import RunPlan
from chime_dist.wiring.launch import Launch
from chime_dist.wiring.plans import PlannedRun, plan_runs
from tests.bench.measurement import Mark

Adapters = Literal["local", "redis + edge"]
Fsync = Literal["always", "everysec"]

_SERVICES: dict[Adapters, dict[str, str]] = {
    "local": {"redis": "local", "qdrant": "memory"},
    "redis + edge": {"redis": "embedded", "qdrant": "edge"},
}

_DOUBLE: Mapping[str, object] = {"kind": "scripted"}
"""The agent that plays ``credit_world`` in this process, without latency."""


@asynccontextmanager
async def redis_connection(folder: Path, fsync: Fsync = "always") -> AsyncIterator[RedisConnection]:
    """A redis-server of our own that syncs as told, and a connection to it."""
    server = await EmbeddedRedis.start(folder / "redis")
    connection = RedisConnection(server.url)
    try:
        await connection.commands.config_set("appendfsync", fsync)
        yield connection
    finally:
        await connection.close()
        await server.stop()


@contextmanager
def spied(owner: type, name: str, told: Callable[..., None]) -> Iterator[None]:
    """Tell ``told`` the arguments of every call of a method of ``owner``, before the call."""
    original = getattr(owner, name)

    def call(self: object, *arguments: Any) -> Any:
        told(*arguments)
        return original(self, *arguments)

    async def awaited(self: object, *arguments: Any) -> Any:
        return await call(self, *arguments)

    with patch.object(owner, name, awaited if inspect.iscoroutinefunction(original) else call):
        yield


def sweep_of(
    folder: Path,
    *,
    tasks: int,
    orderings: int = 1,
    backbones: int = 1,
    method: str = "chime",
    adapters: Adapters = "local",
    slots: int = 16,
    window: int = 16,
    dim: int = 256,
    endpoint: Mapping[str, object] = _DOUBLE,
) -> SweepConfig:
    """A sweep over at least ``tasks`` tasks of two steps that keeps all it writes in ``folder``."""
    families = CreditWorldOptions().families
    names = [f"double-{index}" for index in range(backbones)]
    written = {
        "name": "bench",
        # Two of a family at least, so that its split has a side to train on.
        "benchmarks": [{"name": "credit_world", "tasks_per_family": max(2, -(-tasks // families))}],
        "methods": [method],
        "backbones": [{"name": name, "scripted": {"script": "credit_world"}} for name in names],
        "orderings": list(range(orderings)),
        "embedder": {"kind": "hashing", "dim": dim},
        "protocol": {"epochs": 1, "window": window},
        "cluster": {
            **_SERVICES[adapters],
            "slots": slots,
            "runs_dir": str(folder / "runs"),
            "state_dir": str(folder / "state"),
            "endpoints": {name: dict(endpoint) for name in names},
        },
    }
    return validated(SweepConfig, written, "the bench")


def resized(run: PlannedRun, train: int, evaluated: int) -> PlannedRun:
    """The run with a split of this size: the first tasks of its order train."""
    order = [*run.plan.train, *run.plan.eval]
    plan = RunPlan(
        run_id=run.run_id,
        shape=StreamShape(epoch_size=train, epochs=1, window=run.plan.shape.window),
        train=tuple(order[:train]),
        eval=tuple(order[train : train + evaluated]),
    )
    return replace(run, plan=plan)


@dataclass
class Rig:
    """A launch with one run per ordering; ``run`` drives it to its end in this process."""

    folder: Path
    train: int
    """Positions of each run, one epoch."""
    evaluated: int
    """Eval indexes of each run."""
    slots: int
    window: int = 16
    orderings: int = 1
    method: str = "chime"
    adapters: Adapters = "local"
    dim: int = 256
    """Of the hashing embedder."""
    endpoint: Mapping[str, object] = field(default_factory=lambda: _DOUBLE)
    on_open: Callable[[int], None] | None = None
    """Told before every episode how many were opened before it."""
    opened: int = 0
    started: Mark = field(init=False)
    """When the driver began; services were up."""
    trained: Mark = field(init=False)
    """When the first evaluation episode opened, or as ``ended``."""
    ended: Mark = field(init=False)
    """When the driver was done."""

    async def run(self) -> Launch:
        """Drive to the end. Raises AssertionError where the launch does not complete."""
        sweep = sweep_of(
            self.folder,
            tasks=self.train + self.evaluated,
            orderings=self.orderings,
            method=self.method,
            adapters=self.adapters,
            slots=self.slots,
            window=self.window,
            dim=self.dim,
            endpoint=self.endpoint,
        )
        launch = Launch.new(sweep, [resized(run, self.train, self.evaluated) for run in plan_runs(sweep)])
        trained = list[Mark]()
        eval_tasks = {task for run in launch.runs for task in run.plan.eval}

        def opening(task_id: str) -> None:
            if not trained and task_id in eval_tasks:
                trained.append(Mark.now())
            if self.on_open is not None:
                self.on_open(self.opened)
            self.opened += 1

        driving = Driver.run

        async def drive(driver: Driver) -> Ending:
            self.started = Mark.now()
            ending = await driving(driver)
            self.ended = Mark.now()
            return ending

        with spied(CreditWorld, "open", opening), patch.object(Driver, "run", drive):
            ending = await launch.drive(lambda _: None)
        assert ending is Ending.COMPLETE
        self.trained = trained[0] if trained else self.ended
        return launch
