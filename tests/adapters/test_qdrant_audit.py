"""Projections read back and compared with their journal: the real embedded engine, and the server adapter."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
import qdrant_edge
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException

from chime_dist.adapters.qdrant.audit import StoredPoint, audited
from chime_dist.adapters.qdrant.edge import QdrantEdgeStore
from chime_dist.adapters.qdrant.edge_audit import QdrantEdgeAudit
from chime_dist.adapters.qdrant.edge_directory import copy_with_holes
from chime_dist.adapters.qdrant.points import cursor_id, cursor_payload, point_id, point_payload
from chime_dist.adapters.qdrant.server import QdrantServerStore
from chime_dist.adapters.qdrant.server_audit import QdrantServerAudit
from chime_dist.adapters.qdrant.server_calls import connected
from chime_dist.core.bank import BankState, Event, apply
from chime_dist.core.projection import PointKey, Versions
from chime_dist.core.projection_audit import ProjectionAudit
from chime_dist.core.vector import Vector
from chime_dist.errors import MissingExtraError, ServiceError
from chime_dist.ports import BankStore, EmbedderFingerprint, Namespace
from tests.contract.banks import Commit, drop, put

pytestmark = [
    pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant:UserWarning"),
    pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning"),
]

DIM = 3
FINGERPRINT = EmbedderFingerprint(model="hashing", dim=DIM)
NAMESPACE = Namespace(launch="launch", run_id="run", fence=4)
A, B, C = Vector.of([3, 0, 4]), Vector.of([0, 1e-9, 0]), Vector.of([1, 2, 2])
COMMITS: list[list[Event]] = [
    [put("0-0", {"c": A, "e": B}), put("0-1", {"c": C}, "exec")],
    [put("0-0", None, value=0.5)],
    [put("0-0", {"c": B, "e": B})],
    [drop("0-1", "exec"), put("3-0", {"c": A})],
]
JOURNAL = [Commit(position, tuple(events)) for position, events in enumerate(COMMITS)]


class Tampering(Protocol):
    """A hand on stored points."""

    async def vector(self, point: str, vector: list[float]) -> None:
        """Replace a point's vector."""
        ...

    async def payload(self, point: str, payload: dict[str, Any]) -> None:
        """Set some of a point's payload."""
        ...

    async def remove(self, point: str) -> None:
        """Remove a point."""
        ...

    async def insert(self, point: str, payload: dict[str, Any]) -> None:
        """Add a point."""
        ...

    async def audit(self, journal: list[Commit] | None = None) -> ProjectionAudit:
        """Compare."""
        ...


class _Edge:
    """A shard as a killed owner leaves it: copied while its owner lives."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.shard = next(path for path in state_dir.glob("*/fence-*") if path.is_dir())

    def _update(self, operation: qdrant_edge.UpdateOperation) -> None:
        engine = qdrant_edge.EdgeShard.load(str(self.shard))
        engine.update(operation)
        engine.close()

    async def vector(self, point: str, vector: list[float]) -> None:
        self._update(qdrant_edge.UpdateOperation.update_vectors([qdrant_edge.PointVectors(point, vector)]))

    async def payload(self, point: str, payload: dict[str, Any]) -> None:
        self._update(qdrant_edge.UpdateOperation.set_payload([point], payload))

    async def remove(self, point: str) -> None:
        self._update(qdrant_edge.UpdateOperation.delete_points([point]))

    async def insert(self, point: str, payload: dict[str, Any]) -> None:
        points = [qdrant_edge.Point(point, [1.0, 0.0, 0.0], payload)]
        self._update(qdrant_edge.UpdateOperation.upsert_points(points))

    async def audit(self, journal: list[Commit] | None = None) -> ProjectionAudit:
        auditor = QdrantEdgeAudit(self.state_dir)
        namespace = await auditor.newest("launch", "run")
        assert namespace == NAMESPACE
        return await auditor.audit(namespace, DIM, JOURNAL if journal is None else journal)


class _Server:
    """The server adapter's double."""

    def __init__(self, client: AsyncQdrantClient, collection: str) -> None:
        self.client = client
        self.collection = collection

    async def vector(self, point: str, vector: list[float]) -> None:
        await self.client.update_vectors(self.collection, [models.PointVectors(id=point, vector=vector)])

    async def payload(self, point: str, payload: dict[str, Any]) -> None:
        await self.client.set_payload(self.collection, payload, points=[point])

    async def remove(self, point: str) -> None:
        await self.client.delete(self.collection, points_selector=[point])

    async def insert(self, point: str, payload: dict[str, Any]) -> None:
        points = [models.PointStruct(id=point, vector=[1.0, 0.0, 0.0], payload=payload)]
        await self.client.upsert(self.collection, points)

    async def audit(self, journal: list[Commit] | None = None) -> ProjectionAudit:
        auditor = QdrantServerAudit(self.client)
        namespace = await auditor.newest("launch", "run")
        assert namespace == NAMESPACE
        return await auditor.audit(namespace, DIM, JOURNAL if journal is None else journal)


