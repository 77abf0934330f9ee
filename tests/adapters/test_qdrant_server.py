"""What the server adapter sends, seen through qdrant-client's in-process double (answers: the contract suite)."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from qdrant_client import AsyncQdrantClient, models

from chime_dist.adapters.qdrant.server import QdrantServerStore
from chime_dist.adapters.qdrant.server_calls import connected
from chime_dist.core.bank import BankState, Record
from chime_dist.core.vector import Vector
from chime_dist.errors import BankMismatchError, ServiceError
from chime_dist.ports import EmbedderFingerprint, Namespace

pytestmark = [
    pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant:UserWarning"),
    pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning"),
]

FINGERPRINT = EmbedderFingerprint(model="hashing", dim=2)
NAMESPACE = Namespace(launch="launch", run_id="run", fence=1)
EAST, NORTH = Vector.of([1, 0]), Vector.of([0, 1])


class _Recorder(AsyncQdrantClient):
    """The double, noting every write and answering with ``status``."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.waits: list[bool] = []
        self.batches: list[list[models.UpdateOperation]] = []
        self.searches: list[dict[str, Any]] = []
        self.status = models.UpdateStatus.COMPLETED

    async def upsert(self, *args: Any, **kwargs: Any) -> models.UpdateResult:
        self.waits.append(kwargs["wait"])
        await super().upsert(*args, **kwargs)
        return models.UpdateResult(operation_id=0, status=self.status)

    async def delete(self, *args: Any, **kwargs: Any) -> models.UpdateResult:
        self.waits.append(kwargs["wait"])
        await super().delete(*args, **kwargs)
        return models.UpdateResult(operation_id=0, status=self.status)

    async def create_payload_index(self, *args: Any, **kwargs: Any) -> models.UpdateResult:
        self.waits.append(kwargs["wait"])
        await super().create_payload_index(*args, **kwargs)
        return models.UpdateResult(operation_id=0, status=self.status)

    async def batch_update_points(self, *args: Any, **kwargs: Any) -> list[models.UpdateResult]:
        self.waits.append(kwargs["wait"])
        self.batches.append(list(args[1]))
        results = await super().batch_update_points(*args, **kwargs)
        return [models.UpdateResult(operation_id=0, status=self.status) for _ in results]

    async def query_points(self, *args: Any, **kwargs: Any) -> models.QueryResponse:
        self.searches.append(kwargs)
        return await super().query_points(*args, **kwargs)


@pytest.fixture
async def client() -> AsyncIterator[_Recorder]:
    client = _Recorder()
    yield client
    await client.close()


def _bank(version: int, **vectors: Vector) -> BankState:
    records = {
        f"0-{k}": Record(collection="plan", id=f"0-{k}", version=0, payload={}, vectors={"c": v})
        for k, v in enumerate(vectors.values())
    }
    return BankState(version, records)


async def _find(store: QdrantServerStore, version: int, namespace: Namespace = NAMESPACE) -> list[str]:
    return await store.candidates(namespace, version, "plan", "c", EAST, 5, 0.3)


async def test_every_write_waits(client: _Recorder) -> None:
    """E1: a write that does not wait may be dropped without an error."""
    store = QdrantServerStore(client)
    await store.open(NAMESPACE, FINGERPRINT)
    await store.project(NAMESPACE, 1, BankState(), _bank(1, a=EAST))
    await store.project(NAMESPACE, 2, _bank(1, a=EAST), _bank(2, a=NORTH))
    assert client.waits
    assert all(client.waits)


@pytest.mark.parametrize("status", [models.UpdateStatus.ACKNOWLEDGED, models.UpdateStatus.WAIT_TIMEOUT])
async def test_a_write_that_did_not_complete_is_an_error_and_may_be_repeated(
    client: _Recorder, status: models.UpdateStatus
) -> None:
    """E1: the status is checked; the version counts as projected only when everything completed."""
    store = QdrantServerStore(client)
    await store.open(NAMESPACE, FINGERPRINT)
    client.status = status
    with pytest.raises(ServiceError, match=f"answered {status} to a write that waits"):
        await store.project(NAMESPACE, 1, BankState(), _bank(1, a=EAST))
    client.status = models.UpdateStatus.COMPLETED
    await store.project(NAMESPACE, 1, BankState(), _bank(1, a=EAST))
    assert await _find(store, 1) == ["0-0"]


async def test_an_ordinary_commit_is_one_request_with_the_cursor_last(client: _Recorder) -> None:
    """Whoever sees the cursor at a version sees that version's points."""
    store = QdrantServerStore(client)
    await store.open(NAMESPACE, FINGERPRINT)
    one, two, three = _bank(1, a=EAST), _bank(2, a=NORTH), _bank(3, a=NORTH)
    for before, after in [(BankState(), one), (one, two), (two, three)]:
        await store.project(NAMESPACE, after.version, before, after)
    insert, replace, values = client.batches
    assert [type(o).__name__ for o in insert] == ["UpsertOperation", "SetPayloadOperation"]
    assert [type(o).__name__ for o in replace] == ["UpsertOperation", *["SetPayloadOperation"] * 2]
    [cursor] = values
    assert isinstance(cursor, models.SetPayloadOperation)
    assert cursor.set_payload.payload == {"spans": ((0, 3),), "gone": ()}


