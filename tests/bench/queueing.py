"""Jobs per second through the Redis queue, beside a plain loop of XREADGROUP and XACK on the same server."""

from __future__ import annotations

import asyncio
from typing import Literal, NamedTuple, cast

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.queue import RedisQueue
from chime_dist.core.episode import Proposal, Unit
from tests.bench.banks import proposals
from tests.bench.measurement import Mark, Measurement, alone, scratch
from tests.bench.rig import Fsync, redis_connection

_CONSUMER = "consumer"
_STREAM, _GROUP, _HASH = "plain:stream", "plain:group", "plain:proposals"


class _Case(NamedTuple):
    phase: Literal["train", "eval"]
    fsync: Fsync
    at_once: int
    """Units of one claim; they are completed side by side, as a worker does."""
    jobs: int


_FULL = (
    _Case("eval", "always", 16, 1500),
    _Case("eval", "everysec", 16, 1500),
    _Case("eval", "always", 1, 500),
    _Case("eval", "everysec", 1, 500),
    _Case("train", "always", 16, 500),
    _Case("train", "everysec", 16, 500),
)
_QUICK = (_Case("eval", "always", 4, 20), _Case("train", "everysec", 2, 10))
_AIM = 0.6
_ROUNDS = 3


async def measure(quick: bool) -> list[Measurement]:
    """Claim and completion of units that wait in the stream; a train unit hands in its proposal (25 KB)."""
    return alone(_measure_all, _QUICK if quick else _FULL)


async def _measure_all(cases: tuple[_Case, ...]) -> list[Measurement]:
    return [await _measure(case) for case in cases]


async def _measure(case: _Case) -> Measurement:
    run = "queue"
    units = [
        Unit(
            run_id=run,
            phase=case.phase,
            epoch=0,
            position=position,
            task=f"berth_booking-{position}",
            read_version=max(0, position - 15),
        )
        for position in range(case.jobs)
    ]
    handed_in: list[Proposal | None] = [None] * case.jobs
    if case.phase == "train":
        handed_in = list(proposals(run, 0, case.jobs))
    ours, plain = list[float](), list[float]()
    with scratch() as folder:
        async with redis_connection(folder, case.fsync) as connection:
            # In turn, and the best of each: another program that is busy for a second decides nothing.
            for _ in range(_ROUNDS):
                ours.append((await _ours(connection, units, handed_in, case.at_once)).wall_s)
                plain.append((await _plain(connection, units, handed_in, case.at_once)).wall_s)
                await connection.commands.flushall()
    return Measurement(
        bench="queue",
        case=f"{case.phase}, appendfsync {case.fsync}, {case.at_once} at once",
        metric="claimed and completed",
        unit="1/s",
        value=case.jobs / min(ours),
        floor=case.jobs / min(plain),
        floor_of="XREADGROUP, and XACK (train: HSET and XACK) per job",
        aim=_AIM,
        aim_of="ratio",
        better="higher",
    )


async def _ours(
    connection: RedisConnection, units: list[Unit], handed_in: list[Proposal | None], at_once: int
) -> Mark:
    queue = RedisQueue(connection, RedisKeys("bench"), 60.0, DriverTurn())
    await queue.reset()
    for unit in units:
        await queue.admit(unit)
    began = Mark.now()
    done = 0
    while done < len(units):
        leases = await queue.claim(_CONSUMER, at_once, 1.0)
        await asyncio.gather(*(queue.complete(lease, handed_in[lease.unit.position]) for lease in leases))
        done += len(leases)
    return Mark.now().since(began)


async def _plain(
    connection: RedisConnection, units: list[Unit], handed_in: list[Proposal | None], at_once: int
) -> Mark:
    redis = connection.commands
    await redis.xgroup_create(_STREAM, _GROUP, id="0", mkstream=True)
    for unit in units:
        await redis.xadd(_STREAM, {"unit": unit.model_dump_json()})

    async def finish(entry: str, unit: Unit) -> None:
        proposal = handed_in[unit.position]
        if proposal is None:
            await redis.xack(_STREAM, _GROUP, entry)
            return
        async with redis.pipeline(transaction=True) as pipeline:
            pipeline.hset(_HASH, str(unit.position), proposal.model_dump_json())
            pipeline.xack(_STREAM, _GROUP, entry)
            await pipeline.execute()

    began = Mark.now()
    done = 0
    while done < len(units):
        reply = await redis.xreadgroup(_GROUP, _CONSUMER, {_STREAM: ">"}, count=at_once)
        [[_, entries]] = cast("list[tuple[str, list[tuple[str, dict[str, str]]]]]", reply)
        found = [(entry, Unit.model_validate_json(fields["unit"])) for entry, fields in entries]
        await asyncio.gather(*(finish(entry, unit) for entry, unit in found))
        done += len(found)
    return Mark.now().since(began)
