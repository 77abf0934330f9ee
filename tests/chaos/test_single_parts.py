"""One part of a launch dies, hangs or comes back too late; the launch goes on by itself to the same end."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest
from redis import Redis

from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.server import EmbeddedRedis
from tests.chaos.fleets import BANK, DRIVER, Fleet
from tests.chaos.nursery import FAILED, Nursery
from tests.chaos.parts import LEFT, LITTER, POISON
from tests.chaos.patience import eventually
from tests.chaos.sweeps import EPOCHS, EVAL, TRAIN, Sweep, Undisturbed
from tests.integration.processes import members

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

LEASE_S = 1.0
POISONED = "berth_booking-003"
"""The first task of the train stream."""
WORKER_POINTS = (
    "worker.claimed",
    "worker.attempting",
    "episode.scored",
    "worker.attempted",
    "worker.recorded",
    "worker.completed",
)
BANK_POINTS = ("bank.committing", "bank.appended", "bank.projected", "bank.forgot")


def prepared(nursery: Nursery, folder: Path, server: EmbeddedRedis, max_deliveries: int = 20) -> Fleet:
    """A fleet on the server; a loaded machine may lose a lease more than once."""
    sweep = Sweep.prepare(nursery, folder, redis=server.url, lease_s=LEASE_S, max_deliveries=max_deliveries)
    return Fleet(sweep)


def assert_nothing_is_left(sweep: Sweep, server: EmbeddedRedis) -> None:
    """No unit, no lease, no proposal."""
    client = Redis(unix_socket_path=str(server.socket), decode_responses=True)
    keys = RedisKeys(sweep.launch.name)
    try:
        [group] = client.xinfo_groups(keys.ready)
        assert (group["name"], group["pending"]) == (client.get(keys.turn), 0)
        assert client.xlen(keys.ready) == client.scard(keys.open) == 0
        assert not list(client.scan_iter(f"{keys.prefix}proposals:*"))
    finally:
        client.close()


def events(sweep: Sweep) -> list[str]:
    """Names of what was logged, in order."""
    return [json.loads(line)["event"] for line in (sweep.launch / "log.jsonl").read_text().split("\n")[:-1]]


@pytest.mark.parametrize("time_", [1, 5])
@pytest.mark.parametrize("point", WORKER_POINTS)
async def test_a_worker_killed_at_any_point_costs_a_lease_and_nothing_else(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, redis_server: EmbeddedRedis, point: str, time_: int
) -> None:
    """C8, D1: the units it held are delivered again; finished ones are recognised from the records."""
    fleet = prepared(nursery, tmp_path / "sweep", redis_server)
    # Alone at first: another worker might leave it too little to get as far as that.
    fleet.start_all(workers=1, worker_0={"CHIME_FAULT": f"{point}:{time_}"})
    await eventually(lambda: fleet.parts["0"].code() is not None, fleet.parts[DRIVER])
    fleet.start("1")
    assert await asyncio.to_thread(fleet.keep_up) == 0, fleet.parts[DRIVER].said
    assert fleet.deaths["0"] == 1
    fleet.sweep.assert_as_if_nothing_had_happened(calm)
    assert_nothing_is_left(fleet.sweep, redis_server)


@pytest.mark.parametrize("time_", [1, 5])
@pytest.mark.parametrize("point", BANK_POINTS)
async def test_an_owner_killed_at_any_point_applies_every_proposal_once(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, redis_server: EmbeddedRedis, point: str, time_: int
) -> None:
    """C1, C2, E2: the next owner takes a new fence and starts from the journal."""
    fleet = prepared(nursery, tmp_path / "sweep", redis_server)
    fleet.start_all(bank={"CHIME_FAULT": f"{point}:{time_}"})
    assert await asyncio.to_thread(fleet.keep_up) == 0, fleet.parts[DRIVER].said
    assert fleet.deaths[BANK] == 1
    fleet.sweep.assert_as_if_nothing_had_happened(calm)
    assert_nothing_is_left(fleet.sweep, redis_server)


@pytest.mark.parametrize("point", ["bank.committing", "bank.appended", "bank.projected"])
async def test_an_owner_that_wakes_up_after_it_was_replaced_can_change_nothing(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, redis_server: EmbeddedRedis, point: str
) -> None:
    """R7, D2: what a stopped or cut-off owner does after a newer one took its fence is refused."""
    fleet = prepared(nursery, tmp_path / "sweep", redis_server)
    fleet.start_all(bank={"CHIME_FAULT_STOP": f"{point}:3"})
    stale = fleet.parts[BANK]
    await eventually(lambda: stale.stopped)
    # The new owner stops as well, in the middle of the stream: there is work that the old one could do.
    current = fleet.start(BANK, {"CHIME_FAULT_STOP": "bank.committing:6"})
    await eventually(lambda: current.stopped)
    stale.signal(signal.SIGCONT)
    if point == "bank.committing":
        # It was about to append, and learns that it is no owner any more.
        assert await asyncio.to_thread(stale.end) == FAILED
        assert "FencedError" in stale.said
    current.signal(signal.SIGCONT)
    assert await asyncio.to_thread(fleet.keep_up) == 0, fleet.parts[DRIVER].said
    stale.signal(signal.SIGKILL)
    fleet.sweep.assert_as_if_nothing_had_happened(calm)
    assert_nothing_is_left(fleet.sweep, redis_server)


@pytest.mark.parametrize("point", ["worker.attempting", "worker.attempted", "worker.recorded"])
async def test_a_worker_that_wakes_up_after_its_lease_finishes_nothing(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, redis_server: EmbeddedRedis, point: str
) -> None:
    """D2: stopped beyond its lease, then continued: its late completions are refused and logged."""
    fleet = prepared(nursery, tmp_path / "sweep", redis_server)
    fleet.start_all(workers=1, worker_0={"CHIME_FAULT_STOP": f"{point}:3"})
    late = fleet.parts["0"]
    await eventually(lambda: late.stopped)
    # Beyond the lease, so that the other worker takes over before it takes anything new.
    await asyncio.sleep(2 * LEASE_S)
    taker = fleet.start("1", {"CHIME_FAULT_STOP": "worker.completed"})
    await eventually(lambda: taker.stopped)
    late.signal(signal.SIGCONT)
    await eventually(lambda: "lease.lost" in events(fleet.sweep))
    taker.signal(signal.SIGCONT)
    assert await asyncio.to_thread(fleet.keep_up) == 0, fleet.parts[DRIVER].said
    assert not fleet.deaths
    fleet.sweep.assert_as_if_nothing_had_happened(calm)
    assert_nothing_is_left(fleet.sweep, redis_server)


async def test_a_task_that_kills_its_worker_is_given_up_after_three_deliveries(
    nursery: Nursery, tmp_path: Path, redis_server: EmbeddedRedis
) -> None:
    """D9: three deliveries by the server's counter, the last one alone, then infra with a reason; every other
    task, its neighbours included, has its result."""
    fleet = prepared(nursery, tmp_path / "sweep", redis_server, max_deliveries=3)
    fleet.always = {str(worker): {POISON: POISONED} for worker in range(4)}
    fleet.start_all(workers=4)
    assert await asyncio.to_thread(fleet.keep_up) == 3, "incomplete, and said so"
    rows = fleet.sweep.rows()
    infra = [row for row in rows if row["outcome"] == "infra"]
    assert [row["unit"]["task"] for row in infra] == [POISONED] * EPOCHS
    assert [(row["end_reason"], row["delivery"]) for row in infra] == [("worker_lost", 4)] * EPOCHS
    assert fleet.deaths.total() == 3 * EPOCHS
    assert len(rows) == TRAIN + EVAL, "every other task has its one result"
    empty = [entry.task for entry in fleet.sweep.entries() if entry.empty_reason]
    assert empty == [POISONED] * EPOCHS
    assert_nothing_is_left(fleet.sweep, redis_server)


async def test_what_a_dead_worker_started_is_ended_by_the_one_that_takes_its_place(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, redis_server: EmbeddedRedis
) -> None:
    """C7: `bash -c 'sleep 311 & wait'` in a session of its own, then kill -9: gone while the launch goes on."""
    fleet = prepared(nursery, tmp_path / "sweep", redis_server)
    fleet.always = {str(worker): {LITTER: POISONED} for worker in range(2)}
    fleet.start_all()
    assert await asyncio.to_thread(fleet.keep_up) == 0, fleet.parts[DRIVER].said
    assert fleet.deaths.total() == 1
    assert members(int((fleet.sweep.folder / LEFT).read_text())) == []
    told = events(fleet.sweep)
    assert told.index("processes.swept") < told.index("run.finished")
    fleet.sweep.assert_as_if_nothing_had_happened(calm)


async def test_what_a_dead_launch_left_is_ended_by_its_resume(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, redis_server: EmbeddedRedis
) -> None:
    """C7: driver, owner and workers are gone by kill -9, and nobody took a place; the next driver tidies up."""
    fleet = prepared(nursery, tmp_path / "sweep", redis_server)
    fleet.start_all(worker_0={LITTER: POISONED}, worker_1={LITTER: POISONED})
    left = fleet.sweep.folder / LEFT
    await eventually(lambda: left.exists() and left.read_text() != "" and fleet.sweep.launched)
    fleet.end()
    leader = int(left.read_text())
    assert members(leader), "it outlived everybody"
    child = fleet.sweep.resume()
    assert await asyncio.to_thread(child.end) == 0, child.said
    assert members(leader) == []
    fleet.sweep.assert_as_if_nothing_had_happened(calm)
