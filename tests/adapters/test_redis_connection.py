"""A Redis server that does not answer is waited for, and people are told so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.errors import ServiceError


async def test_who_waits_for_a_server_is_told_once_for_all_that_wait(tmp_path: Path) -> None:
    """D4: half a minute of silence would read as a process that hangs."""
    said: list[str] = []
    place = tmp_path / "nobody.sock"
    connection = RedisConnection(f"unix://{place}", 0.3, tell=said.append)
    with capture_logs() as logs:
        asked = (connection.run(f"asking {n}", connection.commands.ping) for n in range(3))
        failed = await asyncio.gather(*asked, return_exceptions=True)
    await connection.close()
    assert [type(error) for error in failed] == [ServiceError] * 3
    [told] = said
    assert told.startswith(f"Redis at {place}, asking ")
    assert told.endswith("It is tried again for up to 0.3 s")
    [waited] = [line for line in logs if line["event"] == "redis.waited_for"]
    assert (waited["address"], waited["patience_s"], waited["log_level"]) == (str(place), 0.3, "warning")


async def test_a_second_outage_is_told_again(tmp_path: Path) -> None:
    said: list[str] = []
    connection = RedisConnection(f"unix://{tmp_path / 'nobody.sock'}", 0.1, tell=said.append)
    for doing in ("first", "second"):
        with pytest.raises(ServiceError, match=doing):
            await connection.run(doing, connection.commands.ping)
    await connection.close()
    assert len(said) == 2