async def _project(
    store: BankStore, upto: int = len(JOURNAL), first: int = 1, keep: Sequence[int] | None = None
) -> None:
    """Bring a projection to ``upto``; its first step goes to ``first``; then compact it to ``keep``."""
    await store.open(NAMESPACE, FINGERPRINT)
    state = projected = BankState()
    for commit in JOURNAL[:upto]:
        state = apply(state, commit)
        if state.version >= first:
            await store.project(NAMESPACE, state.version, projected, state)
            projected = state
    if keep is not None:
        await store.compact(NAMESPACE, keep)


@asynccontextmanager
async def _left(
    kind: str, folder: Path, upto: int = len(JOURNAL), first: int = 1, keep: Sequence[int] | None = None
) -> AsyncIterator[Tampering]:
    if kind == "edge":
        living = QdrantEdgeStore(folder / "living")
        await _project(living, upto, first, keep)
        shutil.copytree(folder / "living", folder / "left", copy_function=copy_with_holes)
        await living.close()
        yield _Edge(folder / "left")
        return
    client = AsyncQdrantClient(":memory:")
    await _project(QdrantServerStore(client), upto, first, keep)
    [collection] = (await client.get_collections()).collections
    yield _Server(client, collection.name)
    await client.close()


@pytest.fixture(params=["edge", "server_double"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def left(kind: str, tmp_path: Path) -> AsyncIterator[Tampering]:
    async with _left(kind, tmp_path) as left:
        yield left


@pytest.fixture
async def on_server(tmp_path: Path) -> AsyncIterator[_Server]:
    """What is compared is the same for both engines, and this one starts at once."""
    async with _left("server_double", tmp_path) as left:
        assert isinstance(left, _Server)
        yield left


def _point(item: str, version: int, collection: str = "plan", vector: str = "c") -> str:
    return point_id(NAMESPACE, PointKey(collection, item, vector, version))


async def test_a_projection_that_nobody_touched_agrees(left: Tampering) -> None:
    """Vectors of any length, replaced, dropped and kept ones."""
    assert await left.audit() == ProjectionAudit(fence=4, head=4, points=5, faults=())


@pytest.mark.parametrize(("upto", "first"), [(0, 1), (2, 1), (4, 3), (4, 4), (2, 3)])
async def test_one_that_is_behind_or_was_resumed_agrees_as_well(tmp_path: Path, upto: int, first: int) -> None:
    """A killed owner may have written less than the journal holds; a resumed one starts late (R7)."""
    async with _left("server_double", tmp_path, upto, first) as left:
        audit = await left.audit()
        assert (audit.faults, audit.head) == ((), upto if upto >= first else 0)


async def test_an_altered_vector_is_found(left: Tampering) -> None:
    await left.vector(_point("0-0", 3), [0.01, 1.0, 0.0])
    [fault] = (await left.audit()).faults
    assert (fault.kind, fault.collection, fault.item, fault.vector, fault.version) == (
        "altered",
        "plan",
        "0-0",
        "c",
        3,
    )
    assert "its vector is off by up to 0.0" in fault.what


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        ({"valid_to": 3}, "valid_to is 3, not open"),
        ({"valid_from": 2}, "valid_from is 2, not 4"),
        ({"valid_from": 4.0}, "valid_from is 4.0, not 4"),
        ({"item": "0-0"}, "item is '0-0', not '3-0'"),
        ({"fence": 3}, "fence is 3, not 4"),
        ({"run": "other"}, "run is 'other', not 'run'"),
        ({"note": "hello"}, "note is 'hello', not absent"),
    ],
)
async def test_any_altered_payload_is_found(on_server: _Server, payload: dict[str, Any], what: str) -> None:
    """Also where the point no longer says that it is this owner's."""
    await on_server.payload(_point("3-0", 4), payload)
    [fault] = (await on_server.audit()).faults
    assert (fault.kind, fault.item, fault.version, fault.what) == ("altered", "3-0", 4, what)


