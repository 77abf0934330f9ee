"""What a launch left is removed, what it found out stays, and nobody else's things are touched."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.process_identity import ProcessIdentity
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_token import RedisDriverToken
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.launch_keys import LaunchKeys
from chime_dist.adapters.redis.server import EmbeddedRedis, socket_of
from chime_dist.engine.driver import Ending
from chime_dist.errors import RunDirectoryError, ServiceError
from chime_dist.wiring import bookkeeping
from chime_dist.wiring.cleaning import Leftover, clean, leftovers
from chime_dist.wiring.following import spent_so_far
from chime_dist.wiring.launch import Launch
from chime_dist.wiring.results import launch_report, standings
from tests.adapters.test_launch_processes import LITERAL, Owner, gone
from tests.contract.labs import PASSWORD, launch_user, set_user
from tests.contract.qdrant_rest import RestQdrant
from tests.integration.processes import kill_tree, launch_below, start, wait_for_rows
from tests.spec.sweeps import journal_of, launched, resumed, written

SWEEP = """\
name: small
benchmarks: [{name: credit_world, families: 1, tasks_per_family: 12, steps: 1}]
methods: [chime]
backbones: [{name: m, scripted: {script: credit_world}}]
orderings: [0]
embedder: {kind: hashing, dim: 64}
protocol: {epochs: 1, window: 2}
cluster:
  slots: 2
  endpoints: {m: {kind: scripted, latency_s: [0.01, 0.02]}}
  SERVICES
"""


def small(services: str) -> str:
    """A sweep on these services, as YAML."""
    return SWEEP.replace("SERVICES", services)


@pytest.fixture(autouse=True)
def exact_books(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch is stopped in its middle by a limit, which is looked at all the time."""
    monkeypatch.setattr(bookkeeping, "LOOK_EVERY_S", 0.01)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedRedis]:
    """A Redis that others may use as well."""
    started = await EmbeddedRedis.start(tmp_path / "redis")
    yield started
    await started.stop()


@pytest.fixture
def owner() -> Iterator[list[Owner]]:
    """Filled by a test."""
    made: list[Owner] = []
    yield made
    for one in made:
        one.clean()


def kinds(found: list[Leftover]) -> list[str]:
    """What there is."""
    return [one.what for one in found]


async def test_a_killed_launch_is_cleaned_and_can_be_read_and_resumed_afterwards(
    tmp_path: Path, owner: list[Owner]
) -> None:
    """kill -9 with embedded services and a simulator's process: all of it goes, the journal and the rows stay."""
    services = "redis: embedded\n  qdrant: edge"
    written(tmp_path, small(services).replace("family: 12", "family: 400"))
    process = start(["sweep", "sweep.yaml"], tmp_path)
    await asyncio.to_thread(wait_for_rows, process, tmp_path / "runs", 4)
    launch = LaunchDirectory.open(launch_below(tmp_path / "runs"))
    for look in (leftovers, clean):
        with pytest.raises(RunDirectoryError, match=f"process {process.pid} on "):
            await look(launch, results=True)
    owner.append(await asyncio.to_thread(Owner, launch.id, LITERAL))
    await asyncio.to_thread(kill_tree, process)
    owner[0].kill()

    state = tmp_path / "state" / launch.id
    found = await leftovers(launch, results=False)
    assert [what for what in kinds(found) if what != "socket"] == ["processes", "state"]
    assert found[0].amount == 2
    before = standings(launch)
    await clean(launch, results=False)
    assert gone(owner[0])
    assert not state.exists()
    assert not socket_of(state / "redis").exists()
    assert await leftovers(launch, results=False) == []
    assert await clean(launch, results=False) == []

    assert standings(launch) == before
    assert not launch_report(launch).complete
    [run] = launch.manifest.runs
    kept = journal_of(launch, run)
    await resumed_a_little(launch)
    assert journal_of(launch, run)[: len(kept)] == kept
    assert standings(launch)[0].kept > before[0].kept


async def resumed_a_little(launch: LaunchDirectory) -> None:
    """Some more episodes."""
    limit = spent_so_far(launch).tokens + 2_000
    going_on = Launch.resume(launch.path, [f"cluster.limits.tokens={limit}"])
    assert await going_on.drive(lambda _: None) is Ending.PAUSED


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant")
async def test_on_servers_only_the_launchs_own_keys_and_points_go(tmp_path: Path, server: EmbeddedRedis) -> None:
    qdrant = RestQdrant()
    async with qdrant.listening() as url:
        services = f"redis: {server.url}\n  qdrant: {url}\n  limits: {{tokens: 2500}}"
        ours = await launched(tmp_path / "ours", small(services), Ending.PAUSED)
        theirs = await launched(tmp_path / "theirs", small(services), Ending.PAUSED)
        connection = RedisConnection(server.url)
        await connection.commands.set("foreign", "1")
        there = await connection.commands.keys(RedisKeys(theirs.id).pattern)
        assert there
        found = {one.what: one.amount for one in await leftovers(ours, results=False)}
        assert found["points"] > 0
        assert found["keys"] == len(await connection.commands.keys(RedisKeys(ours.id).pattern))
        removed = {one.what: one.amount for one in await clean(ours, results=False)}
        assert removed == found
        assert await connection.commands.keys(RedisKeys(ours.id).pattern) == []
        assert sorted(await connection.commands.keys(RedisKeys(theirs.id).pattern)) == sorted(there)
        assert await connection.commands.get("foreign") == "1"
        assert await leftovers(ours, results=False) == []

        [run] = ours.manifest.runs
        kept = journal_of(ours, run)
        assert 0 < len(kept) < 8
        await connection.close()
        last = Launch.resume(ours.path, ["cluster.limits.tokens=null"])
        assert await last.drive(lambda _: None) is Ending.COMPLETE
        assert journal_of(ours, run)[: len(kept)] == kept


