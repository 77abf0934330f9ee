"""One contract for every queue: what a worker, the driver and the bank owner may rely on."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chime_dist.core.episode import Unit
from chime_dist.ports import Appended, Change, Completed, Lease
from tests.contract.labs import LEASE_S, Kind, Lab, eval_unit, open_lab, proposal_of, train_unit

KINDS: tuple[Kind, ...] = ("local", "redis", "secured")


@pytest.fixture(params=KINDS)
async def lab(request: pytest.FixtureRequest, redis_url: str, tmp_path: Path) -> AsyncIterator[Lab]:
    async with open_lab(request.param, redis_url, tmp_path) as opened:
        yield opened


async def claim_one(lab: Lab, consumer: str = "a") -> Lease:
    (lease,) = await lab.queue.claim(consumer, 1, 0.0)
    return lease


async def handed_on(lab: Lab, unit: Unit) -> tuple[Lease, Lease]:
    """A unit whose first lease ran out and that another worker holds now."""
    await lab.queue.admit(unit)
    stale = await claim_one(lab, "stale")
    await lab.pass_time(LEASE_S + 1)
    return stale, await claim_one(lab, "successor")


# --- admission and claiming -----------------------------------------------------------------------------


async def test_an_admitted_unit_is_handed_out_once(lab: Lab) -> None:
    assert await lab.queue.admit(train_unit())
    (lease,) = await lab.queue.claim("a", 5, 0.0)
    assert (lease.unit, lease.delivery) == (train_unit(), 1)
    assert await lab.queue.claim("b", 5, 0.0) == []


async def test_a_key_is_admitted_once_even_after_its_completion(lab: Lab) -> None:
    assert await lab.queue.admit(train_unit())
    assert not await lab.queue.admit(train_unit())
    await lab.queue.complete(await claim_one(lab), proposal_of(train_unit()))
    assert not await lab.queue.admit(train_unit())
    assert await lab.queue.claim("a", 5, 0.0) == []


async def test_train_and_eval_units_of_one_position_are_two_units(lab: Lab) -> None:
    assert await lab.queue.admit(train_unit(3))
    assert await lab.queue.admit(eval_unit(3))
    assert len(await lab.queue.claim("a", 5, 0.0)) == 2


async def test_units_come_in_the_order_of_admission_and_no_more_than_asked_for(lab: Lab) -> None:
    for position in (4, 2, 9, 1):
        await lab.queue.admit(train_unit(position))
    assert [lease.unit.position for lease in await lab.queue.claim("a", 3, 0.0)] == [4, 2, 9]
    assert [lease.unit.position for lease in await lab.queue.claim("b", 3, 0.0)] == [1]


async def test_a_claim_of_nothing_returns_nothing(lab: Lab) -> None:
    await lab.queue.admit(train_unit())
    assert await lab.queue.claim("a", 0, 10.0) == []


async def test_a_claim_without_work_returns_after_its_wait(lab: Lab) -> None:
    assert await lab.queue.claim("a", 1, 0.02) == []


async def test_a_waiting_claim_gets_a_unit_that_is_admitted_meanwhile(lab: Lab) -> None:
    waiting = asyncio.create_task(lab.queue.claim("a", 1, 30.0))
    await asyncio.sleep(0.05)
    await lab.queue.admit(train_unit())
    (lease,) = await asyncio.wait_for(waiting, 10)
    assert lease.unit == train_unit()
    assert await lab.queue.complete(lease, proposal_of(train_unit())) is Completed.STORED


async def test_a_waiting_claim_gets_a_unit_that_is_given_back_meanwhile(lab: Lab) -> None:
    await lab.queue.admit(train_unit())
    lease = await claim_one(lab, "a")
    waiting = asyncio.create_task(lab.queue.claim("b", 1, 30.0))
    await asyncio.sleep(0.05)
    await lab.queue.release(lease)
    (again,) = await asyncio.wait_for(waiting, 10)
    assert (again.unit, again.delivery) == (train_unit(), 2)


async def test_a_cancelled_waiting_claim_loses_no_unit_for_good(lab: Lab) -> None:
    """A server may deliver to it before it hears of the cancellation; then the lease brings the unit back."""
    waiting = asyncio.create_task(lab.queue.claim("a", 1, 30.0))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await lab.queue.admit(train_unit())
    if not (leases := await lab.queue.claim("b", 1, 0.5)):
        await lab.pass_time(LEASE_S + 1)
        leases = await lab.queue.claim("b", 1, 0.0)
    assert [lease.unit for lease in leases] == [train_unit()]


@pytest.mark.parametrize("name", ["", "~released"])
async def test_a_consumer_cannot_take_a_name_of_the_queue(lab: Lab, name: str) -> None:
    with pytest.raises(ValueError, match="consumer's name"):
        await lab.queue.claim(name, 1, 0.0)


async def test_outstanding_names_admitted_units_until_they_are_completed(lab: Lab) -> None:
    for position in range(3):
        await lab.queue.admit(train_unit(position))
    await lab.queue.complete(await claim_one(lab), proposal_of(train_unit(0)))
    await claim_one(lab)
    assert await lab.queue.outstanding() == {train_unit(1).key, train_unit(2).key}


# --- leases ---------------------------------------------------------------------------------------------


async def test_a_lease_that_ran_out_goes_to_another_worker(lab: Lab) -> None:
    """D1: the work of a dead worker is picked up by one with a new name, and one result exists."""
    stale, lease = await handed_on(lab, train_unit())
    assert (lease.unit, lease.delivery) == (stale.unit, 2)
    assert lease.token != stale.token
    assert await lab.queue.complete(lease, proposal_of(train_unit(), "successor")) is Completed.STORED
    assert await lab.queue.outstanding() == set()


async def test_a_lease_that_did_not_run_out_stays_with_its_worker(lab: Lab) -> None:
    await lab.queue.admit(train_unit())
    await claim_one(lab, "a")
    await lab.pass_time(LEASE_S / 2)
    assert await lab.queue.claim("b", 1, 0.0) == []


async def test_the_late_completion_of_a_stale_owner_is_refused(lab: Lab) -> None:
    """D2: a worker that was stopped while its unit went on neither commits nor clears its successor's lease."""
    stale, lease = await handed_on(lab, train_unit())
    assert await lab.queue.complete(stale, proposal_of(train_unit(), "stale")) is Completed.LOST
    assert await lab.queue.proposal("run", 0) is None
    assert await lab.queue.renew([lease]) == []
    assert await lab.queue.complete(lease, proposal_of(train_unit(), "successor")) is Completed.STORED
    assert await lab.queue.complete(stale, proposal_of(train_unit(), "stale")) is Completed.LOST
    assert await lab.queue.proposal("run", 0) == proposal_of(train_unit(), "successor")


