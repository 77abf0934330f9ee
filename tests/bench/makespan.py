"""How long a train stream takes where episodes differ in length: one run alone, and three that share the slots."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from chime_dist.core.window import Admission, StreamShape
from tests.bench.canned import CALLS
from tests.bench.endpoint import endpoint
from tests.bench.measurement import Measurement, alone, scratch
from tests.bench.rig import Rig

_SIGMA = 0.6
_SLOTS = 16


async def measure(quick: bool) -> list[Measurement]:
    """The bound over the measured makespan, in percent; the floor is the same stream without any machinery."""
    train, mean_call_s = (10, 0.01) if quick else (160, 0.2)
    return alone(_measure, 1, train, mean_call_s) + alone(_measure, 3, train, mean_call_s)


async def _measure(runs: int, train: int, mean_call_s: float) -> list[Measurement]:
    with scratch() as folder:
        async with endpoint(mean_call_s, _SIGMA) as served:
            rig = Rig(folder, train, 0, _SLOTS, orderings=runs, endpoint={"kind": "http", "url": served.url})
            launch = await rig.run()
            seconds = (await served.seen()).seconds
    durations = [[seconds[run.plan.train_unit(position).key] for position in range(train)] for run in launch.runs]
    took = rig.ended.since(rig.started).wall_s
    bound = list_schedule([seconds for run in durations for seconds in run], _SLOTS)
    stream = simulate(durations, launch.runs[0].plan.shape, _SLOTS)
    mean_s = mean_call_s * CALLS["train"]
    return [
        Measurement(
            bench="makespan",
            case=f"{runs} run{'s' * (runs > 1)} of {train} on {_SLOTS} slots, {mean_s:g} s each, sigma {_SIGMA}",
            metric="list-schedule bound over makespan",
            unit="%",
            value=100 * bound / took,
            floor=100 * bound / stream,
            floor_of="the same durations and window, simulated without machinery",
            better="higher",
        )
    ]


def list_schedule(durations: Sequence[float], slots: int) -> float:
    """Seconds that the episodes take where each starts as soon as a slot is free, in the given order."""
    free = [0.0] * slots
    for seconds in durations:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def simulate(durations: Sequence[Sequence[float]], shape: StreamShape, slots: int) -> float:
    """Seconds that the runs' streams take under the window, least advanced run first, in no time between."""
    admissions = [Admission(shape) for _ in durations]
    finished: list[set[int]] = [set() for _ in durations]
    running: list[tuple[float, int, int]] = []
    now = 0.0
    while True:
        while len(running) < slots and (run := _next(admissions)) is not None:
            position = admissions[run].next_position
            admissions[run] = admissions[run].admitted()
            heapq.heappush(running, (now + durations[run][position], run, position))
        if not running:
            return now
        now, run, position = heapq.heappop(running)
        finished[run].add(position)
        head = admissions[run].head
        while head in finished[run]:
            head += 1
        admissions[run] = admissions[run].committed(head)


def _next(admissions: Sequence[Admission]) -> int | None:
    ready: Mapping[int, int] = {
        run: admission.next_position for run, admission in enumerate(admissions) if admission.ready() is not None
    }
    return min(ready, key=lambda run: ready[run], default=None)
