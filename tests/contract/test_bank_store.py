"""One contract for every bank store: memory, the embedded engine, the server adapter."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from chime_dist.core.vector import Vector
from chime_dist.errors import BankMismatchError, EmbeddingError, JournalError, ServiceError
from chime_dist.ports import BankStore, EmbedderFingerprint, Namespace
from tests.contract.banks import (
    DIM,
    DOUBLES_WARNINGS,
    EAST,
    FINGERPRINT,
    KINDS,
    NAMESPACE,
    NORTH,
    bank_store,
    drop,
    find,
    history,
    opened,
    project_all,
    put,
    vector,
)

pytestmark = DOUBLES_WARNINGS


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def store(kind: str, tmp_path: Path) -> AsyncIterator[BankStore]:
    async with bank_store(kind, tmp_path) as store:
        yield store


# --- thresholds and ties --------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-18, 1e-4, 1.0, 1e18])
async def test_a_similarity_at_the_threshold_is_proposed_however_long_the_vector(
    store: BankStore, scale: float
) -> None:
    """R12: sim = .3 is kept, and a vector's length means nothing; engines do not scale very short vectors."""
    at_threshold = vector(0.3 * scale, math.sqrt(1 - 0.09) * scale)
    below = vector(0.29 * scale, math.sqrt(1 - 0.29**2) * scale)
    await opened(store, history([put("0-0", {"c": at_threshold}), put("0-1", {"c": below})]))
    assert await find(store, 1, Vector.of(EAST.array * np.float32(scale)), floor=0.3) == ["0-0"]


async def test_ties_at_the_cut_off_never_drop_a_lower_id(store: BankStore) -> None:
    """R17: equal similarities are ordered by id, and a store returns them in any order; so all are proposed."""
    events = [put(f"0-{k}", {"c": Vector.of(EAST.array * np.float32(1 + k))}) for k in range(120)]
    events.append(put("0-120", {"c": NORTH}))
    await opened(store, history(events))
    found = await find(store, 1, EAST, limit=3, floor=0.3)
    assert set(found) == {f"0-{k}" for k in range(120)}


async def test_clearly_worse_items_are_not_proposed(store: BankStore) -> None:
    """A store may propose too much, but not everything: the caller recomputes what it proposes."""
    angles = [k / 100 for k in range(60)]
    events = [put(f"0-{k}", {"c": vector(math.cos(a), math.sin(a))}) for k, a in enumerate(angles)]
    await opened(store, history(events))
    assert set(await find(store, 1, EAST, limit=10)) == {f"0-{k}" for k in range(10)}


async def test_nothing_is_asked_for_and_nothing_found(store: BankStore) -> None:
    await opened(store, history([put("0-0", {"c": EAST})]))
    assert await find(store, 1, EAST, limit=0) == []


@pytest.mark.parametrize("floor", [math.nan, math.inf, -math.inf])
async def test_a_threshold_that_is_no_number_is_refused(store: BankStore, floor: float) -> None:
    await opened(store, history([put("0-0", {"c": EAST})]))
    with pytest.raises(ValueError, match="finite"):
        await find(store, 1, EAST, floor=floor)


# --- versions -------------------------------------------------------------------------------------------


async def test_an_empty_bank_answers_with_nothing(store: BankStore) -> None:
    await opened(store, history())
    assert await find(store, 0, EAST) == []


async def test_a_replaced_vector_is_found_where_it_stood(store: BankStore) -> None:
    """R7: what an episode reads is the bank of its version, whatever was committed since."""
    states = history(
        [put("0-0", {"c": EAST, "e": EAST})],
        [put("0-0", None, value=0.5)],
        [put("0-0", {"c": NORTH, "e": EAST})],
        [drop("0-0")],
    )
    await opened(store, states)
    assert [await find(store, v, EAST, floor=0.9) for v in range(5)] == [[], ["0-0"], ["0-0"], [], []]
    assert [await find(store, v, NORTH, floor=0.9) for v in range(5)] == [[], [], [], ["0-0"], []]
    assert [await find(store, v, EAST, floor=0.9, name="e") for v in range(5)] == [[], *[["0-0"]] * 3, []]


async def test_projecting_a_version_again_changes_nothing(store: BankStore) -> None:
    """E2: a redelivered update is skipped."""
    states = await opened(store, history([put("0-0", {"c": EAST})], [drop("0-0"), put("1-1", {"c": NORTH})]))
    await project_all(store, states)
    assert [await find(store, v, EAST) for v in range(3)] == [[], ["0-0"], ["1-1"]]


async def test_a_version_that_is_not_projected_is_refused(store: BankStore) -> None:
    await opened(store, history([put("0-0", {"c": EAST})]))
    with pytest.raises(
        ServiceError, match=r"bank of run \(fence \d+\): version 2 is not projected \(it holds 0 to 1\)"
    ):
        await find(store, 2, EAST)


