"""Every bench by name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from tests.bench import commits, efficiency, growth, makespan, memory, overhead, queueing, reads, resume
from tests.bench.measurement import Measurement


class Bench(NamedTuple):
    """One group of measurements."""

    title: str
    measure: Callable[[bool], Coroutine[Any, Any, list[Measurement]]]
    """Given True it only shows that it works, in sizes that measure nothing."""


BENCHES: Mapping[str, Bench] = {
    "overhead": Bench("An episode without model latency", overhead.measure),
    "efficiency": Bench("Against calls x latency / slots", efficiency.measure),
    "growth": Bench("Training while the bank grows", growth.measure),
    "queue": Bench("The Redis queue", queueing.measure),
    "commits": Bench("The bank's owner, writing", commits.measure),
    "reads": Bench("The bank's owner, reading", reads.measure),
    "memory": Bench("Memory", memory.measure),
    "resume": Bench("Resuming", resume.measure),
    "makespan": Bench("Episodes of unequal length", makespan.measure),
}