async def test_an_altered_payload_is_found(left: Tampering) -> None:
    await left.payload(_point("0-0", 1), {"valid_to": 4})
    [fault] = (await left.audit()).faults
    assert (fault.item, fault.version, fault.what) == ("0-0", 1, "valid_to is 4, not 3")


def test_a_vector_of_another_size_is_altered() -> None:
    """Also one that is not there at all."""
    owner = cursor_payload(NAMESPACE, FINGERPRINT, Versions(((0, 1),)))
    stored = {cursor_id(NAMESPACE): StoredPoint(owner, np.zeros(0, dtype=np.float32))}
    for name in ("c", "e"):
        key = PointKey("plan", "0-0", name, 1)
        size = DIM if name == "c" else 0
        vector = np.array([0.6, 0.0, np.nan], dtype=np.float32)[:size]
        stored[point_id(NAMESPACE, key)] = StoredPoint(point_payload(NAMESPACE, key), vector)
    journal = [Commit(0, (COMMITS[0][0],))]
    faults = audited(NAMESPACE, DIM, stored, journal).faults
    assert [(fault.kind, fault.vector, fault.what) for fault in faults] == [
        ("altered", "c", "its vector is off by up to nan in a component"),
        ("altered", "e", "its vector has 0 components, not 3"),
    ]


async def test_a_missing_point_is_found(left: Tampering) -> None:
    """Also the last one that was written: the cursor says that it was."""
    await left.remove(_point("3-0", 4))
    [fault] = (await left.audit()).faults
    assert (fault.kind, fault.item, fault.version) == ("missing", "3-0", 4)


async def test_an_extra_point_is_found(left: Tampering) -> None:
    owner = {"launch": "launch", "run": "run", "fence": 4}
    told = {**owner, "collection": "plan", "item": "9-0", "vector": "c", "valid_from": 2, "valid_to": 2**53 - 1}
    await left.insert(_point("9-0", 2), told)
    await left.insert(_point("9-1", 2), owner)
    faults = sorted((await left.audit()).faults, key=lambda fault: fault.item or "")
    assert [(fault.kind, fault.item, fault.version) for fault in faults] == [
        ("extra", None, None),
        ("extra", "9-0", 2),
    ]
    assert "which is no point of a bank" in faults[0].what


@pytest.mark.parametrize("upto", [2, 3])
async def test_of_the_commit_that_was_being_written_any_part_may_be_there(tmp_path: Path, upto: int) -> None:
    """The owner was killed before it moved the cursor; the same parts beyond the journal are extra."""
    async with _left("server_double", tmp_path, upto) as left:
        owner = {"launch": "launch", "run": "run", "fence": 4}
        if upto == 3:
            opened = {"collection": "plan", "item": "3-0", "vector": "c", "valid_from": 4, "valid_to": 2**53 - 1}
            await left.insert(_point("3-0", 4), {**owner, **opened})
            await left.vector(_point("3-0", 4), [0.6, 0.0, 0.8])
        else:
            await left.payload(_point("0-0", 1), {"valid_to": 3})
        assert (await left.audit()).faults == ()
        [fault] = (await left.audit(JOURNAL[:upto])).faults
        assert fault.kind == ("extra" if upto == 3 else "altered")


async def test_a_projection_ahead_of_its_journal_is_found(left: Tampering) -> None:
    [fault] = (await left.audit(JOURNAL[:3])).faults
    assert "it is at version 4, but the journal ends at 3" in fault.what


async def test_without_its_cursor_nothing_is_judged(on_server: _Server) -> None:
    await on_server.remove(cursor_id(NAMESPACE))
    auditor = QdrantServerAudit(on_server.client)
    assert await auditor.newest("launch", "run") is None
    [fault] = (await auditor.audit(NAMESPACE, DIM, JOURNAL)).faults
    assert (fault.kind, "no other point can be judged" in fault.what) == ("missing", True)


