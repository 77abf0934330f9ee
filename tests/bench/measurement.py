"""What a measurement is, how time is taken, and the process of its own that a measurement runs in."""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from chime_dist.core.frozen import Frozen
from chime_dist.logs import Logging

T = TypeVar("T")


class Measurement(Frozen):
    """One number and what it is to be compared with."""

    bench: str
    case: str
    """What was set up, e.g. ``redis + edge, train``."""
    metric: str
    unit: str
    value: float
    floor: float | None = None
    """The same metric of ``floor_of``, measured in the same run."""
    floor_of: str = ""
    aim: float | None = None
    """What the value, or with ``aim_of`` ratio the ratio, should reach."""
    aim_of: Literal["value", "ratio"] = "value"
    better: Literal["lower", "higher"] = "lower"

    @property
    def ratio(self) -> float | None:
        """Value over floor."""
        return None if not self.floor else self.value / self.floor

    @property
    def reached(self) -> bool | None:
        """Whether the aim is reached; None where there is none."""
        got = self.value if self.aim_of == "value" else self.ratio
        if self.aim is None or got is None:
            return None
        return got <= self.aim if self.better == "lower" else got >= self.aim


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of this process: wall clock and CPU of all its threads, in seconds."""

    wall_s: float
    cpu_s: float

    @classmethod
    def now(cls) -> Mark:
        """Here and now."""
        return cls(time.perf_counter(), time.process_time())

    def since(self, earlier: Mark) -> Mark:
        """The seconds between two moments."""
        return Mark(self.wall_s - earlier.wall_s, self.cpu_s - earlier.cpu_s)


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least ``share`` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the local disk, and a log file in it: what is measured includes writing the log of a launch."""
    with tempfile.TemporaryDirectory(prefix="chime-bench-") as name:
        folder = Path(name)
        with Logging(file=folder / "log.jsonl"):
            yield folder


def alone(work: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
    """The result of ``asyncio.run(work(*arguments))`` in a new process, so that no other heap is measured.

    It is forked from a server that has imported everything and done nothing.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.bench.catalogue"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_run, work, arguments).result()


def _run(work: Callable[..., Coroutine[Any, Any, T]], arguments: tuple[object, ...]) -> T:
    return asyncio.run(work(*arguments))
