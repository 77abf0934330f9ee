"""Frozen reads answered from a copy: the same hits as the owner's, one export, bounded room (R5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from chime_dist.adapters.local.memory_store import MemoryStore
from chime_dist.adapters.local.resident_store import ResidentStore
from chime_dist.adapters.qdrant.edge import QdrantEdgeStore
from chime_dist.core.bank import BankState, Event
from chime_dist.core.memory import Stage
from chime_dist.core.vector import Vector
from chime_dist.engine.bank_owner import BankOwner
from chime_dist.engine.lane import Lane
from chime_dist.engine.pinned_reads import PinnedReads
from chime_dist.errors import ServiceError
from chime_dist.ports import BankQuery, BankStore, Hit
from tests.contract.banks import drop, history, put
from tests.engine.owned_bank import DIM, RUN, OwnedBank
from tests.spec.parts import RUN as TOUR
from tests.spec.parts import Memory, touring

HEAD = 6


def _vectors(seed: int, count: int) -> list[Vector]:
    generator = np.random.default_rng(seed)
    return [Vector.of(generator.standard_normal(DIM)) for _ in range(count)]


def _commits() -> list[list[Event]]:
    """Sixty records in two collections, with ties, replaced vectors and dropped records."""
    twin, other = _vectors(1, 2)
    commits: list[list[Event]] = []
    for position in range(HEAD):
        fresh = _vectors(10 + position, 10)
        events = [
            put(f"{position}-{k}", {"c": twin if k % 4 == 0 else vector, "e": other}, ("plan", "exec")[k % 2])
            for k, vector in enumerate(fresh)
        ]
        if position:
            events += [drop(f"{position - 1}-2"), put(f"{position - 1}-4", {"c": fresh[0], "e": twin}, "plan")]
        commits.append(events)
    return commits


COMMITS = _commits()
QUERIES = [
    BankQuery(
        run_id=RUN,
        version=HEAD,
        collection=collection,
        vector=vector,
        vector_name=name,
        limit=limit,
        min_similarity=floor,
        withheld=withheld,
    )
    for collection, name in [("plan", "c"), ("exec", "c"), ("plan", "e"), ("nowhere", "c"), ("plan", "unheard of")]
    for vector in [_vectors(1, 1)[0], _vectors(99, 1)[0]]
    for limit, floor in [(1, -1.0), (3, 0.0), (20, 0.3), (20, 0.88), (100, -1.0)]
    for withheld in [(), ("0-0", "1-0", "5-8"), tuple(f"{p}-{k}" for p in range(HEAD) for k in range(10))]
]


class Owner:
    """A lane as ``ports.BankReader``, counting what it is asked."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.searches = 0
        self.exports: list[tuple[str, int]] = []

    async def search(self, query: BankQuery) -> list[Hit]:
        """See ``ports.BankReader``."""
        self.searches += 1
        return await self._lane.search(query)

    async def export(self, run_id: str, version: int) -> BankState:
        """See ``ports.BankReader``."""
        self.exports.append((run_id, version))
        return await self._lane.state(version)


def _store(kind: str, folder: Path) -> BankStore:
    stores: dict[str, Callable[[], BankStore]] = {
        "memory": MemoryStore,
        "edge": lambda: QdrantEdgeStore(folder),
        "resident": lambda: ResidentStore(QdrantEdgeStore(folder)),
    }
    return stores[kind]()


@pytest.fixture(params=["memory", "edge", "resident"])
async def owner(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Owner]:
    store = _store(str(request.param), tmp_path / "store")
    bank = OwnedBank(tmp_path, COMMITS, window=2)
    lane = await bank.lane(store)
    await bank.commit(lane, HEAD)
    yield Owner(lane)
    await store.close()


def _frozen(query: BankQuery) -> BankQuery:
    return query.model_copy(update={"frozen": True})


async def test_a_frozen_read_gets_the_owner_s_hits_bit_for_bit(owner: Owner) -> None:
    """Every collection, vector, limit, threshold and set of withheld ids; hits hold no vectors."""
    reads = PinnedReads(owner)
    for query in QUERIES:
        there, here = await owner.search(query), await reads.search(_frozen(query))
        assert [hit.sim.hex() for hit in here] == [hit.sim.hex() for hit in there]
        assert here == there
        assert all(not hit.record.vectors for hit in here)
    assert owner.exports == [(RUN, HEAD)]
    assert owner.searches == len(QUERIES)


# --- what is copied, when, and what is not --------------------------------------------------------------


