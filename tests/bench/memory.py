"""What an episode in flight holds, and whether the process grows with the episodes it has finished."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tests.bench.endpoint import bare_calls, endpoint
from tests.bench.measurement import Measurement, alone, scratch
from tests.bench.rig import Rig

_MB = 1e6
_EPISODE_AIM_MB = 0.2
_FINISHED_AIM_KB = 2.0
"""What is kept of a finished episode: where its row is, and that it is settled."""
_SAMPLE_S = 0.02


async def measure(quick: bool) -> list[Measurement]:
    """MB per episode at 1,000 in flight, resident MB after each quarter of 20,000 evaluation episodes, and by how
    much the process has grown for each of them."""
    found = alone(_in_flight, 8 if quick else 1000, 0.05 if quick else 1.0)
    return found + alone(_finished, 40 if quick else 20_000)


def _resident_mb() -> float:
    return float(psutil.Process().memory_info().rss) / _MB


class _Peak:
    """The largest resident size since ``reset``, sampled by a thread."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self.mb = _resident_mb()

    def watch(self) -> None:
        while not self._stopped.wait(_SAMPLE_S):
            self.mb = max(self.mb, _resident_mb())

    def stop(self) -> None:
        self._stopped.set()


@contextmanager
def _peak() -> Iterator[_Peak]:
    peak = _Peak()
    thread = threading.Thread(target=peak.watch)
    thread.start()
    try:
        yield peak
    finally:
        peak.stop()
        thread.join()


async def _in_flight(in_flight: int, latency_s: float) -> list[Measurement]:
    train = 16
    before = 0.0

    def note(opened: int) -> None:
        nonlocal before
        if opened == train:
            before = _resident_mb()

    with scratch() as folder:
        async with endpoint(latency_s) as served:
            rig = Rig(
                folder,
                train,
                2 * in_flight,
                in_flight,
                endpoint={"kind": "http", "url": served.url},
                on_open=note,
            )
            with _peak() as peak:
                await rig.run()
            body = (await served.seen()).largest.encode()
            bare_mb = await asyncio.to_thread(alone, _bare, served.url, body, in_flight)
    return [
        Measurement(
            bench="memory",
            case=f"eval, {in_flight:,} in flight",
            metric="per episode in flight",
            unit="MB",
            value=(peak.mb - before) / in_flight,
            floor=bare_mb,
            floor_of="a bare aiohttp loop with as many requests in flight",
            aim=_EPISODE_AIM_MB,
        )
    ]


async def _bare(url: str, body: bytes, in_flight: int) -> float:
    before = _resident_mb()
    with _peak() as peak:
        await bare_calls(url, body, 2 * in_flight, in_flight)
    return (peak.mb - before) / in_flight


async def _finished(episodes: int) -> list[Measurement]:
    train = 16
    quarters = {train + episodes * share // 4: f"{25 * share} %" for share in (1, 2, 3)}
    resident: dict[str, float] = {}

    def note(opened: int) -> None:
        if opened in quarters:
            resident[quarters[opened]] = _resident_mb()

    with scratch() as folder:
        rig = Rig(folder, train, episodes, 16, on_open=note)
        [run] = (await rig.run()).runs
    resident["100 %"] = _resident_mb()
    first = resident["25 %"]
    kb_of_keys = sum(sys.getsizeof(key) for key in run.plan.eval_keys()) / 1e3
    grown = Measurement(
        bench="memory",
        case=f"{episodes:,} eval episodes",
        metric="growth per finished episode, from 25 %",
        unit="KB",
        value=max(0.0, resident["100 %"] - first) * 1e3 / (0.75 * episodes),
        floor=kb_of_keys / episodes,
        floor_of="its unit's key",
        aim=_FINISHED_AIM_KB,
    )
    return [
        Measurement(
            bench="memory",
            case=f"{episodes:,} eval episodes",
            metric=f"resident at {share}",
            unit="MB",
            value=mb,
            floor=first,
            floor_of="the same at 25 %",
        )
        for share, mb in resident.items()
    ] + [grown]