@pytest.mark.parametrize(
    "payload",
    [
        {"spans": [[1, 4]]},
        {"spans": []},
        {"spans": [[0, 3], [2, 4]]},
        {"spans": "all"},
        {"gone": [[3, 2]]},
        {"gone": [[0, 1]]},
        {"gone": [[2, 4]]},
        {"gone": None},
        {"embedder": {"model": "m"}},
        {"kind": "cursor", "more": 1},
    ],
)
async def test_an_altered_cursor_is_found(on_server: _Server, payload: dict[str, Any]) -> None:
    await on_server.payload(cursor_id(NAMESPACE), payload)
    [fault] = (await QdrantServerAudit(on_server.client).audit(NAMESPACE, DIM, JOURNAL)).faults
    assert (fault.kind, "cursor" in fault.what) == ("altered", True)


# --- after a compaction ---------------------------------------------------------------------------------


async def test_points_that_a_compaction_removed_are_not_missing(kind: str, tmp_path: Path) -> None:
    """Version 3 drops nothing that only it sees; what stood up to 3 is unreadable when 4 alone is kept."""
    async with _left(kind, tmp_path, keep=[]) as left:
        assert await left.audit() == ProjectionAudit(fence=4, head=4, points=3, faults=())


async def test_a_checkpoint_s_points_stay(kind: str, tmp_path: Path) -> None:
    async with _left(kind, tmp_path, keep=[1]) as left:
        assert await left.audit() == ProjectionAudit(fence=4, head=4, points=5, faults=())


async def test_one_altered_point_is_found_among_compacted_ones(kind: str, tmp_path: Path) -> None:
    async with _left(kind, tmp_path, keep=[]) as left:
        await left.vector(_point("0-0", 3), [0.01, 1.0, 0.0])
        [fault] = (await left.audit()).faults
        assert (fault.kind, fault.item, fault.version) == ("altered", "0-0", 3)


async def test_a_missing_point_that_can_be_read_is_found_after_a_compaction(kind: str, tmp_path: Path) -> None:
    async with _left(kind, tmp_path, keep=[2]) as left:
        await left.remove(_point("0-0", 1))
        [fault] = (await left.audit()).faults
        assert (fault.kind, fault.item, fault.version) == ("missing", "0-0", 1)


class _DiesInBatch(AsyncQdrantClient):
    """The double; while ``left`` is a number it dies after that many operations of a batch."""

    left: int | None = None

    async def batch_update_points(self, *args: Any, **kwargs: Any) -> list[models.UpdateResult]:
        done = await super().batch_update_points(args[0], list(args[1])[: self.left], **kwargs)
        if self.left is not None:
            raise ResponseHandlingException(ConnectionError("killed"))
        return done


@pytest.mark.parametrize("operations", [0, 1, 2])
async def test_a_compaction_that_was_cut_short_is_no_fault_and_the_next_one_ends_it(operations: int) -> None:
    """The cursor moves first: at no moment does a readable version lack a point."""
    client = _DiesInBatch(":memory:")
    store = QdrantServerStore(client)
    await _project(store)
    client.left = operations
    with pytest.raises(ServiceError, match="killed"):
        await store.compact(NAMESPACE, [])
    auditor = QdrantServerAudit(client)
    assert (await auditor.audit(NAMESPACE, DIM, JOURNAL)).faults == ()
    reader = QdrantServerStore(client)
    assert await reader.candidates(NAMESPACE, 4, "plan", "c", B, 5, 0.9) == ["0-0"]
    client.left = None
    await store.compact(NAMESPACE, [])
    assert await auditor.audit(NAMESPACE, DIM, JOURNAL) == ProjectionAudit(fence=4, head=4, points=3, faults=())
    await client.close()


# --- the embedded engine --------------------------------------------------------------------------------


async def test_an_open_shard_is_audited_by_its_owner_and_by_nobody_else(tmp_path: Path) -> None:
    """E7: one process opens a bank; whoever else looks is told who holds it, and changes nothing."""
    store = QdrantEdgeStore(tmp_path)
    await _project(store)
    assert (await store.audit(NAMESPACE, DIM, JOURNAL)).faults == ()
    auditor = QdrantEdgeAudit(tmp_path)
    assert await auditor.newest("launch", "run") == NAMESPACE
    with pytest.raises(ServiceError, match=r"fence-4 is held by process \d+ on "):
        await auditor.audit(NAMESPACE, DIM, JOURNAL)
    assert (await store.audit(NAMESPACE, DIM, JOURNAL)).points == 5
    await store.close()
    assert await auditor.newest("launch", "run") is None
    with pytest.raises(ServiceError, match="cannot be copied"):
        await auditor.audit(NAMESPACE, DIM, JOURNAL)
    with pytest.raises(ServiceError, match="not open"):
        await store.audit(NAMESPACE, DIM, JOURNAL)


