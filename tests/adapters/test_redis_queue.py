"""What the Redis queue does where Redis, the network or a worker fails (field cases D)."""

from __future__ import annotations

import asyncio
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.keys import CHANGES_KEPT, RedisKeys
from chime_dist.adapters.redis.queue import RedisQueue
from chime_dist.adapters.redis.scripts import QueueScripts
from chime_dist.adapters.redis.server import EmbeddedRedis
from chime_dist.errors import ConfigError, ServiceError, TurnOverError
from chime_dist.ports import Completed, Lease
from tests.adapters.lossy_proxy import LossyProxy
from tests.contract.labs import LEASE_S, RedisLab, open_redis_lab, proposal_of, redis_server, train_unit


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture
async def lab(redis_url: str) -> AsyncIterator[RedisLab]:
    async with open_redis_lab(redis_url) as opened:
        yield opened


@pytest.fixture
async def proxy(redis_url: str) -> AsyncIterator[LossyProxy]:
    with tempfile.TemporaryDirectory(prefix="chime-") as folder:
        async with LossyProxy(redis_url, Path(folder, "proxy.sock")).running() as running:
            yield running


@pytest.fixture
async def lossy(lab: RedisLab, proxy: LossyProxy) -> AsyncIterator[RedisLab]:
    """A second process's view of the lab, through the proxy; its scripts are loaded already."""
    through = lab.joined(proxy.url)
    await through.queue.admit(train_unit(99))
    (lease,) = await through.queue.claim("a", 1, 0.0)
    await through.queue.release(lease)
    (lease,) = await through.queue.claim("a", 1, 0.0)
    await through.queue.renew([lease])
    await through.queue.complete(lease, None)
    await through.queue.submit(proposal_of(train_unit(98)))
    yield through
    await through.queue.close()


# --- D4: replies that are lost ---------------------------------------------------------------------------


async def test_an_admission_whose_reply_was_lost_adds_one_entry(
    lab: RedisLab, lossy: RedisLab, proxy: LossyProxy
) -> None:
    """D4: a plain XADD that is re-sent gives two entries."""
    proxy.lose(b"EVALSHA")
    assert await lossy.queue.admit(train_unit())
    assert proxy.lost == 1
    assert await lab.connection.commands.xlen(lab.keys.ready) == 1
    assert not await lab.queue.admit(train_unit())


async def test_a_claim_whose_reply_was_lost_hands_the_unit_out_all_the_same(
    lab: RedisLab, lossy: RedisLab, proxy: LossyProxy
) -> None:
    """D4: what the lost reply delivered sits in the consumer's own pending list; the re-sent claim sweeps it."""
    await lab.queue.admit(train_unit())
    proxy.lose(b"EVALSHA")
    (lease,) = await lossy.queue.claim("a", 5, 0.0)
    assert (proxy.lost, lease.unit) == (1, train_unit())
    assert await lossy.queue.claim("a", 5, 0.0) == []
    assert await lossy.queue.complete(lease, None) is Completed.STORED


async def test_a_unit_delivered_to_a_waiting_claim_whose_reply_was_lost_is_swept_while_running(
    lab: RedisLab, lossy: RedisLab, proxy: LossyProxy
) -> None:
    """D4: XREADGROUP is never re-sent; the claim that goes on looks into its own pending list."""
    proxy.lose(b"XREADGROUP")
    waiting = asyncio.create_task(lossy.queue.claim("a", 5, 30.0))
    await asyncio.sleep(0.05)
    await lab.queue.admit(train_unit())
    (lease,) = await asyncio.wait_for(waiting, 10)
    assert (proxy.lost, lease.unit, lease.delivery) == (1, train_unit(), 2)
    assert await lab.queue.complete(lease, None) is Completed.STORED


async def test_a_cancelled_claim_leaves_nothing_behind_that_the_next_one_does_not_find(
    lab: RedisLab, lossy: RedisLab, proxy: LossyProxy
) -> None:
    """D4: cancellation between the server's reply and ours is a lost reply too."""
    await lab.queue.admit(train_unit())
    proxy.withhold(b"EVALSHA")
    claim = asyncio.create_task(lossy.queue.claim("a", 5, 0.0))
    await proxy.withheld.wait()
    claim.cancel()
    with suppress(asyncio.CancelledError):
        await claim
    assert [lease.unit for lease in await lossy.queue.claim("a", 5, 0.0)] == [train_unit()]