async def test_a_worker_that_gets_its_own_unit_again_cannot_complete_with_the_old_lease(lab: Lab) -> None:
    """D2: the name of the owner is not enough, the delivery counts."""
    await lab.queue.admit(train_unit())
    first = await claim_one(lab, "a")
    await lab.pass_time(LEASE_S + 1)
    second = await claim_one(lab, "a")
    assert await lab.queue.complete(first, proposal_of(train_unit())) is Completed.LOST
    assert await lab.queue.complete(second, proposal_of(train_unit())) is Completed.STORED


async def test_a_lease_that_ran_out_but_was_not_handed_on_still_completes(lab: Lab) -> None:
    await lab.queue.admit(train_unit())
    lease = await claim_one(lab)
    await lab.pass_time(LEASE_S * 10)
    assert await lab.queue.complete(lease, proposal_of(train_unit())) is Completed.STORED
    assert await lab.queue.claim("b", 1, 0.0) == []


async def test_renewing_keeps_a_lease_and_tells_which_ones_are_lost(lab: Lab) -> None:
    stale, _ = await handed_on(lab, train_unit(0))
    for position in (1, 2):
        await lab.queue.admit(train_unit(position))
    kept = await lab.queue.claim("a", 2, 0.0)
    await lab.pass_time(LEASE_S * 0.9)
    assert await lab.queue.renew([kept[0], stale, kept[1]]) == [stale]
    await lab.pass_time(LEASE_S * 0.9)
    assert [lease.unit.position for lease in await lab.queue.claim("b", 5, 0.0)] == [0]


async def test_renewing_does_not_count_as_a_delivery(lab: Lab) -> None:
    """D9: only handing a unit out counts."""
    await lab.queue.admit(train_unit())
    lease = await claim_one(lab)
    for _ in range(5):
        assert await lab.queue.renew([lease]) == []
    await lab.pass_time(LEASE_S + 1)
    assert (await claim_one(lab, "b")).delivery == 2


