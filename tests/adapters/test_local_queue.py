"""What only the in-process queue and its change feed promise; the rest is the contract suite's."""

from __future__ import annotations

import asyncio

import pytest

from chime_dist.adapters.local.change_feed import ChangeFeed
from chime_dist.adapters.local.queue import LocalQueue
from chime_dist.ports import Change
from tests.contract.labs import SkippingClock, train_unit


@pytest.fixture
def clock() -> SkippingClock:
    return SkippingClock()


async def test_it_works_without_a_reset(clock: SkippingClock) -> None:
    queue = LocalQueue(clock, ChangeFeed(clock), lease_s=60.0)
    assert await queue.admit(train_unit())
    assert len(await queue.claim("a", 1, 0.0)) == 1


async def test_a_waiting_claim_gets_a_lease_that_runs_out(clock: SkippingClock) -> None:
    """D1: in real time; the waiting claim sleeps no longer than the oldest lease lasts."""
    queue = LocalQueue(clock, ChangeFeed(clock), lease_s=0.05)
    await queue.admit(train_unit())
    await queue.claim("dead", 1, 0.0)
    (lease,) = await asyncio.wait_for(queue.claim("alive", 1, 30.0), 10)
    assert lease.delivery == 2


async def test_many_waiting_claims_share_what_is_admitted(clock: SkippingClock) -> None:
    queue = LocalQueue(clock, ChangeFeed(clock), lease_s=60.0)
    waiting = [asyncio.create_task(queue.claim(f"w{i}", 1, 30.0)) for i in range(5)]
    await asyncio.sleep(0)
    for position in range(5):
        await queue.admit(train_unit(position))
    claimed = await asyncio.wait_for(asyncio.gather(*waiting), 10)
    assert sorted(lease.unit.position for leases in claimed for lease in leases) == [0, 1, 2, 3, 4]


async def test_a_reader_that_fell_behind_gets_the_newest_changes(clock: SkippingClock) -> None:
    feed = ChangeFeed(clock)
    start, _ = await feed.after("", 0.0)
    for head in range(10_007):
        feed.publish(Change(kind="committed", run_id="run", head=head))
    cursor, seen = await feed.after(start, 0.0)
    assert [change.head for change in seen] == list(range(7, 10_007))
    assert await feed.after(cursor, 0.0) == (cursor, [])