async def test_a_completion_whose_reply_was_lost_is_stored_once(
    lab: RedisLab, lossy: RedisLab, proxy: LossyProxy
) -> None:
    """D4: a plain XACK answers 0 the second time; here the second answer names the same completion."""
    await lab.queue.admit(train_unit())
    (lease,) = await lossy.queue.claim("a", 1, 0.0)
    cursor, _ = await lab.queue.changes("", 0.0)
    proxy.lose(b"EVALSHA")
    assert await lossy.queue.complete(lease, proposal_of(train_unit())) is Completed.ALREADY_SAME
    assert proxy.lost == 1
    assert await lab.queue.proposal("run", 0) == proposal_of(train_unit())
    assert len((await lab.queue.changes(cursor, 0.0))[1]) == 1


async def test_release_renewal_submission_and_reset_survive_a_lost_reply(
    lab: RedisLab, lossy: RedisLab, proxy: LossyProxy
) -> None:
    """D4: each means the same when it is executed twice."""
    await lab.queue.admit(train_unit())
    (lease,) = await lossy.queue.claim("a", 1, 0.0)
    proxy.lose(b"EVALSHA")
    assert await lossy.queue.renew([lease]) == []
    proxy.lose(b"EVALSHA")
    assert await lossy.queue.release(lease)
    cursor, _ = await lab.queue.changes("", 0.0)
    proxy.lose(b"EVALSHA")
    await lossy.queue.submit(proposal_of(train_unit(1)))
    assert len((await lab.queue.changes(cursor, 0.0))[1]) == 1
    await lossy.queue.reset()
    proxy.lose(b"EVALSHA")
    await lossy.queue.reset()
    assert await lossy.queue.outstanding() == set()
    assert await lossy.queue.admit(train_unit())
    assert proxy.lost == 4


async def test_a_change_whose_reply_was_lost_is_read_again(
    lab: RedisLab, lossy: RedisLab, proxy: LossyProxy
) -> None:
    cursor, _ = await lossy.queue.changes("", 0.0)
    await lab.queue.submit(proposal_of(train_unit()))
    proxy.lose(b"EVALSHA")
    _, seen = await lossy.queue.changes(cursor, 0.0)
    assert (proxy.lost, len(seen)) == (1, 1)
    proxy.lose(b"XREAD")
    waiting = asyncio.create_task(lossy.queue.changes("", 30.0))
    await asyncio.sleep(0.05)
    await lab.queue.submit(proposal_of(train_unit(1)))
    assert len((await asyncio.wait_for(waiting, 10))[1]) == 1


# --- D1, D2, D9, D11: workers that die, stop or restart ----------------------------------------------------


async def claim_until(queue: RedisQueue, consumer: str) -> Lease:
    """Claim without waiting until something comes."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if leases := await queue.claim(consumer, 1, 0.0):
            return leases[0]
        await asyncio.sleep(0.01)
    raise AssertionError("nothing was handed out")


async def test_a_lease_runs_out_by_the_servers_clock(redis_url: str) -> None:
    """D1, D2, D9: without help from a test, in real time, through two connections."""
    async with open_redis_lab(redis_url, lease_s=0.05) as dead:
        alive = dead.joined(redis_url, 0.05)
        await dead.queue.admit(train_unit())
        stale = await claim_until(dead.queue, "dead")
        for delivery in (2, 3, 4):
            lease = await claim_until(alive.queue, "alive")
            assert lease.delivery == delivery
        assert await dead.queue.complete(stale, proposal_of(train_unit(), "stale")) is Completed.LOST
        assert await alive.queue.complete(lease, proposal_of(train_unit(), "alive")) is Completed.STORED
        await alive.queue.close()


async def test_a_waiting_claim_notices_a_lease_that_runs_out(redis_url: str) -> None:
    """D1: the waiting worker is blocked in the server, which never wakes it for an old entry."""
    async with open_redis_lab(redis_url, lease_s=0.1) as lab:
        await lab.queue.admit(train_unit())
        await lab.queue.claim("dead", 1, 0.0)
        (lease,) = await asyncio.wait_for(lab.queue.claim("alive", 1, 30.0), 10)
        assert lease.delivery == 2


async def test_a_restarted_worker_gets_its_own_pending_units_first_and_in_order(
    lab: RedisLab, redis_url: str
) -> None:
    """D11: not the new entry, and not a dead colleague's; the tokens of its earlier life are void."""
    for position in range(4):
        await lab.queue.admit(train_unit(position))
    await lab.queue.claim("colleague", 1, 0.0)
    before = await lab.queue.claim("a", 2, 0.0)
    await lab.pass_time(LEASE_S + 1)
    restarted = lab.joined(redis_url)
    after = await restarted.queue.claim("a", 4, 0.0)
    assert [(lease.unit.position, lease.delivery) for lease in after] == [(1, 2), (2, 2), (0, 2), (3, 1)]
    assert await lab.queue.renew(before) == before
    assert await lab.queue.complete(before[0], None) is Completed.LOST
    assert await restarted.queue.complete(after[0], None) is Completed.STORED
    await restarted.queue.close()