@dataclass
class Shelf:
    """A reader of banks that are written down, slow enough that requests overlap."""

    banks: dict[tuple[str, int], BankState]
    failures: int = 0
    searched: list[str] = field(default_factory=list)
    exported: list[str] = field(default_factory=list)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def search(self, query: BankQuery) -> list[Hit]:
        """See ``ports.BankReader``."""
        self.searched.append(query.run_id)
        return []

    async def export(self, run_id: str, version: int) -> BankState:
        """See ``ports.BankReader``."""
        self.exported.append(run_id)
        await self.opened.wait()
        if self.failures:
            self.failures -= 1
            raise ServiceError("the owner is restarting")
        return self.banks[run_id, version]


def _shelf(*runs: str, items: int = 10, failures: int = 0) -> Shelf:
    """Banks at version 1 with ``items`` vectors of ``DIM`` components each."""
    vectors = _vectors(5, items)
    [_, state] = history([put(f"0-{k}", {"c": vector}) for k, vector in enumerate(vectors)])
    shelf = Shelf({(run, 1): state for run in runs}, failures)
    shelf.opened.set()
    return shelf


def _ask(run_id: str, *, frozen: bool = True) -> BankQuery:
    vector = _vectors(5, 1)[0]
    return BankQuery(run_id=run_id, version=1, collection="plan", vector=vector, limit=1, frozen=frozen)


async def test_a_thousand_readers_at_once_cost_one_export() -> None:
    shelf = _shelf("a")
    shelf.opened.clear()
    reads = PinnedReads(shelf)
    asking = [asyncio.create_task(reads.search(_ask("a"))) for _ in range(1000)]
    await asyncio.sleep(0)
    shelf.opened.set()
    answers = await asyncio.gather(*asking)
    assert {hit.record.id for hits in answers for hit in hits} == {"0-0"}
    assert (shelf.exported, shelf.searched) == (["a"], [])


async def test_reads_of_a_bank_that_goes_on_are_the_owner_s() -> None:
    """R7: train reads a new version at nearly every position."""
    shelf = _shelf("a")
    reads = PinnedReads(shelf)
    await reads.search(_ask("a", frozen=False))
    assert (shelf.exported, shelf.searched) == ([], ["a"])
    assert await reads.export("a", 1) == shelf.banks["a", 1]


async def test_a_failed_export_is_the_reader_s_error_and_the_next_read_tries_again() -> None:
    shelf = _shelf("a", failures=1)
    reads = PinnedReads(shelf)
    with pytest.raises(ServiceError, match="restarting"):
        await reads.search(_ask("a"))
    assert [hit.record.id for hit in await reads.search(_ask("a"))] == ["0-0"]


async def test_a_reader_that_gives_up_leaves_the_export_to_the_next() -> None:
    shelf = _shelf("a")
    shelf.opened.clear()
    reads = PinnedReads(shelf)
    first, second = (asyncio.create_task(reads.search(_ask("a"))) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    shelf.opened.set()
    assert len(await second) == 1
    assert first.cancelled()


async def test_runs_share_the_room_and_whoever_finds_none_asks_the_owner() -> None:
    """Copies in use are not driven out in turn: that would be an export per read."""
    shelf = _shelf("a", "b", "c")
    reads = PinnedReads(shelf, most_components=2 * 10 * DIM)
    for _ in range(5):
        for run in ("a", "b", "c"):
            await reads.search(_ask(run))
    assert shelf.exported == ["a", "b", "c"]
    assert shelf.searched == ["c"] * 5


async def test_a_copy_that_nobody_reads_any_more_makes_room() -> None:
    shelf = _shelf("a", "b", "c")
    reads = PinnedReads(shelf, most_components=2 * 10 * DIM, idle_reads=6)
    await reads.search(_ask("a"))
    for _ in range(4):
        await reads.search(_ask("b"))
        await reads.search(_ask("c"))
    assert shelf.exported == ["a", "b", "c", "c"]
    assert shelf.searched == ["c"] * 3
    for run in ("b", "c"):
        await reads.search(_ask(run))
    assert shelf.exported == ["a", "b", "c", "c"], "both have a copy now"


async def test_an_eval_episode_s_reads_are_frozen_and_a_train_episode_s_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R5, R7: only eval reads a version that many others read as well."""
    asked: list[BankQuery] = []
    search = BankOwner.search

    async def noted(owner: BankOwner, query: BankQuery) -> list[Hit]:
        asked.append(query)
        return await search(owner, query)

    monkeypatch.setattr(BankOwner, "search", noted)
    async with touring(tmp_path, [Memory(Stage.PLAN, 0.8)]) as tour:
        version = await tour.journal.head(TOUR)
        await tour.learn()
        train = [query.frozen for query in asked]
        await tour.evaluate(version)
    assert train
    assert not any(train)
    evaluated = [query.frozen for query in asked[len(train) :]]
    assert evaluated
    assert all(evaluated)
