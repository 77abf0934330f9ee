"""One contract for every bank store: memory, the embedded engine, the server adapter.

The server adapter runs over qdrant-client's in-process double everywhere, and over a real server where
CHIME_TEST_QDRANT_URL names one.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from qdrant_client import AsyncQdrantClient

from chime_dist.adapters.memory_store import MemoryStore
from chime_dist.adapters.qdrant_edge import QdrantEdgeStore
from chime_dist.adapters.qdrant_server import QdrantServerStore
from chime_dist.core.bank import BankState, Event, ItemId, apply
from chime_dist.core.vector import Vector, at_least, similarities, unit_rows
from chime_dist.errors import BankMismatchError, EmbeddingError, JournalError, ServiceError
from chime_dist.ports import BankStore, EmbedderFingerprint, Namespace

pytestmark = [
    pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant:UserWarning"),
    pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning"),
]

SERVER_URL = os.environ.get("CHIME_TEST_QDRANT_URL")
KINDS = ["memory", "edge", "server_double", *(["server"] if SERVER_URL else [])]
DIM = 4
FINGERPRINT = EmbedderFingerprint(model="hashing", dim=DIM)
NAMESPACE = Namespace(launch="launch", run_id="run", fence=1)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def _store(kind: str, folder: Path) -> AsyncIterator[BankStore]:
    if kind == "memory":
        store: BankStore = MemoryStore()
    elif kind == "edge":
        store = QdrantEdgeStore(folder)
    elif kind == "server_double":
        store = QdrantServerStore(AsyncQdrantClient(":memory:"))
    else:
        assert SERVER_URL is not None
        prefix = f"chime-test-{uuid.uuid4()}-"
        store = QdrantServerStore(AsyncQdrantClient(url=SERVER_URL, timeout=30), prefix)
    try:
        yield store
    finally:
        await store.close()
        if kind == "server":
            client = AsyncQdrantClient(url=SERVER_URL, timeout=30)
            for found in (await client.get_collections()).collections:
                if found.name.startswith(prefix):
                    await client.delete_collection(found.name)
            await client.close()


@pytest.fixture
async def store(kind: str, tmp_path: Path) -> AsyncIterator[BankStore]:
    async with _store(kind, tmp_path) as opened:
        yield opened


# --- banks ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Commit:
    position: int
    events: tuple[Event, ...]


def _put(item: str, vectors: dict[str, Vector] | None, collection: str = "plan", value: float = 0.0) -> Event:
    return Event(op="put", kind="test", collection=collection, id=item, payload={"v": value}, vectors=vectors)


def _drop(item: str, collection: str = "plan") -> Event:
    return Event(op="drop", kind="test", collection=collection, id=item)


def _history(*commits: Sequence[Event]) -> list[BankState]:
    """The bank at every version, from the empty one on."""
    states = [BankState()]
    for events in commits:
        states.append(apply(states[-1], _Commit(states[-1].version, tuple(events))))
    return states


async def _project_all(store: BankStore, states: list[BankState], namespace: Namespace = NAMESPACE) -> None:
    for before, after in itertools.pairwise(states):
        await store.project(namespace, after.version, before, after)


async def _opened(store: BankStore, states: list[BankState], namespace: Namespace = NAMESPACE) -> list[BankState]:
    await store.open(namespace, FINGERPRINT)
    await _project_all(store, states, namespace)
    return states


async def _find(
    store: BankStore,
    version: int,
    query: Vector,
    limit: int = 5,
    floor: float = -1.0,
    collection: str = "plan",
    name: str = "c",
    namespace: Namespace = NAMESPACE,
) -> list[str]:
    return await store.candidates(namespace, version, collection, name, query, limit, floor)


def _vector(*values: float) -> Vector:
    return Vector.of([*values, *[0.0] * (DIM - len(values))])


EAST, NORTH = _vector(1, 0), _vector(0, 1)


def _similarities(state: BankState, collection: str, name: str, query: Vector) -> dict[str, float]:
    holders = [r for r in state.collection(collection) if name in r.vectors]
    if not holders:
        return {}
    rows = unit_rows([r.vectors[name] for r in holders])
    return {r.id: sim for r, sim in zip(holders, similarities(query, rows), strict=True)}


def _best(sims: dict[str, float], limit: int, floor: float) -> list[str]:
    kept = [(item, sim) for item, sim in sims.items() if at_least(sim, floor)]
    kept.sort(key=lambda pair: (-pair[1], ItemId.parse(pair[0])))
    return [item for item, _ in kept[:limit]]


# --- against brute force --------------------------------------------------------------------------------

_BASES = [EAST, NORTH, _vector(1, 1), _vector(-1, 0.5, 2), _vector(0.3, math.sqrt(1 - 0.09)), _vector(1, 1e-5)]
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
                events.append(_put(item, vectors, collection))
                continue
            item = sorted(alive)[pick % len(alive)]
            place = alive[item]
            if what == "value":
                events.append(_put(item, None, place, value=pick / 10**6))
            elif what == "replace":
                events.append(_put(item, vectors, place))
            else:
                events.append(_drop(item, place))
                if what == "drop":
                    del alive[item]
                else:
                    alive[item] = collection if what == "move" else place
                    events.append(_put(item, vectors, alive[item]))
        states.append(apply(states[-1], _Commit(position, tuple(events))))
    return states


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    commits=st.lists(_CHANGES, max_size=8),
    query=_VECTORS,
    limit=st.integers(1, 4),
    floor=st.sampled_from([-1.0, 0.0, 0.3, 0.88, 1.0]),
)
async def test_candidates_hold_the_best_at_every_version(
    kind: str,
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[list[tuple[str, str, dict[str, Vector], int]]],
    query: Vector,
    limit: int,
    floor: float,
) -> None:
    """R12, R13: at every version, past ones too, nothing of the exact answer is missing and nothing is far off."""
    states = _random_history(commits)
    async with _store(kind, tmp_path_factory.mktemp("bank")) as store:
        await _opened(store, states)
        for state in states:
            for collection, name in [("plan", "c"), ("exec", "c"), ("plan", "e"), ("exec", "unheard of")]:
                sims = _similarities(state, collection, name, query)
                best = _best(sims, limit, floor)
                found = await _find(store, state.version, query, limit, floor, collection, name)
                assert set(best) <= set(found) <= set(sims)
                assert len(found) == len(set(found))
                worst = sims[best[-1]] if len(best) == limit else floor
                assert all(sims[item] >= max(worst, floor) - 3e-4 for item in found)


# --- thresholds and ties --------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-18, 1e-4, 1.0, 1e18])
async def test_a_similarity_at_the_threshold_is_proposed_however_long_the_vector(
    store: BankStore, scale: float
) -> None:
    """R12: sim = .3 is kept, and a vector's length means nothing; engines do not scale very short vectors."""
    at_threshold = _vector(0.3 * scale, math.sqrt(1 - 0.09) * scale)
    below = _vector(0.29 * scale, math.sqrt(1 - 0.29**2) * scale)
    await _opened(store, _history([_put("0-0", {"c": at_threshold}), _put("0-1", {"c": below})]))
    assert await _find(store, 1, Vector.of(EAST.array * np.float32(scale)), floor=0.3) == ["0-0"]