async def test_no_consumer_is_ever_deleted(lab: RedisLab) -> None:
    """D1: deleting a consumer with pending entries loses them."""
    for position in range(3):
        await lab.queue.admit(train_unit(position))
        (lease,) = await lab.queue.claim(f"worker {position}", 1, 0.0)
        if position:
            await lab.queue.complete(lease, None)
    consumers = await lab.connection.commands.xinfo_consumers(lab.keys.ready, lab.turn.name)
    assert {row["name"]: row["pending"] for row in consumers} == {"worker 0": 1, "worker 1": 0, "worker 2": 0}


async def test_workers_that_crash_stall_and_race_finish_every_unit_exactly_once(redis_url: str) -> None:
    """D1, D2: real time, several connections, seeded misbehaviour; every unit is stored by one completion."""
    dice = random.Random(7)
    stored: Counter[str] = Counter()
    winners: dict[int, str] = {}

    async def work(name: str, lab: RedisLab) -> None:
        while await lab.queue.outstanding():
            for lease in await lab.queue.claim(name, 3, 0.02):
                fate = dice.random()
                if fate < 0.2:
                    continue
                if fate < 0.4:
                    await asyncio.sleep(0.08)
                elif fate < 0.6:
                    await lab.queue.renew([lease])
                elif fate < 0.7:
                    await lab.queue.release(lease)
                    continue
                answer = await lab.queue.complete(lease, proposal_of(lease.unit, lease.token))
                if answer is Completed.STORED:
                    stored[lease.unit.key] += 1
                    winners[lease.unit.position] = lease.token

    async with open_redis_lab(redis_url, lease_s=0.04) as lab:
        for position in range(40):
            await lab.queue.admit(train_unit(position))
        labs = [lab.joined(redis_url, 0.04) for _ in range(4)]
        await asyncio.wait_for(asyncio.gather(*(work(f"w{i}", each) for i, each in enumerate(labs))), 60)
        assert stored == Counter({train_unit(position).key: 1 for position in range(40)})
        for position in range(40):
            proposal = await lab.queue.proposal("run", position)
            assert proposal is not None
            assert proposal.attempt == winners[position]
        for each in labs:
            await each.queue.close()


# --- D6, D7: memory ----------------------------------------------------------------------------------------


async def test_finished_units_leave_the_stream_and_unread_ones_stay(lab: RedisLab) -> None:
    """D6: entries go with their completion and never by length."""
    for position in range(60):
        await lab.queue.admit(train_unit(position))
    for lease in await lab.queue.claim("a", 50, 0.0):
        await lab.queue.complete(lease, None)
    redis = lab.connection.commands
    assert await redis.xlen(lab.keys.ready) == 10
    assert (await redis.xpending(lab.keys.ready, lab.turn.name))["pending"] == 0
    assert len(await lab.queue.claim("a", 50, 0.0)) == 10


