"""The embedded engine: its directories, its lock, its crashes. What it answers is the contract suite's part."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from chime_dist.adapters.qdrant.edge import QdrantEdgeStore
from chime_dist.adapters.qdrant.edge_directory import ShardDirectory
from chime_dist.core.bank import BankState, Record
from chime_dist.core.vector import Vector
from chime_dist.errors import BankMismatchError, ServiceError
from chime_dist.ports import EmbedderFingerprint, Namespace

FINGERPRINT = EmbedderFingerprint(model="hashing", dim=2)
EAST = Vector.of([1, 0])

_OWNER = """
import asyncio, pathlib, sys
from chime_dist.adapters.qdrant.edge import QdrantEdgeStore
from chime_dist.core.bank import BankState, Record
from chime_dist.core.vector import Vector
from chime_dist.ports import EmbedderFingerprint, Namespace

async def own() -> None:
    store = QdrantEdgeStore(pathlib.Path(sys.argv[1]))
    namespace = Namespace(launch="launch", run_id="run", fence=int(sys.argv[2]))
    await store.open(namespace, EmbedderFingerprint(model="hashing", dim=2))
    vectors = {"c": Vector.of([1, 0])}
    records = [Record(collection="plan", id=f"0-{k}", version=0, payload={}, vectors=vectors) for k in range(50)]
    await store.project(namespace, 1, BankState(), BankState(1, {record.id: record for record in records}))
    print("ready", flush=True)
    sys.stdin.readline()