async def test_ties_at_the_cut_off_never_drop_a_lower_id(store: BankStore) -> None:
    """R17: equal similarities are ordered by id, and a store returns them in any order; so all are proposed."""
    events = [_put(f"0-{k}", {"c": Vector.of(EAST.array * np.float32(1 + k))}) for k in range(120)]
    events.append(_put("0-120", {"c": NORTH}))
    await _opened(store, _history(events))
    found = await _find(store, 1, EAST, limit=3, floor=0.3)
    assert set(found) == {f"0-{k}" for k in range(120)}


async def test_clearly_worse_items_are_not_proposed(store: BankStore) -> None:
    """A store may propose too much, but not everything: the caller recomputes what it proposes."""
    angles = [k / 100 for k in range(60)]
    events = [_put(f"0-{k}", {"c": _vector(math.cos(a), math.sin(a))}) for k, a in enumerate(angles)]
    await _opened(store, _history(events))
    assert set(await _find(store, 1, EAST, limit=10)) == {f"0-{k}" for k in range(10)}


async def test_nothing_is_asked_for_and_nothing_found(store: BankStore) -> None:
    await _opened(store, _history([_put("0-0", {"c": EAST})]))
    assert await _find(store, 1, EAST, limit=0) == []


@pytest.mark.parametrize("floor", [math.nan, math.inf, -math.inf])
async def test_a_threshold_that_is_no_number_is_refused(store: BankStore, floor: float) -> None:
    await _opened(store, _history([_put("0-0", {"c": EAST})]))
    with pytest.raises(ValueError, match="finite"):
        await _find(store, 1, EAST, floor=floor)