async def test_a_lease_that_ran_out_can_be_renewed_until_it_is_handed_on(lab: Lab) -> None:
    await lab.queue.admit(train_unit())
    lease = await claim_one(lab)
    await lab.pass_time(LEASE_S + 1)
    assert await lab.queue.renew([lease]) == []
    assert await lab.queue.claim("b", 1, 0.0) == []


async def test_renewing_nothing_loses_nothing(lab: Lab) -> None:
    assert await lab.queue.renew([]) == []


async def test_a_completed_lease_is_lost_for_renewal(lab: Lab) -> None:
    await lab.queue.admit(train_unit())
    lease = await claim_one(lab)
    await lab.queue.complete(lease, None)
    assert await lab.queue.renew([lease]) == [lease]


async def test_deliveries_are_counted_through_expiry_and_release(lab: Lab) -> None:
    """D9: a poison unit is recognised by the queue's own count, whoever held it."""
    await lab.queue.admit(train_unit())
    deliveries = []
    for turn in range(6):
        lease = await claim_one(lab, f"worker {turn}")
        deliveries.append(lease.delivery)
        if turn % 2:
            await lab.queue.release(lease)
        else:
            await lab.pass_time(LEASE_S + 1)
    assert deliveries == [1, 2, 3, 4, 5, 6]


async def test_a_unit_given_back_is_claimable_at_once_and_its_lease_is_void(lab: Lab) -> None:
    await lab.queue.admit(train_unit())
    lease = await claim_one(lab, "a")
    assert await lab.queue.release(lease)
    assert await lab.queue.complete(lease, proposal_of(train_unit())) is Completed.LOST
    assert await lab.queue.renew([lease]) == [lease]
    again = await claim_one(lab, "b")
    assert again.delivery == 2
    assert await lab.queue.complete(again, None) is Completed.STORED


async def test_giving_back_twice_says_yes_until_somebody_took_the_unit(lab: Lab) -> None:
    """D4: a re-sent release is not a lost lease."""
    await lab.queue.admit(train_unit())
    lease = await claim_one(lab, "a")
    assert await lab.queue.release(lease)
    assert await lab.queue.release(lease)
    await claim_one(lab, "b")
    assert not await lab.queue.release(lease)


async def test_a_lost_or_completed_lease_cannot_be_given_back(lab: Lab) -> None:
    stale, lease = await handed_on(lab, train_unit())
    assert not await lab.queue.release(stale)
    assert await lab.queue.renew([lease]) == []
    await lab.queue.complete(lease, None)
    assert not await lab.queue.release(lease)


async def test_leases_that_ran_out_come_before_new_units_and_in_their_old_order(lab: Lab) -> None:
    """D11: a redelivered unit does not move to the tail."""
    for position in range(3):
        await lab.queue.admit(train_unit(position))
    first = await lab.queue.claim("a", 3, 0.0)
    await lab.queue.release(first[1])
    await lab.pass_time(LEASE_S + 1)
    await lab.queue.admit(train_unit(3))
    assert [lease.unit.position for lease in await lab.queue.claim("b", 3, 0.0)] == [0, 1, 2]
    assert [lease.unit.position for lease in await lab.queue.claim("b", 3, 0.0)] == [3]


async def test_one_claim_can_bring_both_redelivered_and_new_units(lab: Lab) -> None:
    await lab.queue.admit(train_unit(0))
    await claim_one(lab, "a")
    await lab.queue.admit(train_unit(1))
    await lab.pass_time(LEASE_S + 1)
    leases = await lab.queue.claim("b", 5, 0.0)
    assert [(lease.unit.position, lease.delivery) for lease in leases] == [(0, 2), (1, 1)]


# --- completion and proposals ---------------------------------------------------------------------------


async def test_completing_twice_with_one_lease_is_the_same_completion(lab: Lab) -> None:
    """D4: a completion that is sent again after a lost reply is not a lost lease and changes nothing."""
    await lab.queue.admit(train_unit())
    lease = await claim_one(lab)
    assert await lab.queue.complete(lease, proposal_of(train_unit(), "first")) is Completed.STORED
    assert await lab.queue.complete(lease, proposal_of(train_unit(), "second")) is Completed.ALREADY_SAME
    assert await lab.queue.proposal("run", 0) == proposal_of(train_unit(), "first")