asyncio.run(own())
"""


def _namespace(fence: int = 1) -> Namespace:
    return Namespace(launch="launch", run_id="run", fence=fence)


def _bank(items: int = 50) -> BankState:
    ids = [f"0-{k}" for k in range(items)]
    return BankState(
        1, {i: Record(collection="plan", id=i, version=0, payload={}, vectors={"c": EAST}) for i in ids}
    )


async def _find(store: QdrantEdgeStore, namespace: Namespace, limit: int = 100) -> list[str]:
    return await store.candidates(namespace, 1, "plan", "c", EAST, limit, 0.3)


def _shards(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*/*") if path.is_dir())


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@contextmanager
def _owner(folder: Path, fence: int = 1) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a projection of 50 points."""
    arguments = [sys.executable, "-c", _OWNER, str(folder), str(fence)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            # The engine or the log may print before it.
            assert any(line.startswith("ready") for line in process.stdout)
            yield process
        finally:
            process.kill()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[QdrantEdgeStore]:
    store = QdrantEdgeStore(tmp_path)
    yield store
    await store.close()


async def test_a_killed_owner_leaves_nothing_in_the_way(tmp_path: Path, store: QdrantEdgeStore) -> None:
    """E7: SIGKILL the bank and reopen: no stale lock, nothing to remove by hand, and all 50 points again."""
    with _owner(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert _shards(tmp_path) == ["fence-1"]
    await store.open(_namespace(), FINGERPRINT)
    assert await store.candidates(_namespace(), 0, "plan", "c", EAST, 100, -1.0) == []
    await store.project(_namespace(), 1, BankState(), _bank())
    assert set(await _find(store, _namespace())) == set(_bank().records)


async def test_a_second_opener_is_refused_with_the_holder_s_name(tmp_path: Path, store: QdrantEdgeStore) -> None:
    """E7: the second run fails at start, naming the holder, and does not disturb it."""
    with _owner(tmp_path) as process:
        with pytest.raises(ServiceError, match=f"held by process {process.pid} on "):
            await store.open(_namespace(), FINGERPRINT)
        assert process.poll() is None
        assert _shards(tmp_path) == ["fence-1"]
    await store.open(_namespace(), FINGERPRINT)


async def test_two_stores_of_one_process_do_not_share_a_shard(tmp_path: Path, store: QdrantEdgeStore) -> None:
    await store.open(_namespace(), FINGERPRINT)
    with pytest.raises(ServiceError, match="one process opens a bank"):
        await QdrantEdgeStore(tmp_path).open(_namespace(), FINGERPRINT)


async def test_a_new_owner_removes_what_a_killed_one_left_but_nothing_that_is_held(
    tmp_path: Path, store: QdrantEdgeStore
) -> None:
    """A stale owner lives on (stack.md: 53 s): its shard stays until it is gone."""
    with _owner(tmp_path, fence=1) as killed:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    with _owner(tmp_path, fence=2):
        await store.open(_namespace(3), FINGERPRINT)
        assert _shards(tmp_path) == ["fence-2", "fence-3"]
        other = QdrantEdgeStore(tmp_path)
        await other.open(_namespace(1), FINGERPRINT)
        assert _shards(tmp_path) == ["fence-1", "fence-2", "fence-3"]
        await other.close()


async def test_closing_leaves_only_the_embedder_s_record(tmp_path: Path, store: QdrantEdgeStore) -> None:
    """A projection is never needed again, the record is (E4)."""
    await store.open(_namespace(), FINGERPRINT)
    await store.project(_namespace(), 1, BankState(), _bank())
    await store.close()
    [left] = _files(tmp_path)
    assert json.loads(left.read_text()) == FINGERPRINT.model_dump()


@pytest.mark.parametrize("text", ["", '{"model": "hashing"', '{"model": "hashing", "dim": 2, "norm": "l1"}'])
async def test_a_damaged_record_of_the_embedder_is_refused(
    tmp_path: Path, store: QdrantEdgeStore, text: str
) -> None:
    """E4: what the bank was built with is never guessed."""
    await store.open(_namespace(), FINGERPRINT)
    [record] = [path for path in _files(tmp_path) if path.name == "embedder.json"]
    record.write_text(text)
    with pytest.raises(BankMismatchError, match=r"embedder\.json does not say"):
        await store.open(_namespace(2), FINGERPRINT)


async def test_names_cannot_leave_the_state_directory(tmp_path: Path) -> None:
    """E5: launch and run are free text; a folder is named by their UUID."""
    state_dir = tmp_path / "state"
    store = QdrantEdgeStore(state_dir)
    await store.open(Namespace(launch="../..", run_id="/记忆\0", fence=1), FINGERPRINT)
    assert all(path.is_relative_to(state_dir) for path in _files(tmp_path))
    await store.close()


async def test_a_state_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    store = QdrantEdgeStore(tmp_path / "state")
    with pytest.raises(ServiceError, match=r"cannot use .*check the state directory"):
        await store.open(_namespace(), FINGERPRINT)
    with pytest.raises(ServiceError, match="not open"):
        await _find(store, _namespace())


async def test_a_cancelled_projection_leaves_a_usable_shard(store: QdrantEdgeStore) -> None:
    """The engine's thread finishes what it began; the same version may be projected again."""
    await store.open(_namespace(), FINGERPRINT)
    for _ in range(5):
        project = asyncio.create_task(store.project(_namespace(), 1, BankState(), _bank(400)))
        await asyncio.sleep(0)
        project.cancel()
        with pytest.raises(asyncio.CancelledError):
            await project
    await store.project(_namespace(), 1, BankState(), _bank(400))
    assert set(await _find(store, _namespace(), 400)) == set(_bank(400).records)


async def test_a_cancelled_opening_is_closed_with_the_store(tmp_path: Path) -> None:
    """A lock that was taken for nobody would refuse the next owner."""
    store = QdrantEdgeStore(tmp_path)
    opening = asyncio.create_task(store.open(_namespace(), FINGERPRINT))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await store.close()
    assert _shards(tmp_path) == []
    successor = QdrantEdgeStore(tmp_path)
    await successor.open(_namespace(), FINGERPRINT)
    await successor.close()


def test_a_missing_engine_names_the_extra() -> None:
    """The package works without the engine; only choosing this store needs it."""
    script = (
        "import sys; sys.modules['qdrant_edge'] = None\n"
        "from pathlib import Path\n"
        "from chime_dist.adapters.qdrant.edge import QdrantEdgeStore\n"
        "from chime_dist.errors import MissingExtraError\n"
        "try: QdrantEdgeStore(Path('.'))\n"
        "except MissingExtraError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'chime-dist[edge]'" in done.stdout


async def test_what_the_engine_refuses_is_a_service_error_and_holds_nothing(
    tmp_path: Path, store: QdrantEdgeStore
) -> None:
    """The engine raises bare exceptions; callers see one class, and a failed start keeps no lock."""
    nothing = EmbedderFingerprint(model="hashing", dim=0)
    with pytest.raises(ServiceError, match=r"the engine could not create the shard in .*cannot be 0"):
        await store.open(_namespace(), nothing)
    assert _shards(tmp_path) == []
    await store.open(_namespace().model_copy(update={"run_id": "other"}), FINGERPRINT)


def test_of_many_owners_one_holds_the_directory_and_one_embedder_is_recorded(tmp_path: Path) -> None:
    """E4, E7: whatever the order in which they come."""
    directories = [ShardDirectory(tmp_path, _namespace()) for _ in range(8)]

    def start(k: int) -> tuple[bool, bool]:
        agreed = held = False
        with suppress(BankMismatchError):
            directories[k].check_embedder(EmbedderFingerprint(model=f"model {k}", dim=2))
            agreed = True
        with suppress(ServiceError):
            directories[k].take()
            held = True
        return agreed, held

    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(start, range(8)))
    assert [sum(agreed for agreed, _ in outcomes), sum(held for _, held in outcomes)] == [1, 1]
    for directory in directories:
        directory.release()
    assert [path.name for path in _files(tmp_path)] == ["embedder.json"]