async def test_the_change_feed_stays_bounded(lab: RedisLab) -> None:
    """D6: it is a hint and may be trimmed; a reader that fell behind goes on from what is left."""
    cursor, _ = await lab.queue.changes("", 0.0)
    pipe = lab.connection.commands.pipeline(transaction=False)
    for _ in range(CHANGES_KEPT + 500):
        pipe.xadd(lab.keys.changes, {"kind": "completed", "run": "run", "unit": "", "head": 0})
    await pipe.execute()
    await lab.queue.submit(proposal_of(train_unit()))
    assert await lab.connection.commands.xlen(lab.keys.changes) < CHANGES_KEPT + 200
    cursor, seen = await lab.queue.changes(cursor, 0.0)
    assert len(seen) == 1000
    assert await lab.queue.changes(cursor, 0.0)


async def test_keys_that_vanish_stop_every_caller(lab: RedisLab) -> None:
    """D7: FLUSHALL or eviction mid-run is a loud stop, never an endless loop and never 'nothing outstanding'."""
    await lab.queue.admit(train_unit())
    (lease,) = await lab.queue.claim("a", 1, 0.0)
    cursor, _ = await lab.queue.changes("", 0.0)
    blocked = [
        asyncio.create_task(lab.queue.claim("b", 1, 60.0)),
        asyncio.create_task(lab.queue.changes(cursor, 60.0)),
    ]
    await asyncio.sleep(0.05)
    await lab.clean()
    calls: list[Callable[[], Awaitable[object]]] = [
        lab.queue.outstanding,
        lambda: lab.queue.admit(train_unit(1)),
        lambda: lab.queue.claim("a", 1, 0.0),
        lambda: lab.queue.renew([lease]),
        lambda: lab.queue.complete(lease, None),
        lambda: lab.queue.release(lease),
        lambda: lab.queue.changes(cursor, 0.0),
    ]
    for call in calls:
        with pytest.raises(ServiceError, match=r"keys are gone.*resume the launch"):
            await call()
    for task in blocked:
        with pytest.raises(ServiceError, match="keys are gone"):
            await asyncio.wait_for(task, 15)


async def test_a_pending_entry_whose_work_was_deleted_by_hand_is_an_error(redis_url: str) -> None:
    """D7: a unit whose payload is gone can never complete; waiting for it would never end."""
    async with open_redis_lab(redis_url, lease_s=0.01) as lab:
        for position in range(2):
            await lab.queue.admit(train_unit(position))
        lease, _ = await lab.queue.claim("a", 2, 0.0)
        await lab.connection.commands.xdel(lab.keys.ready, lease.token.split(":")[1])
        await asyncio.sleep(0.05)
        with pytest.raises(ServiceError, match="keys are gone"):
            await lab.queue.claim("b", 5, 0.0)


async def test_at_the_memory_limit_the_driver_waits_and_workers_hand_in(tmp_path: Path) -> None:
    """D7: noeviction refuses XADD; what was claimed can be completed, and admission goes on when there is room."""
    server = await EmbeddedRedis.start(tmp_path)
    lab = RedisLab(server.url)
    impatient = RedisQueue(RedisConnection(server.url, patience_s=0.2), lab.keys, LEASE_S, lab.turn)
    redis = lab.connection.commands
    await lab.queue.reset()
    for position in range(3):
        await lab.queue.admit(train_unit(position))
    first, second, third = await lab.queue.claim("a", 3, 0.0)
    await redis.config_set("maxmemory", 1)
    with pytest.raises(ServiceError, match=r"admitting run:train:3.*maxmemory"):
        await impatient.admit(train_unit(3))
    waiting = asyncio.create_task(lab.queue.admit(train_unit(3)))
    assert await lab.queue.complete(first, proposal_of(train_unit(0))) is Completed.STORED
    assert await lab.queue.proposal("run", 0) == proposal_of(train_unit(0))
    assert await lab.queue.renew([second]) == []
    assert await lab.queue.release(third)
    assert [lease.unit for lease in await lab.queue.claim("b", 5, 0.0)] == [train_unit(2)]
    assert not waiting.done()
    await redis.config_set("maxmemory", 0)
    assert await asyncio.wait_for(waiting, 10)
    await impatient.close()
    await lab.queue.close()
    await server.stop()


# --- connections and keys ------------------------------------------------------------------------------------


