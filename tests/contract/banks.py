"""Bank stores and small banks for the contract suite over all stores.

The server adapter runs over qdrant-client's in-process double everywhere, directly and through HTTP, and over a
real server where CHIME_TEST_QDRANT_URL names one (with the key in CHIME_TEST_QDRANT_API_KEY, if it wants one).
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from qdrant_client import AsyncQdrantClient

from chime_dist.adapters.local.memory_store import MemoryStore
from chime_dist.adapters.local.resident_store import ResidentStore
from chime_dist.adapters.qdrant.edge import QdrantEdgeStore
from chime_dist.adapters.qdrant.server import QdrantServerStore
from chime_dist.adapters.qdrant.server_calls import connected
from chime_dist.core.bank import BankState, Event, ItemId, apply
from chime_dist.core.vector import Vector, at_least, similarities, unit_rows
from chime_dist.ports import BankStore, EmbedderFingerprint, Namespace
from tests.contract.qdrant_rest import RestQdrant

SERVER_URL = os.environ.get("CHIME_TEST_QDRANT_URL")
SERVER_KEY = os.environ.get("CHIME_TEST_QDRANT_API_KEY")
KINDS = ["memory", "edge", "resident", "server_double", "server_rest", *(["server"] if SERVER_URL else [])]
DOUBLES_WARNINGS = [
    pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant:UserWarning"),
    pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning"),
    pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection:UserWarning"),
]
"""What the double of a server is expected to complain of."""
OUTGROWN = 5
"""Vectors that the resident store keeps in memory here: most banks of these suites outgrow it on the way."""
DIM = 4
FINGERPRINT = EmbedderFingerprint(model="hashing", dim=DIM)
NAMESPACE = Namespace(launch="launch", run_id="run", fence=1)


@asynccontextmanager
async def bank_store(kind: str, folder: Path) -> AsyncIterator[BankStore]:
    """An empty store, closed afterwards; what it left on a real server is removed."""
    async with AsyncExitStack() as stack:
        prefix = f"chime-test-{uuid.uuid4()}-"
        store: BankStore
        if kind == "memory":
            store = MemoryStore()
        elif kind == "edge":
            store = QdrantEdgeStore(folder)
        elif kind == "resident":
            store = ResidentStore(MemoryStore(), OUTGROWN)
        elif kind == "server_double":
            store = QdrantServerStore(AsyncQdrantClient(":memory:"))
        elif kind == "server_rest":
            url = await stack.enter_async_context(RestQdrant().listening())
            store = QdrantServerStore.connect(url)
        else:
            assert SERVER_URL is not None
            stack.push_async_callback(_remove_collections, SERVER_URL, prefix)
            store = QdrantServerStore(connected(SERVER_URL, SERVER_KEY), prefix)
        stack.push_async_callback(store.close)
        yield store


async def _remove_collections(url: str, prefix: str) -> None:
    client = connected(url, SERVER_KEY)
    for found in (await client.get_collections()).collections:
        if found.name.startswith(prefix):
            await client.delete_collection(found.name)
    await client.close()


# --- banks ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Commit:
    """What ``apply`` needs of a journal entry."""

    position: int
    events: tuple[Event, ...]


def put(item: str, vectors: dict[str, Vector] | None, collection: str = "plan", value: float = 0.0) -> Event:
    return Event(op="put", kind="test", collection=collection, id=item, payload={"v": value}, vectors=vectors)


def drop(item: str, collection: str = "plan") -> Event:
    return Event(op="drop", kind="test", collection=collection, id=item)


def history(*commits: Sequence[Event]) -> list[BankState]:
    """The bank at every version, from the empty one on."""
    states = [BankState()]
    for events in commits:
        states.append(apply(states[-1], Commit(states[-1].version, tuple(events))))
    return states


async def project_all(store: BankStore, states: list[BankState], namespace: Namespace = NAMESPACE) -> None:
    for before, after in itertools.pairwise(states):
        await store.project(namespace, after.version, before, after)


async def opened(store: BankStore, states: list[BankState], namespace: Namespace = NAMESPACE) -> list[BankState]:
    await store.open(namespace, FINGERPRINT)
    await project_all(store, states, namespace)
    return states


async def find(
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


def vector(*values: float) -> Vector:
    return Vector.of([*values, *[0.0] * (DIM - len(values))])


EAST, NORTH = vector(1, 0), vector(0, 1)


def similarities_of(state: BankState, collection: str, name: str, query: Vector) -> dict[str, float]:
    holders = [r for r in state.collection(collection) if name in r.vectors]
    if not holders:
        return {}
    rows = unit_rows([r.vectors[name] for r in holders])
    return {r.id: sim for r, sim in zip(holders, similarities(query, rows), strict=True)}


def best_of(sims: dict[str, float], limit: int, floor: float) -> list[str]:
    kept = [(item, sim) for item, sim in sims.items() if at_least(sim, floor)]
    kept.sort(key=lambda pair: (-pair[1], ItemId.parse(pair[0])))
    return [item for item, _ in kept[:limit]]
