"""Who holds what, read from the queue of a launch without touching it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.pending import pending_units
from chime_dist.adapters.redis.queue import RedisQueue
from chime_dist.adapters.redis.server import EmbeddedRedis, socket_of
from chime_dist.core.episode import Unit
from chime_dist.errors import ServiceError


def _unit(position: int) -> Unit:
    return Unit(run_id="r", phase="train", epoch=0, position=position, task="t", read_version=0)


async def test_every_delivered_unit_is_told_with_its_holder(tmp_path: Path) -> None:
    server = await EmbeddedRedis.start(tmp_path)
    connection = RedisConnection(f"unix://{socket_of(tmp_path)}", patience_s=2.0)
    try:
        keys = RedisKeys("launch")
        with pytest.raises(ServiceError, match="keys are gone, or were never made"):
            await pending_units(connection, keys)
        queue = RedisQueue(connection, keys, 30.0, DriverTurn())
        await queue.reset()
        assert await pending_units(connection, keys) == []
        for position in range(3):
            await queue.admit(_unit(position))
        first, second = await queue.claim("a", 2, 1.0)
        await queue.release(second)
        found = {unit.unit: unit for unit in await pending_units(connection, keys)}
        assert {key: (unit.consumer, unit.delivery) for key, unit in found.items()} == {
            first.unit.key: ("a", 1),
            second.unit.key: (None, 1),
        }
        held = found[first.unit.key]
        assert 0 <= held.silent_s < 30
        assert abs(held.admitted_at - datetime.now(UTC)) < timedelta(minutes=1)
    finally:
        await connection.close()
        await server.stop()
