"""How long one search of the bank takes through its owner, beside a brute force over the same vectors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.directory.file_journal import FileJournal
from chime_dist.adapters.local.change_feed import ChangeFeed
from chime_dist.adapters.local.queue import LocalQueue
from chime_dist.core.memory import SCENARIO_VECTOR, Stage
from chime_dist.core.vector import Vector
from chime_dist.ports import BankQuery
from tests.bench.banks import OneBank, fill, vector_of
from tests.bench.measurement import Measurement, alone, percentile, scratch

_LIMIT = 20
_FLOOR = "numpy, float32, one matrix product and a partition"
_P99_AIM_MS = 10.0
_WARM_UP = 10


class _Case(NamedTuple):
    store: Literal["memory", "edge"]
    items: int
    """In the bank, half of them in the stage that is searched."""
    searches: int


_FULL = tuple(_Case(store, items, 500) for store in ("memory", "edge") for items in (200, 4000))
_QUICK = (_Case("memory", 20, 5), _Case("edge", 20, 5))


async def measure(quick: bool) -> list[Measurement]:
    """p50 and p99 milliseconds of one search for the best 20, one after the other."""
    found: list[Measurement] = []
    for case in _QUICK if quick else _FULL:
        found += alone(_measure, case)
    return found


async def _measure(case: _Case) -> list[Measurement]:
    with scratch() as folder:
        return await _measure_in(folder, case)


async def _measure_in(folder: Path, case: _Case) -> list[Measurement]:
    clock = SystemClock()
    feed = ChangeFeed(clock)
    journal = FileJournal(lambda run_id: folder / run_id, feed)
    bank = OneBank(folder, LocalQueue(clock, feed, 60.0), journal, case.store)
    head = await fill(journal, bank.run_id, case.items)
    await bank.owner.open()
    stage = Stage.PLAN.value
    state = await bank.owner.export(bank.run_id, head)
    rows = np.stack([record.vectors[SCENARIO_VECTOR].array for record in state.collection(stage)])
    queries = [vector_of(1_000_000 + i, 0, 0) for i in range(_WARM_UP + case.searches)]
    spent, bare = list[float](), list[float]()
    for query in queries:
        began = time.perf_counter()
        hits = await bank.owner.search(
            BankQuery(
                run_id=bank.run_id,
                version=head,
                collection=stage,
                vector=query,
                limit=_LIMIT,
                min_similarity=0.3,
            )
        )
        spent.append(1000 * (time.perf_counter() - began))
        assert len(hits) == min(_LIMIT, len(rows))
        began = time.perf_counter()
        _brute_force(rows, query)
        bare.append(1000 * (time.perf_counter() - began))
    await bank.owner.close()
    return [
        Measurement(
            bench="reads",
            case=f"{case.store}, {case.items:,} items",
            metric=metric,
            unit="ms",
            value=percentile(spent[_WARM_UP:], share),
            floor=percentile(bare[_WARM_UP:], share),
            floor_of=_FLOOR,
            aim=_P99_AIM_MS if share == 0.99 else None,
        )
        for metric, share in (("p50", 0.5), ("p99", 0.99))
    ]


def _brute_force(rows: np.ndarray[tuple[int, int], np.dtype[np.float32]], query: Vector) -> None:
    scores = rows @ query.array
    best = np.argpartition(scores, -min(_LIMIT, len(scores)))[-_LIMIT:]
    best[np.argsort(-scores[best])]