# --- versions -------------------------------------------------------------------------------------------


async def test_an_empty_bank_answers_with_nothing(store: BankStore) -> None:
    await _opened(store, _history())
    assert await _find(store, 0, EAST) == []


async def test_a_replaced_vector_is_found_where_it_stood(store: BankStore) -> None:
    """R7: what an episode reads is the bank of its version, whatever was committed since."""
    states = _history(
        [_put("0-0", {"c": EAST, "e": EAST})],
        [_put("0-0", None, value=0.5)],
        [_put("0-0", {"c": NORTH, "e": EAST})],
        [_drop("0-0")],
    )
    await _opened(store, states)
    assert [await _find(store, v, EAST, floor=0.9) for v in range(5)] == [[], ["0-0"], ["0-0"], [], []]
    assert [await _find(store, v, NORTH, floor=0.9) for v in range(5)] == [[], [], [], ["0-0"], []]
    assert [await _find(store, v, EAST, floor=0.9, name="e") for v in range(5)] == [[], *[["0-0"]] * 3, []]


async def test_projecting_a_version_again_changes_nothing(store: BankStore) -> None:
    """E2: a redelivered update is skipped."""
    states = await _opened(store, _history([_put("0-0", {"c": EAST})], [_drop("0-0"), _put("1-1", {"c": NORTH})]))
    await _project_all(store, states)
    assert [await _find(store, v, EAST) for v in range(3)] == [[], ["0-0"], ["1-1"]]


async def test_a_version_that_is_not_projected_is_refused(store: BankStore) -> None:
    await _opened(store, _history([_put("0-0", {"c": EAST})]))
    with pytest.raises(ServiceError, match=r"run_id='run'.* version 2 is not projected \(it holds 0 to 1\)"):
        await _find(store, 2, EAST)


async def test_a_bank_may_be_projected_in_one_step(store: BankStore) -> None:
    """A new owner need not walk every commit; the versions it skipped cannot be read."""
    states = _history([_put("0-0", {"c": EAST})], [_put("0-0", {"c": NORTH})], [_put("2-0", {"c": EAST})])
    await store.open(NAMESPACE, FINGERPRINT)
    await store.project(NAMESPACE, 2, states[0], states[2])
    await store.project(NAMESPACE, 3, states[2], states[3])
    assert await _find(store, 2, NORTH, floor=0.9) == ["0-0"]
    assert set(await _find(store, 3, EAST)) == {"0-0", "2-0"}
    with pytest.raises(ServiceError, match="it holds 0, 2 to 3"):
        await _find(store, 1, EAST)


async def test_a_gap_is_refused(store: BankStore) -> None:
    states = _history([_put("0-0", {"c": EAST})], [_put("1-0", {"c": EAST})])
    await store.open(NAMESPACE, FINGERPRINT)
    with pytest.raises(JournalError, match="it is at version 0, so it cannot be brought from 1 to 2"):
        await store.project(NAMESPACE, 2, states[1], states[2])


async def test_readers_of_past_versions_are_not_disturbed_by_commits(store: BankStore) -> None:
    states = _history(
        [_put("0-0", {"c": EAST})], *[[_drop(f"{n}-0"), _put(f"{n + 1}-0", {"c": EAST})] for n in range(8)]
    )
    await _opened(store, states[:2])

    async def read() -> list[list[str]]:
        return [await _find(store, 1, EAST) for _ in range(10)]

    reads, _ = await asyncio.gather(read(), _project_all(store, states[1:]))
    assert reads == [["0-0"]] * 10
    assert await _find(store, 9, EAST) == ["8-0"]


# --- owners ---------------------------------------------------------------------------------------------


