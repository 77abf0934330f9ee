"""Compaction in every bank store: what can be read answers as before, the rest is refused and removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chime_dist.core.bank import BankState
from chime_dist.errors import ServiceError
from chime_dist.ports import BankStore, Namespace
from tests.contract.banks import (
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
)

pytestmark = DOUBLES_WARNINGS


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BankStore]:
    async with bank_store(str(request.param), tmp_path) as store:
        yield store


def _replacing(commits: int) -> list[BankState]:
    """Every commit drops what the one before inserted: version v holds ``(v-1)-0``, and a record that stays."""
    first = [put("0-0", {"c": EAST}), put("0-1", {"c": EAST, "e": NORTH}, "exec")]
    return history(first, *([drop(f"{n}-0"), put(f"{n + 1}-0", {"c": EAST})] for n in range(commits - 1)))


async def _is_gone(store: BankStore, version: int, namespace: Namespace = NAMESPACE) -> bool:
    try:
        await find(store, version, EAST, namespace=namespace)
    except ServiceError as error:
        return f"version {version} was let go by a compaction" in str(error)
    return False


async def test_versions_that_are_kept_answer_as_before_and_the_others_are_refused(store: BankStore) -> None:
    """R7: window and checkpoints; the head and the empty version 0 stay whatever is asked for."""
    states = await opened(store, _replacing(9))
    before = {v: await find(store, v, EAST) for v in range(len(states))}
    await store.compact(NAMESPACE, [3, 6, 7, 8])
    assert {v: await find(store, v, EAST) for v in (0, 3, 6, 7, 8, 9)} == {
        v: before[v] for v in (0, 3, 6, 7, 8, 9)
    }
    assert [v for v in range(len(states)) if await _is_gone(store, v)] == [1, 2, 4, 5]
    assert await find(store, 3, EAST, collection="exec", name="e", floor=-1) == ["0-1"]
    with pytest.raises(ServiceError, match=r"it holds 0, 3, 6 to 9\); replay the journal to read it"):
        await find(store, 4, EAST)


async def test_the_projection_goes_on_after_a_compaction(store: BankStore) -> None:
    """And later compactions add to earlier ones: what was let go never comes back."""
    states = _replacing(9)
    await opened(store, states[:5])
    await store.compact(NAMESPACE, [2, 3])
    await project_all(store, states)
    assert await find(store, 9, EAST) == ["8-0"]
    await store.compact(NAMESPACE, [1, 2, 3, 8])
    assert [v for v in range(10) if await _is_gone(store, v)] == [1, 4, 5, 6, 7]
    assert await find(store, 2, EAST) == ["1-0"]
    assert await find(store, 8, EAST) == ["7-0"]


async def test_compacting_again_or_with_nothing_to_remove_changes_nothing(store: BankStore) -> None:
    states = await opened(store, _replacing(5))
    await store.compact(NAMESPACE, range(6))
    assert [await find(store, v, EAST) for v in range(6)] == [[], *([f"{n}-0"] for n in range(5))]
    for _ in range(2):
        await store.compact(NAMESPACE, [4])
        assert [v for v in range(6) if await _is_gone(store, v)] == [1, 2, 3]
    await project_all(store, states)
    assert await find(store, 4, EAST) == ["3-0"]


async def test_only_the_head_may_be_kept(store: BankStore) -> None:
    """What stands at the head is never removed, however old it is."""
    await opened(store, _replacing(6))
    await store.compact(NAMESPACE, [])
    assert await find(store, 6, EAST) == ["5-0"]
    assert await find(store, 6, NORTH, collection="exec", name="e") == ["0-1"]


async def test_an_empty_projection_can_be_compacted(store: BankStore) -> None:
    states = _replacing(2)
    await opened(store, states[:1])
    await store.compact(NAMESPACE, [])
    await project_all(store, states)
    assert await find(store, 2, EAST) == ["1-0"]


async def test_a_version_that_nobody_reached_may_be_kept(store: BankStore) -> None:
    """A checkpoint that is still to come is among the versions that an owner keeps from the start."""
    states = _replacing(8)
    await opened(store, states[:5])
    await store.compact(NAMESPACE, [4, 6, 20])
    await project_all(store, states)
    await store.compact(NAMESPACE, [6, 8, 20])
    assert await find(store, 6, EAST) == ["5-0"]
    assert [v for v in range(9) if await _is_gone(store, v)] == [1, 2, 3, 4, 5, 7]


async def test_a_namespace_that_nobody_opened_cannot_be_compacted(store: BankStore) -> None:
    with pytest.raises(ServiceError, match=r"bank of run \(fence \d+\)"):
        await store.compact(NAMESPACE, [1])


async def test_commits_and_reads_go_on_during_a_compaction(store: BankStore) -> None:
    """It is serialised with projection, and overtakes no read of what is kept."""
    states = _replacing(12)
    await opened(store, states[:9])

    async def read() -> list[list[str]]:
        return [await find(store, version, EAST) for _ in range(5) for version in (4, 8)]

    reads, *_ = await asyncio.gather(
        read(),
        store.compact(NAMESPACE, [4, 8]),
        project_all(store, states[8:]),
        store.compact(NAMESPACE, [4, 8, 9]),
        read(),
    )
    assert reads == [["3-0"], ["7-0"]] * 5
    assert await find(store, 12, EAST) == ["11-0"]


async def test_owners_launches_and_runs_do_not_compact_each_other(store: BankStore) -> None:
    """A stale owner that goes on committing and compacting does it where nobody reads."""
    everyone = [
        NAMESPACE,
        Namespace(launch="launch", run_id="run", fence=2),
        Namespace(launch="launch", run_id="other", fence=1),
        Namespace(launch="launch 2", run_id="run", fence=1),
    ]
    states = _replacing(6)
    for namespace in everyone:
        await opened(store, states[:5], namespace)
    stale, *others = everyone
    await project_all(store, states[4:], stale)
    await store.compact(stale, [])
    assert await _is_gone(store, 2, stale)
    for namespace in others:
        assert [await find(store, v, EAST, namespace=namespace) for v in range(1, 5)] == [
            [f"{n}-0"] for n in range(4)
        ]
        with pytest.raises(ServiceError, match="version 5 is not projected"):
            await find(store, 5, EAST, namespace=namespace)


async def test_a_namespace_opened_again_remembers_no_compaction(store: BankStore) -> None:
    states = await opened(store, _replacing(5))
    await store.compact(NAMESPACE, [])
    await store.open(NAMESPACE, FINGERPRINT)
    await project_all(store, states)
    assert [await find(store, v, EAST) for v in (1, 3, 5)] == [["0-0"], ["2-0"], ["4-0"]]