async def test_a_bank_may_be_projected_in_one_step(store: BankStore) -> None:
    """A new owner need not walk every commit; the versions it skipped cannot be read."""
    states = history([put("0-0", {"c": EAST})], [put("0-0", {"c": NORTH})], [put("2-0", {"c": EAST})])
    await store.open(NAMESPACE, FINGERPRINT)
    await store.project(NAMESPACE, 2, states[0], states[2])
    await store.project(NAMESPACE, 3, states[2], states[3])
    assert await find(store, 2, NORTH, floor=0.9) == ["0-0"]
    assert set(await find(store, 3, EAST)) == {"0-0", "2-0"}
    with pytest.raises(ServiceError, match="it holds 0, 2 to 3"):
        await find(store, 1, EAST)


async def test_a_gap_is_refused(store: BankStore) -> None:
    states = history([put("0-0", {"c": EAST})], [put("1-0", {"c": EAST})])
    await store.open(NAMESPACE, FINGERPRINT)
    with pytest.raises(JournalError, match="it is at version 0, so it cannot be brought from 1 to 2"):
        await store.project(NAMESPACE, 2, states[1], states[2])


async def test_readers_of_past_versions_are_not_disturbed_by_commits(store: BankStore) -> None:
    states = history(
        [put("0-0", {"c": EAST})], *[[drop(f"{n}-0"), put(f"{n + 1}-0", {"c": EAST})] for n in range(8)]
    )
    await opened(store, states[:2])

    async def read() -> list[list[str]]:
        return [await find(store, 1, EAST) for _ in range(10)]

    reads, _ = await asyncio.gather(read(), project_all(store, states[1:]))
    assert reads == [["0-0"]] * 10
    assert await find(store, 9, EAST) == ["8-0"]


# --- owners ---------------------------------------------------------------------------------------------


async def test_namespaces_do_not_see_each_other(store: BankStore) -> None:
    """A stale owner writes where nobody reads."""
    others = [
        Namespace(launch="launch", run_id="run", fence=2),
        Namespace(launch="launch", run_id="记忆/..", fence=1),
        Namespace(launch="launch2", run_id="run", fence=1),
    ]
    for k, namespace in enumerate([NAMESPACE, *others]):
        await opened(store, history([put(f"0-{k}", {"c": EAST})]), namespace)
    for k, namespace in enumerate([NAMESPACE, *others]):
        assert await find(store, 1, EAST, namespace=namespace) == [f"0-{k}"]


async def test_a_namespace_that_nobody_opened_is_an_error(store: BankStore) -> None:
    await opened(store, history([put("0-0", {"c": EAST})]))
    unknown = Namespace(launch="launch", run_id="other", fence=1)
    with pytest.raises(ServiceError, match=r"bank of other \(fence \d+\)"):
        await find(store, 0, EAST, namespace=unknown)
    with pytest.raises(ServiceError, match=r"bank of other \(fence \d+\)"):
        await store.project(unknown, 1, *history([put("0-0", {"c": EAST})]))


async def test_opening_again_starts_empty(store: BankStore) -> None:
    """The owner rebuilds the projection from the journal, so nothing of an earlier one may shine through."""
    await opened(store, history([put("0-0", {"c": EAST}), put("0-1", {"c": EAST})]))
    await opened(store, history([put("0-0", {"c": NORTH})]))
    assert await find(store, 1, EAST, floor=0.5) == []
    assert await find(store, 1, NORTH, floor=0.5) == ["0-0"]


@pytest.mark.parametrize("kind", ["memory", "edge"])
async def test_a_closed_store_can_be_opened_again(store: BankStore) -> None:
    states = await opened(store, history([put("0-0", {"c": EAST})]))
    await store.close()
    with pytest.raises(ServiceError, match="not open"):
        await find(store, 1, EAST)
    await opened(store, states)
    assert await find(store, 1, EAST) == ["0-0"]


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
    await opened(store, history([put("0-0", {"c": EAST})]))
    for namespace in (NAMESPACE, Namespace(launch="launch", run_id="run", fence=2)):
        with pytest.raises(BankMismatchError) as caught:
            await store.open(namespace, other)
        assert str(FINGERPRINT) in str(caught.value)
        assert str(other) in str(caught.value)
    assert await find(store, 1, EAST) == ["0-0"]


async def test_runs_of_one_store_may_use_different_embedders(store: BankStore) -> None:
    """What must not change is the embedder under one run's bank."""
    other = Namespace(launch="launch", run_id="other", fence=1)
    await opened(store, history([put("0-0", {"c": EAST})]))
    await store.open(other, EmbedderFingerprint(model="other", dim=2))
    await store.project(other, 1, *history([put("0-1", {"c": Vector.of([1, 0])})]))
    assert await find(store, 1, Vector.of([1, 0]), namespace=other) == ["0-1"]
    assert await find(store, 1, EAST) == ["0-0"]


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
        await store.project(NAMESPACE, 1, *history([put("0-0", {"c": EAST}), put("0-1", {"c": bad})]))
    await project_all(store, history([put("0-2", {"c": EAST})]))
    assert await find(store, 1, EAST) == ["0-2"]
    with pytest.raises(error, match=message):
        await find(store, 1, bad)