async def test_the_documented_user_may_clean_up_after_its_launch(
    tmp_path: Path, server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rights of deploy/redis.conf and no others."""
    admin = RedisConnection(server.url)
    await set_user(admin, launch_user())
    monkeypatch.setenv("CHIME_REDIS_URL", f"unix://chime:{PASSWORD}@{admin.address}?db=0")
    launch = await launched(tmp_path, small("limits: {tokens: 1500}"), Ending.PAUSED, os.environ)
    there = await admin.commands.keys(RedisKeys(launch.id).pattern)
    [found] = await leftovers(launch, results=False)
    assert (found.what, found.amount) == ("keys", len(there))
    assert await clean(launch, results=False) == [found]
    assert await admin.commands.keys("*") == []
    await admin.close()


async def test_a_driver_elsewhere_is_known_by_its_token(tmp_path: Path, server: EmbeddedRedis) -> None:
    """The folder's lock does not reach a copy on another host; nothing of that driver's is removed."""
    launch = await launched(tmp_path, small(f"redis: {server.url}\n  limits: {{tokens: 1500}}"), Ending.PAUSED)
    connection = RedisConnection(server.url)
    elsewhere = ProcessIdentity(host="node-7", machine="another", pid=1234, started=1)
    token = RedisDriverToken(connection, RedisKeys(launch.id), 60.0, elsewhere)
    await token.take()
    keys = sorted(await connection.commands.keys(RedisKeys(launch.id).pattern))
    with pytest.raises(RunDirectoryError, match="process 1234 on node-7"):
        await leftovers(launch, results=False)
    keeping = asyncio.create_task(_renewed(connection, RedisKeys(launch.id)))
    with pytest.raises(RunDirectoryError, match="driven by process 1234 on node-7"):
        await clean(launch, results=True)
    keeping.cancel()
    assert sorted(await connection.commands.keys(RedisKeys(launch.id).pattern)) == keys
    assert launch.path.exists()
    await token.leave()
    assert "keys" in kinds(await clean(launch, results=False))
    await connection.close()


async def _renewed(connection: RedisConnection, keys: RedisKeys) -> None:
    """As a driver does, only faster."""
    while True:
        await connection.commands.pexpire(keys.driver, 60_000)
        await asyncio.sleep(0.05)


async def test_the_results_go_only_on_demand(tmp_path: Path) -> None:
    launch = await launched(tmp_path, small("redis: local"))
    assert await leftovers(launch, results=False) == []
    [found] = await leftovers(launch, results=True)
    assert (found.what, found.place) == ("results", os.fspath(launch.path))
    assert await clean(launch, results=True) == [found]
    assert not launch.path.exists()


async def test_a_complete_launch_of_embedded_services_leaves_nothing(tmp_path: Path) -> None:
    """It tidies up itself; ``clean`` finds nothing, and resuming still owes nothing."""
    launch = await launched(tmp_path, small("redis: embedded"))
    assert await clean(launch, results=False) == []
    await resumed(launch)


async def test_a_clean_holds_the_token_no_longer_than_a_driver_would(
    tmp_path: Path, server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For ``lease_s`` at a time, and renewed: killed, it keeps a resume on another host waiting no longer."""
    text = small(f"redis: {server.url}\n  lease_s: 0.6\n  limits: {{tokens: 1500}}")
    launch = await launched(tmp_path, text, Ending.PAUSED)
    connection, remove = RedisConnection(server.url), LaunchKeys.remove
    left_ms: list[int] = []

    async def watched(keys: LaunchKeys) -> int:
        # Until it was renewed: there is more of it again.
        async with asyncio.timeout(30.0):
            while not left_ms or left_ms[-1] <= min(left_ms):
                left_ms.append(await connection.commands.pttl(RedisKeys(launch.id).driver))
                await asyncio.sleep(0.01)
        return await remove(keys)

    monkeypatch.setattr(LaunchKeys, "remove", watched)
    assert "keys" in kinds(await clean(launch, results=False))
    assert 0 < max(left_ms) <= 600
    await connection.close()


async def test_a_clean_whose_token_is_anothers_removes_nothing_more(
    tmp_path: Path, server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of one that was frozen: who drives the launch by now needs what is there."""
    text = small(f"redis: {server.url}\n  qdrant: edge\n  lease_s: 0.3\n  limits: {{tokens: 1500}}")
    launch = await launched(tmp_path, text, Ending.PAUSED)
    state = tmp_path / "state" / launch.id
    assert state.exists()
    connection, remove = RedisConnection(server.url), LaunchKeys.remove
    keys = RedisKeys(launch.id)
    elsewhere = ProcessIdentity(host="node-7", machine="another", pid=1234, started=1)
    other = RedisDriverToken(connection, keys, 60.0, elsewhere)

    async def frozen(ours: LaunchKeys) -> int:
        removed = await remove(ours)
        await connection.commands.delete(keys.driver)
        await other.take()
        [keeping] = [task for task in asyncio.all_tasks() if "keep" in repr(task.get_coro())]
        await asyncio.wait([keeping])
        return removed

    monkeypatch.setattr(LaunchKeys, "remove", frozen)
    with pytest.raises(ServiceError, match=r"process 1234 on node-7 .* has the launch now"):
        await clean(launch, results=True)
    assert state.exists()
    assert launch.path.exists()
    await other.leave()
    await connection.close()
