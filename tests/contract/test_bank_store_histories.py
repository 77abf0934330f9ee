"""Every bank store against brute force, over random histories."""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chime_dist.core.bank import BankState, Event, ItemId, apply
from chime_dist.core.vector import Vector
from chime_dist.errors import ServiceError
from chime_dist.ports import BankStore
from tests.contract.banks import (
    DIM,
    DOUBLES_WARNINGS,
    EAST,
    KINDS,
    NAMESPACE,
    NORTH,
    Commit,
    bank_store,
    best_of,
    drop,
    find,
    opened,
    put,
    similarities_of,
    vector,
)
from tests.contract.folders import quick_folder

pytestmark = DOUBLES_WARNINGS

# Over HTTP every one of these thousands of searches is a connection, and nothing else differs from the double.
_KINDS = [kind for kind in KINDS if kind != "server_rest"]

_BASES = [EAST, NORTH, vector(1, 1), vector(-1, 0.5, 2), vector(0.3, math.sqrt(1 - 0.09)), vector(1, 1e-5)]
_VECTORS = st.one_of(
    st.builds(
        lambda base, scale: Vector.of(base.array.astype(np.float64) * scale),
        st.sampled_from(_BASES),
        st.sampled_from([1.0, 3.0, 1e-12, 1e12]),
    ),
    st.lists(st.integers(-5, 5), min_size=DIM, max_size=DIM).filter(any).map(Vector.of),
)
_NAMED = st.dictionaries(st.sampled_from(["c", "e"]), _VECTORS, max_size=2)
_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["insert", "insert", "value", "replace", "drop", "drop_and_insert", "move"]),
        st.sampled_from(["plan", "exec"]),
        _NAMED,
        st.integers(0, 10**6),
    ),
    max_size=5,
)


def _random_history(commits: list[list[tuple[str, str, dict[str, Vector], int]]]) -> list[BankState]:
    states = [BankState()]
    for changes in commits:
        position = states[-1].version
        alive = {r.id: r.collection for r in states[-1].records.values()}
        events: list[Event] = []
        for k, (what, collection, vectors, pick) in enumerate(changes):
            if what == "insert" or not alive:
                item = str(ItemId(position, k))
                alive[item] = collection
                events.append(put(item, vectors, collection))
                continue
            item = sorted(alive)[pick % len(alive)]
            place = alive[item]
            if what == "value":
                events.append(put(item, None, place, value=pick / 10**6))
            elif what == "replace":
                events.append(put(item, vectors, place))
            else:
                events.append(drop(item, place))
                if what == "drop":
                    del alive[item]
                else:
                    alive[item] = collection if what == "move" else place
                    events.append(put(item, vectors, alive[item]))
        states.append(apply(states[-1], Commit(position, tuple(events))))
    return states


@asynccontextmanager
async def _quick_store(kind: str) -> AsyncIterator[BankStore]:
    with quick_folder() as folder:
        async with bank_store(kind, folder) as store:
            yield store


@pytest.mark.parametrize("kind", _KINDS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    commits=st.lists(_CHANGES, max_size=8),
    query=_VECTORS,
    limit=st.integers(1, 4),
    floor=st.sampled_from([-1.0, 0.0, 0.3, 0.88, 1.0]),
)
async def test_candidates_hold_the_best_at_every_version(
    kind: str,
    commits: list[list[tuple[str, str, dict[str, Vector], int]]],
    query: Vector,
    limit: int,
    floor: float,
) -> None:
    """R12, R13: at every version, past ones too, nothing of the exact answer is missing and nothing is far off."""
    states = _random_history(commits)
    async with _quick_store(kind) as store:
        await opened(store, states)
        for state in states:
            for collection, name in [("plan", "c"), ("exec", "c"), ("plan", "e"), ("exec", "unheard of")]:
                sims = similarities_of(state, collection, name, query)
                best = best_of(sims, limit, floor)
                found = await find(store, state.version, query, limit, floor, collection, name)
                assert set(best) <= set(found) <= set(sims)
                assert len(found) == len(set(found))
                worst = sims[best[-1]] if len(best) == limit else floor
                assert all(sims[item] >= max(worst, floor) - 3e-4 for item in found)


@pytest.mark.parametrize("kind", _KINDS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    commits=st.lists(_CHANGES, min_size=1, max_size=8),
    keeps=st.lists(st.none() | st.sets(st.integers(0, 9)), min_size=8, max_size=8),
    query=_VECTORS,
    limit=st.integers(1, 4),
)
async def test_compactions_never_change_the_answer_of_a_version_that_is_kept(
    kind: str,
    commits: list[list[tuple[str, str, dict[str, Vector], int]]],
    keeps: list[set[int] | None],
    query: Vector,
    limit: int,
) -> None:
    """R7: compacted after any commits, keeping any versions; the others are refused, never answered wrongly."""
    states = _random_history(commits)
    readable: set[int] = {0}
    async with _quick_store(kind) as store:
        await opened(store, states[:1])
        for (before, after), keep in zip(itertools.pairwise(states), keeps, strict=False):
            await store.project(NAMESPACE, after.version, before, after)
            readable.add(after.version)
            if keep is not None:
                await store.compact(NAMESPACE, sorted(keep))
                readable &= keep | {0, after.version}
        for state in states:
            for collection, name in [("plan", "c"), ("exec", "c"), ("plan", "e")]:
                if state.version not in readable:
                    with pytest.raises(ServiceError, match="was let go by a compaction"):
                        await find(store, state.version, query, limit, -1.0, collection, name)
                    continue
                sims = similarities_of(state, collection, name, query)
                found = await find(store, state.version, query, limit, -1.0, collection, name)
                assert set(best_of(sims, limit, -1.0)) <= set(found) <= set(sims)