async def test_a_completion_repeated_after_its_commit_does_not_bring_the_proposal_back(lab: Lab) -> None:
    await lab.queue.admit(train_unit())
    lease = await claim_one(lab)
    await lab.queue.complete(lease, proposal_of(train_unit()))
    await lab.queue.forget("run", 0)
    assert await lab.queue.complete(lease, proposal_of(train_unit())) is Completed.ALREADY_SAME
    assert await lab.queue.proposal("run", 0) is None


async def test_a_proposal_comes_back_as_it_was(lab: Lab) -> None:
    await lab.queue.admit(train_unit(12))
    await lab.queue.complete(await claim_one(lab), proposal_of(train_unit(12)))
    assert await lab.queue.proposal("run", 12) == proposal_of(train_unit(12))
    assert await lab.queue.proposal("run", 1) is None
    assert await lab.queue.proposal("another run", 12) is None


async def test_an_eval_unit_completes_without_a_proposal(lab: Lab) -> None:
    await lab.queue.admit(eval_unit(12))
    assert await lab.queue.complete(await claim_one(lab), None) is Completed.STORED
    assert await lab.queue.proposal("run", 12) is None


async def test_a_proposal_of_another_place_is_refused(lab: Lab) -> None:
    await lab.queue.admit(train_unit(0))
    await lab.queue.admit(eval_unit(1))
    train, evaluation = await lab.queue.claim("a", 2, 0.0)
    for lease, wrong in (
        (train, proposal_of(train_unit(1))),
        (train, proposal_of(train_unit(0, "another run"))),
        (evaluation, proposal_of(eval_unit(1))),
    ):
        with pytest.raises(ValueError, match="cannot complete with the proposal"):
            await lab.queue.complete(lease, wrong)
    assert await lab.queue.outstanding() == {train.unit.key, evaluation.unit.key}


async def test_the_first_stored_proposal_of_a_position_wins(lab: Lab) -> None:
    """D10: what was found on disk at resume and what a redelivered unit brings are one update, not two."""
    await lab.queue.submit(proposal_of(train_unit(), "found on disk"))
    await lab.queue.submit(proposal_of(train_unit(), "found again"))
    await lab.queue.admit(train_unit())
    assert await lab.queue.complete(await claim_one(lab), proposal_of(train_unit(), "late")) is Completed.STORED
    assert await lab.queue.proposal("run", 0) == proposal_of(train_unit(), "found on disk")


async def test_forgetting_a_proposal_again_is_harmless(lab: Lab) -> None:
    await lab.queue.submit(proposal_of(train_unit(0)))
    await lab.queue.submit(proposal_of(train_unit(1)))
    await lab.queue.forget("run", 0)
    await lab.queue.forget("run", 0)
    assert await lab.queue.proposal("run", 0) is None
    assert await lab.queue.proposal("run", 1) == proposal_of(train_unit(1))


# --- a driver's turn ------------------------------------------------------------------------------------


async def test_a_reset_voids_admissions_and_leases_but_no_proposal(lab: Lab) -> None:
    for position in range(4):
        await lab.queue.admit(train_unit(position))
    done, held, released = await lab.queue.claim("a", 3, 0.0)
    await lab.queue.complete(done, proposal_of(train_unit(0)))
    await lab.queue.release(released)
    await lab.queue.reset()
    assert await lab.queue.outstanding() == set()
    assert await lab.queue.claim("a", 5, 0.0) == []
    for lease in (done, held, released):
        assert await lab.queue.complete(lease, proposal_of(lease.unit, "older turn")) is Completed.LOST
        assert not await lab.queue.release(lease)
        assert await lab.queue.renew([lease]) == [lease]
    assert await lab.queue.proposal("run", 0) == proposal_of(train_unit(0))
    assert await lab.queue.proposal("run", 1) is None


async def test_a_unit_can_be_admitted_again_after_a_reset_and_old_leases_do_not_touch_it(lab: Lab) -> None:
    await lab.queue.admit(train_unit())
    old = await claim_one(lab, "a")
    await lab.queue.reset()
    assert await lab.queue.admit(train_unit())
    new = await claim_one(lab, "a")
    assert new.delivery == 1
    assert new.token != old.token
    assert await lab.queue.complete(old, proposal_of(train_unit(), "old")) is Completed.LOST
    assert await lab.queue.complete(new, proposal_of(train_unit(), "new")) is Completed.STORED
    assert await lab.queue.proposal("run", 0) == proposal_of(train_unit(), "new")