async def test_a_thousand_calls_in_flight_share_the_pool(lab: RedisLab) -> None:
    """The client's default pool fails at 100."""
    await asyncio.gather(*(lab.queue.admit(train_unit(position)) for position in range(1000)))
    assert len(await lab.queue.outstanding()) == 1000


async def test_many_consumers_can_wait_at_once(lab: RedisLab) -> None:
    waiting = [asyncio.create_task(lab.queue.claim(f"w{i}", 1, 30.0)) for i in range(150)]
    await asyncio.sleep(0.2)
    for position in range(150):
        await lab.queue.admit(train_unit(position))
    claimed = await asyncio.wait_for(asyncio.gather(*waiting), 20)
    assert sorted(lease.unit.position for leases in claimed for lease in leases) == list(range(150))


async def test_claims_of_one_consumer_do_not_sweep_each_others_units(lab: RedisLab) -> None:
    for position in range(20):
        await lab.queue.admit(train_unit(position))
    claimed = await asyncio.gather(*(lab.queue.claim("a", 1, 0.0) for _ in range(20)))
    leases = [lease for each in claimed for lease in each]
    assert sorted(lease.unit.position for lease in leases) == list(range(20))
    assert {lease.delivery for lease in leases} == {1}


async def test_a_waiting_claim_lives_through_a_reset(lab: RedisLab) -> None:
    """Redis 7 tells a blocked reader that its stream was replaced, 6.2 does not."""
    waiting = asyncio.create_task(lab.queue.claim("a", 1, 30.0))
    await asyncio.sleep(0.05)
    await lab.queue.reset()
    await lab.queue.admit(train_unit())
    (lease,) = await asyncio.wait_for(waiting, 10)
    assert await lab.queue.complete(lease, None) is Completed.STORED


async def test_a_lease_of_an_older_turn_is_void_even_where_everything_else_matches(lab: RedisLab) -> None:
    """A server whose clock went back can give an entry id twice."""
    await lab.queue.admit(train_unit())
    (lease,) = await lab.queue.claim("a", 1, 0.0)
    older = lease.model_copy(update={"token": lease.token.replace(lab.turn.name, "an older turn")})
    assert await lab.queue.renew([older]) == [older]
    assert not await lab.queue.release(older)
    assert await lab.queue.complete(older, None) is Completed.LOST
    assert await lab.queue.complete(lease, None) is Completed.STORED


async def test_a_driver_that_was_replaced_and_its_workers_change_nothing(lab: RedisLab, redis_url: str) -> None:
    """D2: an admission that a stalled driver sends could come before its read version, and what its workers finish
    is written to a folder that its successor does not have."""
    for position in range(2):
        await lab.queue.admit(train_unit(position))
    worker = lab.joined(redis_url)
    held, other = await worker.queue.claim("a", 2, 0.0)
    successor = lab.joined(redis_url)
    await successor.queue.reset()
    await successor.queue.submit(proposal_of(train_unit(5)))
    assert await successor.queue.admit(train_unit())
    for late in (lab.queue, worker.queue):
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: late.claim("a", 5, 0.0),  # noqa: B023 - awaited here
            lambda: late.renew([held, other]),  # noqa: B023
            lambda: late.complete(held, proposal_of(held.unit, "late")),  # noqa: B023
            lambda: late.release(other),  # noqa: B023
            lambda: late.admit(train_unit(1)),  # noqa: B023
            lambda: late.submit(proposal_of(train_unit(1), "late")),  # noqa: B023
            lambda: late.forget("run", 5),  # noqa: B023
            late.outstanding,
            lambda: late.changes("", 0.0),  # noqa: B023
        ]
        for call in calls:
            with pytest.raises(TurnOverError, match=r"another driver has started a turn.*Leave the launch to it"):
                await call()
    assert await successor.queue.outstanding() == {train_unit().key}
    assert [await successor.queue.proposal("run", p) for p in (0, 1, 5)] == [
        None,
        None,
        proposal_of(train_unit(5)),
    ]
    (lease,) = await successor.queue.claim("a", 5, 0.0)
    assert (lease.unit, lease.delivery) == (train_unit(), 1)
    await worker.queue.close()
    await successor.queue.close()


