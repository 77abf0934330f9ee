"""The server of queue and journal dies, forgets what it had acknowledged, or does work whose answer is lost."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from importlib.resources import files
from pathlib import Path

import pytest
from redis import Redis

from chime_dist.adapters.redis.server import EmbeddedRedis
from tests.adapters.lossy_proxy import LossyProxy
from tests.chaos.nursery import Child, Nursery
from tests.chaos.patience import eventually
from tests.chaos.sweeps import Sweep, Undisturbed

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ONCE = ("EVALSHA reset", "LLEN", "EVALSHA take_fence")
"""Kinds of commands that a launch sends when it starts."""
ALL_THE_TIME = (
    *(f"EVALSHA {name}" for name in ("admit", "claim", "complete", "changes", "append")),
    *("XREADGROUP", "XREAD\r", "HGET", "EVALSHA forget", "LRANGE"),
)
"""Kinds it sends in between; ``renew``, ``release``, ``submit`` and ``outstanding`` are rare, and tested alone."""


async def ended(child: Child) -> int:
    """Its exit code, while this process serves others."""
    return await asyncio.to_thread(child.end)


async def kill(server: EmbeddedRedis) -> None:
    """SIGKILL to the server; returns when it is gone."""
    os.kill(server.pid, signal.SIGKILL)
    await server.stop()


async def until_committed(sweep: Sweep, count: int) -> None:
    """Wait for journal.jsonl to hold so many positions."""

    def committed() -> int:
        return sum(path.read_bytes().count(b"\n") for path in sweep.launch.rglob("journal.jsonl"))

    await eventually(lambda: sweep.launched and committed() >= count)


@pytest.mark.parametrize("positions", [1, 12])
async def test_a_launch_outlives_a_kill_of_its_server_that_comes_back(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, positions: int
) -> None:
    """D10, R1: kill -9 of redis-server in mid-run, one second without it, the same data again."""
    server = await EmbeddedRedis.start(tmp_path / "redis")
    sweep = Sweep.prepare(nursery, tmp_path / "sweep", redis=server.url, latency_s=0.02)
    child = sweep.start()
    await until_committed(sweep, positions)
    await kill(server)
    await asyncio.sleep(1.0)
    assert child.code() is None, child.said
    server = await EmbeddedRedis.start(tmp_path / "redis")
    try:
        assert await ended(child) == 0, child.said
    finally:
        await server.stop()
    sweep.assert_as_if_nothing_had_happened(calm)
    assert sweep.repeated(calm) == 0


async def test_a_launch_whose_server_stays_away_stops_with_a_reason_and_resumes(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path
) -> None:
    """D10, R1: exit 1 with the fix; another server, empty, is filled from the run directory."""
    server = await EmbeddedRedis.start(tmp_path / "redis")
    sweep = Sweep.prepare(nursery, tmp_path / "sweep", redis=server.url, latency_s=0.02)
    child = sweep.start({"CHIME_DRILL_PATIENCE_S": "0.5"})
    await until_committed(sweep, 12)
    await kill(server)
    assert await ended(child) == 1
    assert "then resume the launch" in child.said
    assert '"state":"incomplete"' in (sweep.launch / "status.json").read_text().replace(" ", "")
    for file in sorted((tmp_path / "redis").rglob("*.aof*")):
        file.unlink()
    server = await EmbeddedRedis.start(tmp_path / "redis")
    child = sweep.resume()
    try:
        assert await ended(child) == 0, child.said
    finally:
        await server.stop()
    sweep.assert_as_if_nothing_had_happened(calm)


def cut(folder: Path, where: bytes, share: float) -> int:
    """Cut the append-only file before the transaction that holds ``where`` at ``share`` of its occurrences (1 is
    the last); returns the bytes that are lost."""
    [file] = [path for path in folder.rglob("*.aof") if "base" not in path.name]
    data = file.read_bytes()
    places = [i for i in range(len(data)) if data.startswith(where, i)]
    assert places, f"no {where!r} in {file}"
    place = places[min(len(places) - 1, int(share * len(places)))]
    start = data.rindex(b"*1\r\n$5\r\nMULTI\r\n", 0, place)
    os.truncate(file, start)
    return len(data) - start


@pytest.mark.parametrize(
    ("command", "share"), [(b"XACK", 1.0), (b"XACK", 0.5), (b"RPUSH", 1.0), (b"RPUSH", 0.2), (b"XADD", 0.0)]
)
@pytest.mark.parametrize("point", ["worker.completed:9", "driver.followed:14"])
async def test_what_a_server_forgot_is_made_good_from_the_run_directory(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, point: str, command: bytes, share: float
) -> None:
    """D10: killed, its append-only file cut before an acknowledged command: no second row, no second update."""
    server = await EmbeddedRedis.start(tmp_path / "redis")
    sweep = Sweep.prepare(nursery, tmp_path / "sweep", redis=server.url)
    child = sweep.start({"CHIME_FAULT": point})
    assert await ended(child) == -signal.SIGKILL, child.said
    recorded = {str(row["attempt"]) for row in sweep.rows()}
    await kill(server)
    assert cut(tmp_path / "redis", command, share) > 0
    server = await EmbeddedRedis.start(tmp_path / "redis")
    child = sweep.resume()
    try:
        assert await ended(child) == 0, child.said
    finally:
        await server.stop()
    sweep.assert_as_if_nothing_had_happened(calm)
    assert recorded <= {str(row["attempt"]) for row in sweep.rows()}


@pytest.mark.parametrize(
    ("point", "command"),
    [("worker.completed:7", b"XACK"), ("driver.admitted:7", b"XADD"), ("driver.admitted:12", b"SADD")],
)
async def test_a_live_launch_notices_what_its_server_forgot(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, point: str, command: bytes
) -> None:
    """D10: completions, admissions or commits are gone while the launch stands still: it makes them good, or stops
    and says why; it never waits for ever for what nobody knows any more."""
    server = await EmbeddedRedis.start(tmp_path / "redis")
    sweep = Sweep.prepare(nursery, tmp_path / "sweep", redis=server.url)
    child = sweep.start({"CHIME_FAULT_STOP": point, "CHIME_DRILL_RECHECK_S": "0.5"})
    await eventually(lambda: child.stopped)
    await kill(server)
    cut(tmp_path / "redis", command, 1.0)
    server = await EmbeddedRedis.start(tmp_path / "redis")
    child.signal(signal.SIGCONT)
    try:
        if await ended(child) != 0:
            assert "already committed with other content" in child.said
            child = sweep.resume()
            assert await ended(child) == 0, child.said
    finally:
        await server.stop()
    sweep.assert_as_if_nothing_had_happened(calm)


async def test_a_launch_does_not_notice_lost_replies_to_any_kind_of_command(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, redis_server: EmbeddedRedis
) -> None:
    """D4: the server did the work, the connection broke before it could say so; every kind, early and later."""
    proxy = LossyProxy(redis_server.url, tmp_path / "p.sock")
    sweep = Sweep.prepare(nursery, tmp_path / "sweep", redis=proxy.url, latency_s=0.02)
    async with proxy.running():
        child = sweep.start()
        for kind in (*ONCE, *ALL_THE_TIME):
            proxy.lose(_bytes_of(kind))
        await eventually(lambda: proxy.lost == len(ONCE) + len(ALL_THE_TIME))
        for kind in ALL_THE_TIME:
            proxy.lose(_bytes_of(kind))
        assert await ended(child) == 0, child.said
    (tmp_path / "p.sock").unlink(missing_ok=True)
    assert proxy.lost == len(ONCE) + 2 * len(ALL_THE_TIME)
    sweep.assert_as_if_nothing_had_happened(calm)
    assert sweep.repeated(calm) == 0


def _bytes_of(kind: str) -> bytes:
    command, _, script = kind.partition(" ")
    if not script:
        return command.encode()
    source = files("chime_dist.adapters.redis").joinpath("lua", f"{script}.lua").read_bytes()
    return hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()


async def test_a_server_that_lost_everything_stops_the_launch_loudly(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, redis_server: EmbeddedRedis
) -> None:
    """D7: FLUSHALL in mid-run: no endless loop, exit 1 with the fix; resume goes on from the run directory."""
    sweep = Sweep.prepare(nursery, tmp_path / "sweep", redis=redis_server.url, latency_s=0.02)
    child = sweep.start()
    await until_committed(sweep, 8)
    client = Redis(unix_socket_path=str(redis_server.socket))
    client.flushall()
    client.close()
    assert await ended(child) == 1
    assert "resume" in child.said
    child = sweep.resume()
    assert await ended(child) == 0, child.said
    sweep.assert_as_if_nothing_had_happened(calm)