async def test_every_turn_has_a_name_of_its_own(lab: Lab) -> None:
    names = [await lab.queue.reset() for _ in range(3)]
    assert len({*names, ""}) == 4
    await lab.queue.admit(train_unit())
    assert names[-1] in (await claim_one(lab)).token


# --- changes --------------------------------------------------------------------------------------------


async def test_changes_start_from_now_and_come_in_order(lab: Lab) -> None:
    for position in range(3):
        await lab.queue.admit(train_unit(position))
    leases = await lab.queue.claim("a", 3, 0.0)
    await lab.queue.complete(leases[0], None)
    cursor, seen = await lab.queue.changes("", 0.0)
    assert seen == []
    await lab.queue.complete(leases[1], None)
    await lab.queue.complete(leases[2], None)
    cursor, seen = await lab.queue.changes(cursor, 0.0)
    assert seen == [Change(kind="completed", run_id="run", unit=train_unit(p).key) for p in (1, 2)]
    again, seen = await lab.queue.changes(cursor, 0.01)
    assert (again, seen) == (cursor, [])


async def test_changes_before_anything_happened_have_a_cursor(lab: Lab) -> None:
    cursor, _ = await lab.queue.changes("", 0.0)
    await lab.queue.submit(proposal_of(train_unit()))
    assert (await lab.queue.changes(cursor, 0.0))[1] == [Change(kind="completed", run_id="run")]


async def test_waiting_for_changes_ends_with_the_first_one(lab: Lab) -> None:
    await lab.queue.admit(train_unit())
    lease = await claim_one(lab)
    for cursor in ("", (await lab.queue.changes("", 0.0))[0]):
        waiting = asyncio.create_task(lab.queue.changes(cursor, 30.0))
        await asyncio.sleep(0.05)
        if cursor == "":
            await lab.queue.submit(proposal_of(train_unit(1)))
        else:
            await lab.queue.complete(lease, None)
        _, seen = await asyncio.wait_for(waiting, 10)
        assert [change.kind for change in seen] == ["completed"]


async def test_every_reader_sees_every_change(lab: Lab) -> None:
    start, _ = await lab.queue.changes("", 0.0)
    readers = [asyncio.create_task(lab.queue.changes(start, 30.0)) for _ in range(3)]
    await asyncio.sleep(0.02)
    await lab.queue.submit(proposal_of(train_unit()))
    assert all(seen for _, seen in await asyncio.wait_for(asyncio.gather(*readers), 10))


async def test_a_commit_is_a_change_with_the_new_head(lab: Lab) -> None:
    fence = await lab.journal.take_fence("run")
    cursor, _ = await lab.queue.changes("", 0.0)
    assert await lab.journal.append("run", fence, 0, "line 0") is Appended.APPENDED
    assert await lab.journal.append("run", fence, 2, "line 2") is Appended.CONFLICT
    _, seen = await lab.queue.changes(cursor, 0.0)
    assert seen == [Change(kind="committed", run_id="run", head=1)]


async def test_nothing_that_failed_is_told(lab: Lab) -> None:
    stale, _ = await handed_on(lab, train_unit())
    await lab.queue.submit(proposal_of(train_unit()))
    cursor, _ = await lab.queue.changes("", 0.0)
    await lab.queue.complete(stale, proposal_of(train_unit()))
    await lab.queue.submit(proposal_of(train_unit(), "second"))
    assert (await lab.queue.changes(cursor, 0.0))[1] == []


# --- any history ----------------------------------------------------------------------------------------

Op = tuple[str, int]
OPS = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.integers(0, 7)),
        st.tuples(st.just("claim"), st.integers(0, 8)),
        st.tuples(st.sampled_from(["complete", "release", "renew"]), st.integers(0, 30)),
        st.tuples(st.just("expire"), st.just(0)),
        st.tuples(st.just("reset"), st.just(0)),
    ),
    max_size=40,
)


@dataclass
class _Modelled:
    """What the contract says about one admitted unit."""

    unit: Unit
    delivery: int = 0
    holder: Lease | None = None
    released: Lease | None = None
    claimable: bool = True
    completed: Lease | None = None