async def test_stored_vectors_are_never_written_again(client: _Recorder) -> None:
    """E2: re-upserting a cosine vector may change its last bits; points are inserted only."""
    store = QdrantServerStore(client)
    await store.open(NAMESPACE, FINGERPRINT)
    await store.project(NAMESPACE, 1, BankState(), _bank(1, a=EAST))
    await store.project(NAMESPACE, 1, BankState(), _bank(1, a=EAST))
    [[upsert, _]] = client.batches
    assert isinstance(upsert, models.UpsertOperation)
    assert isinstance(upsert.upsert, models.PointsList)
    assert upsert.upsert.update_mode == models.UpdateMode.INSERT_ONLY


async def test_a_large_bank_travels_in_several_requests(client: _Recorder) -> None:
    """A server refuses bodies above its limit; readers see the version only after the last one."""
    store = QdrantServerStore(client)
    await store.open(NAMESPACE, FINGERPRINT)
    bank = _bank(1, **{f"v{k}": EAST for k in range(300)})
    await store.project(NAMESPACE, 1, BankState(), bank)
    assert len(client.batches) == 3
    assert set(await _find(store, 1)) == set(bank.records)


async def test_searches_are_exact_and_ask_for_ids_only(client: _Recorder) -> None:
    store = QdrantServerStore(client)
    await store.open(NAMESPACE, FINGERPRINT)
    await store.project(NAMESPACE, 1, BankState(), _bank(1, a=EAST))
    await _find(store, 1)
    [search] = client.searches
    assert search["search_params"] == models.SearchParams(exact=True)
    assert search["with_payload"] == ["item"]
    assert search["score_threshold"] == pytest.approx(0.2999)
    assert {condition.key for condition in search["query_filter"].must} == {
        *("launch", "run", "fence"),
        *("collection", "vector", "valid_from", "valid_to"),
    }


async def test_a_worker_reads_what_another_process_projects(client: _Recorder) -> None:
    """Server reads go direct from workers, which open nothing and follow the owner's cursor."""
    owner, worker = QdrantServerStore(client), QdrantServerStore(client)
    await owner.open(NAMESPACE, FINGERPRINT)
    assert await _find(worker, 0) == []
    with pytest.raises(ServiceError, match=r"version 1 is not projected \(it holds 0\)"):
        await _find(worker, 1)
    await owner.project(NAMESPACE, 1, BankState(), _bank(1, a=EAST))
    assert await _find(worker, 1) == ["0-0"]
    with pytest.raises(ServiceError, match="only its owner writes to it"):
        await worker.project(NAMESPACE, 2, _bank(1, a=EAST), _bank(2, a=EAST))


async def test_an_old_owner_s_projection_stays_readable(client: _Recorder) -> None:
    """Episodes that were started under the old fence still read from it."""
    old, new = QdrantServerStore(client), QdrantServerStore(client)
    await old.open(NAMESPACE, FINGERPRINT)
    await old.project(NAMESPACE, 1, BankState(), _bank(1, a=EAST))
    await new.open(NAMESPACE.model_copy(update={"fence": 2}), FINGERPRINT)
    assert await _find(QdrantServerStore(client), 1) == ["0-0"]


async def test_a_mismatch_is_found_in_another_store_s_collection(client: _Recorder) -> None:
    """E4: each embedder has its own collection, so the run is looked for in all of them."""
    await QdrantServerStore(client).open(NAMESPACE, FINGERPRINT)
    other = EmbedderFingerprint(model="other", dim=2)
    with pytest.raises(BankMismatchError, match=r"model='hashing'.*model='other'"):
        await QdrantServerStore(client).open(NAMESPACE.model_copy(update={"fence": 2}), other)


async def test_a_collection_changed_by_hand_is_refused(client: _Recorder) -> None:
    """E4: collection size 4, config size 8: both are named and nothing is deleted."""
    store = QdrantServerStore(client)
    await store.open(NAMESPACE, FINGERPRINT)
    [collection] = (await client.get_collections()).collections
    await client.delete_collection(collection.name)
    changed = models.VectorParams(size=4, distance=models.Distance.COSINE)
    await client.create_collection(collection.name, vectors_config=changed)
    with pytest.raises(BankMismatchError, match=r"size=4.*dim=2"):
        await store.open(NAMESPACE, FINGERPRINT)
    assert await client.collection_exists(collection.name)


async def test_an_unreachable_server_is_a_service_error() -> None:
    """The message names the bank and what to check."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        store = QdrantServerStore(connected(url, timeout_s=2, patience_s=0.2))
        with pytest.raises(
            ServiceError, match=r"bank of run \(fence \d+\).*cannot be reached \(ConnectError.*its URL"
        ):
            await store.open(NAMESPACE, FINGERPRINT)
        await store.close()