async def test_a_worker_of_a_replaced_driver_that_waits_for_work_gets_none(lab: RedisLab, redis_url: str) -> None:
    """D9: its read is held by the server while the next driver resets; what it got would cost a delivery."""
    waiting = [asyncio.create_task(lab.queue.claim(f"w{i}", 1, 30.0)) for i in range(3)]
    await asyncio.sleep(0.05)
    successor = lab.joined(redis_url)
    await successor.queue.reset()
    await successor.queue.admit(train_unit())
    for task in waiting:
        with pytest.raises(TurnOverError):
            await asyncio.wait_for(task, 10)
    (lease,) = await successor.queue.claim("a", 1, 0.0)
    assert (lease.unit, lease.delivery) == (train_unit(), 1)
    await successor.queue.close()


async def test_a_server_that_lost_its_data_gives_no_turn_twice(lab: RedisLab, redis_url: str) -> None:
    """D7: what counts begins anew after FLUSHALL, and an old worker's number would be the new driver's."""
    worker = lab.joined(redis_url)
    await lab.clean()
    successor = lab.joined(redis_url)
    await successor.queue.reset()
    await successor.queue.admit(train_unit())
    with pytest.raises(TurnOverError):
        await worker.queue.claim("a", 1, 0.0)
    assert len(await successor.queue.claim("a", 1, 0.0)) == 1
    await worker.queue.close()
    await successor.queue.close()


async def test_a_reset_that_arrives_a_second_time_wipes_nothing(lab: RedisLab) -> None:
    """D4: the server was so slow that the re-sent command was done first, and units were admitted since."""
    await lab.queue.admit(train_unit())
    await QueueScripts(lab.connection.commands, lab.keys, lab.turn).reset(lab.turn.name)
    assert await lab.queue.outstanding() == {train_unit().key}
    assert await lab.queue.admit(train_unit(1))


async def test_every_key_of_a_launch_has_its_prefix_and_launches_do_not_meet(
    lab: RedisLab, redis_url: str
) -> None:
    async with open_redis_lab(redis_url) as other:
        await lab.queue.admit(train_unit())
        (lease,) = await lab.queue.claim("a", 1, 0.0)
        await lab.queue.complete(lease, proposal_of(train_unit()))
        await lab.queue.admit(train_unit(1))
        await lab.journal.append("run", await lab.journal.take_fence("run"), 0, "line")
        assert await other.queue.claim("a", 1, 0.0) == []
        assert await other.queue.proposal("run", 0) is None
        assert await other.journal.head("run") == 0
        redis = lab.connection.commands
        ours = {str(key) async for key in redis.scan_iter(match=lab.keys.pattern)}
        assert all(key.startswith(f"chime:{{{lab.keys.launch}}}:") for key in ours)
        assert len(ours) == 8


@pytest.mark.parametrize("launch", ["", "a}b", "a b", "a*", "a:b"])
def test_a_launch_id_that_breaks_the_hash_tag_is_refused(launch: str) -> None:
    with pytest.raises(ValueError, match="launch id"):
        RedisKeys(launch)


async def test_a_server_that_stays_away_is_named_without_its_password(tmp_path: Path) -> None:
    connection = RedisConnection("redis://user:canary-secret@127.0.0.1:1/0", patience_s=0.1)
    queue = RedisQueue(connection, RedisKeys("launch"), LEASE_S, DriverTurn())
    with pytest.raises(
        ServiceError, match=r"Redis at 127\.0\.0\.1:1, listing open units.*Check the server"
    ) as error:
        await queue.outstanding()
    assert "canary" not in str(error.value)
    await queue.close()
    await queue.close()


async def test_a_wait_that_can_never_succeed_is_loud(lab: RedisLab) -> None:
    with pytest.raises(ServiceError, match="waiting for nothing: XREAD block must be"):
        await lab.connection.wait(
            "waiting for nothing", lambda: lab.connection.blocking.xread({"a": "0"}, block=-1)
        )


def test_a_url_that_cannot_be_read_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match="redis://HOST") as error:
        RedisConnection("http://user:canary-secret@host")
    assert not re.search("canary", str(error.value))