@dataclass
class _Walk:
    """Drives a queue and a model of it through one history; every answer is predicted."""

    lab: Lab
    units: dict[str, _Modelled] = field(default_factory=dict)
    leases: list[Lease] = field(default_factory=list)
    proposals: dict[int, str] = field(default_factory=dict)

    async def step(self, op: str, arg: int) -> None:
        if op == "admit":
            await self.admit(train_unit(arg))
        elif op == "claim":
            await self.claim(f"worker {arg % 3}", 1 + arg // 3)
        elif op == "expire":
            await self.expire()
        elif op == "reset":
            await self.lab.queue.reset()
            self.units.clear()
        elif self.leases:
            await getattr(self, op)(self.leases[arg % len(self.leases)])

    async def admit(self, unit: Unit) -> None:
        assert await self.lab.queue.admit(unit) is (unit.key not in self.units)
        self.units.setdefault(unit.key, _Modelled(unit))

    async def claim(self, consumer: str, count: int) -> None:
        open_units = [u for u in self.units.values() if u.completed is None and u.claimable]
        expected = [u for u in open_units if u.delivery] + [u for u in open_units if not u.delivery]
        leases = await self.lab.queue.claim(consumer, count, 0.0)
        assert [lease.unit for lease in leases] == [u.unit for u in expected[:count]]
        for modelled, lease in zip(expected, leases, strict=False):
            modelled.delivery += 1
            assert lease.delivery == modelled.delivery
            modelled.holder, modelled.released, modelled.claimable = lease, None, False
        self.leases += leases

    async def expire(self) -> None:
        await self.lab.pass_time(LEASE_S + 1)
        for modelled in self.units.values():
            modelled.claimable = True

    def _of(self, lease: Lease) -> _Modelled | None:
        modelled = self.units.get(lease.unit.key)
        return modelled if modelled is not None and modelled.holder == lease else None

    async def renew(self, lease: Lease) -> None:
        modelled = self._of(lease)
        assert await self.lab.queue.renew([lease]) == ([] if modelled else [lease])
        if modelled:
            modelled.claimable = False

    async def release(self, lease: Lease) -> None:
        modelled, known = self._of(lease), self.units.get(lease.unit.key)
        again = known is not None and known.released == lease
        assert await self.lab.queue.release(lease) is (modelled is not None or again)
        if modelled:
            modelled.holder, modelled.released, modelled.claimable = None, lease, True

    async def complete(self, lease: Lease) -> None:
        modelled, known = self._of(lease), self.units.get(lease.unit.key)
        answer = await self.lab.queue.complete(lease, proposal_of(lease.unit, lease.token))
        if modelled:
            assert answer is Completed.STORED
            assert modelled.completed is None
            modelled.holder, modelled.completed = None, lease
            self.proposals.setdefault(lease.unit.position, lease.token)
        elif known is not None and known.completed == lease:
            assert answer is Completed.ALREADY_SAME
        else:
            assert answer is Completed.LOST

    async def finish(self) -> None:
        """Complete what is left; nothing is lost and nothing counts twice."""
        await self.expire()
        while any(u.completed is None for u in self.units.values()):
            before = len(self.leases)
            await self.claim("last worker", 3)
            assert len(self.leases) > before, "an admitted unit was lost"
            for lease in self.leases[before:]:
                await self.complete(lease)
        assert await self.lab.queue.outstanding() == set()
        assert await self.lab.queue.claim("last worker", 10, 0.0) == []
        for position in range(8):
            stored = await self.lab.queue.proposal("run", position)
            assert (stored.attempt if stored else None) == self.proposals.get(position)


async def _walk(kind: Kind, redis_url: str, ops: list[Op]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_lab(kind, redis_url, Path(folder)) as lab:
            walk = _Walk(lab)
            for op, arg in ops:
                await walk.step(op, arg)
            await walk.finish()


@given(ops=OPS)
@settings(max_examples=150, deadline=None)
def test_no_history_completes_a_unit_twice_or_loses_one_in_process(redis_url: str, ops: list[Op]) -> None:
    """Every answer of every interleaving of workers, expiry, release and reset is the contract's."""
    asyncio.run(_walk("local", redis_url, ops))


@given(ops=OPS)
@settings(max_examples=100, deadline=None)
def test_no_history_completes_a_unit_twice_or_loses_one_in_redis(redis_url: str, ops: list[Op]) -> None:
    """The same on a real server."""
    asyncio.run(_walk("redis", redis_url, ops))