async def test_namespaces_do_not_see_each_other(store: BankStore) -> None:
    """A stale owner writes where nobody reads."""
    others = [
        Namespace(launch="launch", run_id="run", fence=2),
        Namespace(launch="launch", run_id="记忆/..", fence=1),
        Namespace(launch="launch2", run_id="run", fence=1),
    ]
    for k, namespace in enumerate([NAMESPACE, *others]):
        await _opened(store, _history([_put(f"0-{k}", {"c": EAST})]), namespace)
    for k, namespace in enumerate([NAMESPACE, *others]):
        assert await _find(store, 1, EAST, namespace=namespace) == [f"0-{k}"]


async def test_a_namespace_that_nobody_opened_is_an_error(store: BankStore) -> None:
    await _opened(store, _history([_put("0-0", {"c": EAST})]))
    unknown = Namespace(launch="launch", run_id="other", fence=1)
    with pytest.raises(ServiceError, match="run_id='other'"):
        await _find(store, 0, EAST, namespace=unknown)
    with pytest.raises(ServiceError, match="run_id='other'"):
        await store.project(unknown, 1, *_history([_put("0-0", {"c": EAST})]))


async def test_opening_again_starts_empty(store: BankStore) -> None:
    """The owner rebuilds the projection from the journal, so nothing of an earlier one may shine through."""
    await _opened(store, _history([_put("0-0", {"c": EAST}), _put("0-1", {"c": EAST})]))
    await _opened(store, _history([_put("0-0", {"c": NORTH})]))
    assert await _find(store, 1, EAST, floor=0.5) == []
    assert await _find(store, 1, NORTH, floor=0.5) == ["0-0"]


@pytest.mark.parametrize("kind", ["memory", "edge"])
async def test_a_closed_store_can_be_opened_again(store: BankStore) -> None:
    states = await _opened(store, _history([_put("0-0", {"c": EAST})]))
    await store.close()
    with pytest.raises(ServiceError, match="not open"):
        await _find(store, 1, EAST)
    await _opened(store, states)
    assert await _find(store, 1, EAST) == ["0-0"]


# --- embedders ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        EmbedderFingerprint(model="hashing", dim=8),
        EmbedderFingerprint(model="other", dim=DIM),
        EmbedderFingerprint(model="hashing", dim=DIM, query_prompt="Find: "),
    ],
    ids=["dimension", "model", "query prompt"],
)
async def test_another_embedder_is_refused_and_nothing_is_lost(
    store: BankStore, other: EmbedderFingerprint
) -> None:
    """E4: size, model and prompt are compared at start-up; both values are named; nothing is deleted."""
    await _opened(store, _history([_put("0-0", {"c": EAST})]))
    for namespace in (NAMESPACE, Namespace(launch="launch", run_id="run", fence=2)):
        with pytest.raises(BankMismatchError) as caught:
            await store.open(namespace, other)
        assert str(FINGERPRINT) in str(caught.value)
        assert str(other) in str(caught.value)
    assert await _find(store, 1, EAST) == ["0-0"]


async def test_runs_of_one_store_may_use_different_embedders(store: BankStore) -> None:
    """What must not change is the embedder under one run's bank."""
    other = Namespace(launch="launch", run_id="other", fence=1)
    await _opened(store, _history([_put("0-0", {"c": EAST})]))
    await store.open(other, EmbedderFingerprint(model="other", dim=2))
    await store.project(other, 1, *_history([_put("0-1", {"c": Vector.of([1, 0])})]))
    assert await _find(store, 1, Vector.of([1, 0]), namespace=other) == ["0-1"]
    assert await _find(store, 1, EAST) == ["0-0"]


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (Vector.of([0.0] * DIM), EmbeddingError, "a zero vector"),
        (Vector.of([1.0] * (DIM + 1)), BankMismatchError, "dimension 5, the bank was opened with dimension 4"),
    ],
    ids=["zero", "dimension"],
)
async def test_a_vector_that_cannot_be_compared_is_refused_before_anything_is_written(
    store: BankStore, bad: Vector, error: type[Exception], message: str
) -> None:
    """E1: a write is never half done; the projection goes on from where it was."""
    await store.open(NAMESPACE, FINGERPRINT)
    with pytest.raises(error, match=message):
        await store.project(NAMESPACE, 1, *_history([_put("0-0", {"c": EAST}), _put("0-1", {"c": bad})]))
    await _project_all(store, _history([_put("0-2", {"c": EAST})]))
    assert await _find(store, 1, EAST) == ["0-2"]
    with pytest.raises(error, match=message):
        await _find(store, 1, bad)