async def test_auditing_changes_no_file(tmp_path: Path) -> None:
    """A loaded engine writes; so it loads a copy."""
    async with _left("edge", tmp_path) as left:
        await left.remove(_point("3-0", 4))
        files = [path for path in (tmp_path / "left").rglob("*") if path.is_file()]
        before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in files}
        await left.audit()
        after = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in files}
        assert after == before
        assert {path for path in (tmp_path / "left").rglob("*") if path.is_file()} == set(files)


async def test_a_shard_that_the_engine_cannot_load_is_a_fault(tmp_path: Path) -> None:
    async with _left("edge", tmp_path) as left:
        assert isinstance(left, _Edge)
        next(left.shard.rglob("segment.json")).write_bytes(b"\0" * 50)
        [fault] = (await left.audit()).faults
        assert "the engine cannot load the shard" in fault.what


async def test_the_newest_owner_s_shard_is_looked_at(tmp_path: Path) -> None:
    async with _left("edge", tmp_path) as left:
        assert isinstance(left, _Edge)
        for name in ("fence-2", "fence-30.lock", "fence-x"):
            (left.shard.parent / name).mkdir()
        assert await QdrantEdgeAudit(left.state_dir).newest("launch", "run") == NAMESPACE
        assert await QdrantEdgeAudit(left.state_dir).newest("launch", "other") is None


def test_a_missing_engine_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("chime_dist.adapters.qdrant.edge_audit.qdrant_edge", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'chime-dist\[edge\]'"):
        QdrantEdgeAudit(tmp_path)


async def test_many_points_are_read_in_pages(tmp_path: Path) -> None:
    events = tuple(put(f"0-{k}", {"c": Vector.of([1, k, 0])}) for k in range(1100))
    journal = [Commit(0, events)]
    store = QdrantEdgeStore(tmp_path)
    await store.open(NAMESPACE, FINGERPRINT)
    await store.project(NAMESPACE, 1, BankState(), apply(BankState(), journal[0]))
    assert await store.audit(NAMESPACE, DIM, journal) == ProjectionAudit(fence=4, head=1, points=1100, faults=())
    await store.close()


# --- the server -----------------------------------------------------------------------------------------


async def test_the_newest_owner_on_a_server_is_looked_at_and_the_others_stay() -> None:
    client = AsyncQdrantClient(":memory:")
    for fence in (5, 3, 4):
        store = QdrantServerStore(client)
        await store.open(NAMESPACE.model_copy(update={"fence": fence}), FINGERPRINT)
    auditor = QdrantServerAudit(client)
    assert await auditor.newest("launch", "run") == NAMESPACE.model_copy(update={"fence": 5})
    assert await auditor.embedder("launch", "run") == FINGERPRINT
    assert (await auditor.newest("launch", "other"), await auditor.embedder("launch", "other")) == (None, None)
    await auditor.close()


async def test_forgetting_removes_one_owner_s_points_and_nothing_else() -> None:
    client = AsyncQdrantClient(":memory:")
    await _project(QdrantServerStore(client))
    other = NAMESPACE.model_copy(update={"fence": 5})
    await QdrantServerStore(client).open(other, FINGERPRINT)
    auditor = QdrantServerAudit(client)
    await auditor.forget(other)
    assert await auditor.newest("launch", "run") == NAMESPACE
    assert (await auditor.audit(NAMESPACE, DIM, JOURNAL)).points == 5
    await auditor.forget(NAMESPACE)
    [collection] = (await client.get_collections()).collections
    assert (await client.count(collection.name)).count == 0
    await auditor.close()


async def test_a_server_out_of_reach_is_a_service_error() -> None:
    auditor = QdrantServerAudit(connected("http://127.0.0.1:9", timeout_s=2, patience_s=0.2))
    with pytest.raises(ServiceError, match="run run of launch: the Qdrant server cannot be reached"):
        await asyncio.wait_for(auditor.newest("launch", "run"), 30)
    await auditor.close()
