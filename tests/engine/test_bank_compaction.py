"""The owner compacts its projection: what may be read stays, and memory and store stay bounded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import structlog

from chime_dist.adapters.local.memory_store import MemoryStore
from chime_dist.adapters.qdrant.edge import QdrantEdgeStore
from chime_dist.core.vector import Vector
from chime_dist.core.window import StreamShape
from chime_dist.engine.lane import COMPACT_EVERY, Lane
from chime_dist.errors import ServiceError
from chime_dist.ports import BankQuery, Namespace
from tests.contract.banks import drop, history, put
from tests.engine.owned_bank import DIM, LAUNCH, RUN, OwnedBank

EAST = Vector.of([1.0] + [0.0] * (DIM - 1))
WINDOW = 4
PINNED = frozenset({7, 70, 150})
COMMITS = [
    [put("0-0", {"c": EAST}), put("0-1", {"c": EAST})],
    *([drop(f"{n}-0"), put(f"{n + 1}-0", {"c": EAST})] for n in range(2 * COMPACT_EVERY + 40)),
]
"""Version v holds ``(v-1)-0`` and ``0-1``: each commit makes one point unreadable to later versions."""
STATES = history(*COMMITS)


def _query(version: int) -> BankQuery:
    return BankQuery(run_id=RUN, version=version, collection="plan", vector=EAST, limit=5)


def _namespace(fence: int = 1) -> Namespace:
    return Namespace(launch=LAUNCH, run_id=RUN, fence=fence)


async def _ids(lane: Lane, version: int) -> list[str]:
    return [hit.record.id for hit in await lane.search(_query(version))]


async def _in_store(store: MemoryStore, versions: range, fence: int = 1) -> list[int]:
    """Those that the store still answers for."""
    found = []
    for version in versions:
        try:
            await store.candidates(_namespace(fence), version, "plan", "c", EAST, 5, -1.0)
        except ServiceError:
            continue
        found.append(version)
    return found


async def test_the_store_keeps_the_window_the_checkpoints_and_the_head(tmp_path: Path) -> None:
    """R7: at head h the next position reads h - W + 1; no version between checkpoints and window can be read."""
    bank, store = OwnedBank(tmp_path, COMMITS, WINDOW, PINNED), MemoryStore()
    lane = await bank.lane(store)
    await bank.commit(lane, 2 * COMPACT_EVERY)
    head = 2 * COMPACT_EVERY
    assert await _in_store(store, range(head + 2)) == [0, 7, 70, *range(head - WINDOW + 1, head + 1)]
    assert store.points(_namespace()) == 1 + 2 + WINDOW, "one that stays, one per checkpoint and per kept version"


async def test_no_position_s_read_version_is_ever_refused(tmp_path: Path) -> None:
    """R7, with epochs: whatever is admitted at any head reads in the store what it must."""
    shape = StreamShape(epoch_size=50, epochs=3, window=WINDOW)
    bank, store = OwnedBank(tmp_path, COMMITS, WINDOW, frozenset({50, 100, 150})), MemoryStore()
    lane = await bank.lane(store)
    for head in range(shape.total):
        await bank.commit(lane, head)
        for position in range(head, min(head + WINDOW, shape.total)):
            version = shape.read_version(position)
            if version <= head:
                await store.candidates(_namespace(), version, "plan", "c", EAST, 5, -1.0)


async def test_any_version_is_answered_alike_before_and_after_compactions(tmp_path: Path) -> None:
    """Versions that were let go are replayed from the journal: slower, never wrong."""
    bank, store = OwnedBank(tmp_path, COMMITS, WINDOW, PINNED), QdrantEdgeStore(tmp_path / "edge")
    lane = await bank.lane(store)
    await bank.commit(lane, COMPACT_EVERY + 3)
    head = lane.head.version
    for version in (0, 1, 5, 7, 8, head - WINDOW, head - WINDOW + 1, head):
        assert set(await _ids(lane, version)) == set(STATES[version].records)
    await store.close()


async def test_states_in_memory_are_bounded_too(tmp_path: Path) -> None:
    bank = OwnedBank(tmp_path, COMMITS, WINDOW, PINNED)
    lane = await bank.lane(MemoryStore())
    with structlog.testing.capture_logs() as logs:
        await bank.commit(lane, 2 * COMPACT_EVERY)
    told = [line for line in logs if line["event"] == "bank.compacted"]
    assert [line["version"] for line in told] == [COMPACT_EVERY, 2 * COMPACT_EVERY]
    assert [line["states"] for line in told] == [WINDOW + 1, WINDOW + 2], "the window and the checkpoints passed"


async def test_the_next_owner_projects_the_checkpoints_again(tmp_path: Path) -> None:
    """A resume finds pinned versions in its projection, as it finds the window."""
    bank = OwnedBank(tmp_path, COMMITS, WINDOW, PINNED)
    await bank.commit(await bank.lane(MemoryStore()), 100)
    store = MemoryStore()
    lane = await bank.lane(store)
    assert await _in_store(store, range(101), fence=2) == [0, 7, 70, 97, 98, 99, 100]
    await bank.commit(lane, 100 + COMPACT_EVERY)
    assert await _in_store(store, range(165), fence=2) == [0, 7, 70, 150, 161, 162, 163, 164]


async def test_a_version_that_is_being_searched_is_not_let_go(tmp_path: Path) -> None:
    """A read that is under way when its version leaves the window still gets its answer; then it holds no more."""
    bank, store = OwnedBank(tmp_path, COMMITS, WINDOW), _CommitsMeanwhile()
    lane = await bank.lane(store)
    await bank.commit(lane, COMPACT_EVERY - 1)
    old = lane.head.version
    store.meanwhile = lambda: bank.commit(lane, COMPACT_EVERY + WINDOW)
    assert set(await _ids(lane, old)) == set(STATES[old].records)
    assert store.kept[-1][0] == COMPACT_EVERY - WINDOW + 1
    await bank.commit(lane, 2 * COMPACT_EVERY)
    assert store.kept[-1] == list(range(2 * COMPACT_EVERY - WINDOW + 1, 2 * COMPACT_EVERY + 1))


async def test_a_store_that_cannot_compact_now_is_asked_again_later(tmp_path: Path) -> None:
    """Housekeeping ends no launch."""
    bank, store = OwnedBank(tmp_path, COMMITS, WINDOW), _Unwilling()
    lane = await bank.lane(store)
    with structlog.testing.capture_logs() as logs:
        await bank.commit(lane, 2 * COMPACT_EVERY)
    events = [line["event"] for line in logs if line["event"].startswith("bank.compact")]
    assert events == ["bank.compaction_failed", "bank.compacted"]
    assert len(await _in_store(store, range(2 * COMPACT_EVERY + 1))) == 1 + WINDOW


async def test_a_stale_owner_commits_nothing_and_disturbs_nobody(tmp_path: Path) -> None:
    """C1: Ray does not fence; the old copy goes on in its own namespace of the same store."""
    bank, store = OwnedBank(tmp_path, COMMITS, WINDOW), MemoryStore()
    stale = await bank.lane(store)
    await bank.commit(stale, 10)
    heir = await bank.lane(store)
    await bank.commit(heir, 20)
    await store.project(_namespace(1), 11, STATES[10], STATES[11])
    await store.compact(_namespace(1), [])
    assert [set(await _ids(heir, v)) for v in range(17, 21)] == [set(STATES[v].records) for v in range(17, 21)]
    assert await _in_store(store, range(25), fence=2) == [0, *range(7, 21)]


class _CommitsMeanwhile(MemoryStore):
    """Does something while it searches for the first time after it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self.kept: list[Sequence[int]] = []

    async def compact(self, namespace: Namespace, keep: Sequence[int]) -> None:
        self.kept.append(keep)
        await super().compact(namespace, keep)

    async def candidates(
        self,
        namespace: Namespace,
        version: int,
        collection: str,
        vector_name: str,
        vector: Vector,
        limit: int,
        min_similarity: float,
    ) -> list[str]:
        if (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            await meanwhile()
        return await super().candidates(namespace, version, collection, vector_name, vector, limit, min_similarity)


class _Unwilling(MemoryStore):
    """Refuses the first compaction."""

    refused = False

    async def compact(self, namespace: Namespace, keep: Sequence[int]) -> None:
        if not self.refused:
            self.refused = True
            raise ServiceError("the disk is full")
        await super().compact(namespace, keep)
