"""How a launch reaches its Redis: one driver, its certificates, and what its logs never say."""

from __future__ import annotations

import asyncio
import json
import pickle
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_token import Driver
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.server import EmbeddedRedis
from chime_dist.adapters.redis.tls import TlsFiles
from chime_dist.config.cluster import ClusterConfig
from chime_dist.config.loading import load_sweep
from chime_dist.engine.driven_run import Progress
from chime_dist.engine.driver import Ending
from chime_dist.errors import ServiceError
from chime_dist.wiring import services
from chime_dist.wiring.launch import Launch
from chime_dist.wiring.plans import plan_runs
from tests.adapters.tls_proxy import Authority
from tests.contract.labs import PASSWORD, launch_user, set_user
from tests.integration.processes import finish, kill_tree, launch_below, start, wait_for_rows
from tests.spec.sweeps import journal_of, launched, written

SMALL = """\
name: small
benchmarks: [{name: credit_world, families: 1, tasks_per_family: TASKS, steps: 1}]
methods: [chime]
backbones: [{name: m, scripted: {script: credit_world}}]
orderings: [0]
embedder: {kind: hashing, dim: 64}
protocol: {epochs: 1, window: 2}
cluster:
  slots: 2
  endpoints: {m: {kind: scripted, latency_s: LATENCY}}
  REDIS
"""


def small(redis: str, lease_s: float = 60.0) -> str:
    """A sweep of 7 positions that takes no time; ``redis`` as YAML."""
    text = SMALL.replace("TASKS", "10").replace("LATENCY", "[0, 0]")
    return text.replace("REDIS", f"redis: {redis}\n  lease_s: {lease_s}")


def endless(redis: str, lease_s: float = 60.0) -> str:
    """The same with so many positions that a test stops it."""
    return small(redis, lease_s).replace("family: 10", "family: 1000").replace("[0, 0]", "[0.02, 0.02]")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedRedis]:
    server = await EmbeddedRedis.start(tmp_path / "redis")
    yield server
    await server.stop()


def new_launch(folder: Path, text: str) -> Launch:
    """A launch of the sweep, below ``folder``."""
    sweep = load_sweep(written(folder, text), environ={})
    return Launch.new(sweep, plan_runs(sweep))


@asynccontextmanager
async def driven(launch: Launch, head: int) -> AsyncIterator[asyncio.Task[Ending]]:
    """Drive until so many positions are committed, and on inside the block."""
    reached = asyncio.Event()

    def observe(progress: Sequence[Progress]) -> None:
        if any(run.head >= head for run in progress):
            reached.set()

    driving = asyncio.create_task(launch.drive(observe))
    coming = asyncio.create_task(reached.wait())
    await asyncio.wait([driving, coming], return_when=asyncio.FIRST_COMPLETED)
    assert reached.is_set(), driving.exception() if driving.done() else ""
    try:
        yield driving
    finally:
        launch.stop(Ending.PREEMPTED)
        await asyncio.gather(driving, return_exceptions=True)


async def test_a_second_driver_with_a_copy_of_the_directory_is_refused(
    tmp_path: Path, server: EmbeddedRedis
) -> None:
    """Design "The queue": the run directory's lock does not reach a copy; exit 1 names the holder, nothing in the
    copy is changed, and the first driver goes on."""
    launch = new_launch(tmp_path / "first", endless(server.url))
    async with driven(launch, head=1) as driving:
        copy = tmp_path / "copy" / launch.directory.path.name
        await asyncio.to_thread(shutil.copytree, launch.directory.path, copy)
        before = (copy / "status.json").read_bytes()
        second = start(["resume", str(copy)], tmp_path)
        assert await asyncio.to_thread(finish, second, tmp_path) == 1
        assert (copy / "status.json").read_bytes() == before
        launch.stop(Ending.PREEMPTED)
        assert await driving is Ending.PREEMPTED
    said = " ".join((tmp_path / "output.txt").read_text().split())
    connection = RedisConnection(server.url)
    assert f"launch {launch.directory.id} is driven by process" in said
    assert "Leave the launch to it; or end it there (kill" in said
    assert not await connection.commands.exists(RedisKeys(launch.directory.id).driver), "given back at the end"
    await connection.close()


async def test_a_resume_after_kill_9_does_not_wait_for_the_dead_drivers_token(
    tmp_path: Path, server: EmbeddedRedis
) -> None:
    """C7: the token would last for an hour more, but its holder provably ended."""
    written(tmp_path, endless(server.url, lease_s=3600.0))
    killed = start(["sweep", "sweep.yaml"], tmp_path)
    await asyncio.to_thread(wait_for_rows, killed, tmp_path / "runs", 1)
    await asyncio.to_thread(kill_tree, killed)
    launch = Launch.resume(launch_below(tmp_path / "runs"))
    launch.stop(Ending.PREEMPTED)
    with capture_logs() as logs:
        async with asyncio.timeout(600):
            assert await launch.drive(lambda _: None) is Ending.PREEMPTED
    [replaced] = [entry for entry in logs if entry["event"] == "driver.replaced"]
    assert f"process {killed.pid} on" in replaced["dead"]


async def test_a_driver_that_loses_its_token_ends_and_says_to_whom(tmp_path: Path, server: EmbeddedRedis) -> None:
    """It was silent for too long, and another host has the launch."""
    connection = RedisConnection(server.url)
    launch = new_launch(tmp_path, endless(server.url, lease_s=0.3))
    async with driven(launch, head=1) as driving:
        key = RedisKeys(launch.directory.id).driver
        driver = Driver.model_validate_json(str(await connection.commands.get(key)))
        elsewhere = driver.process.model_copy(update={"host": "node-7", "machine": "another"})
        theirs = driver.model_copy(update={"process": elsewhere, "nonce": "theirs"}).model_dump_json()
        await connection.commands.set(key, theirs)
        with pytest.raises(ServiceError, match=r"on node-7 since .* has the launch now"):
            await driving
        assert await connection.commands.get(key) == theirs
    await connection.close()


async def test_a_launch_goes_through_tls_with_a_user_of_few_rights(tmp_path: Path, server: EmbeddedRedis) -> None:
    """Queue, journal, token and preflight, with paths from the config that do not depend on the folder."""
    authority = Authority.founded(tmp_path)
    admin = RedisConnection(server.url)
    await set_user(admin, launch_user())
    files = authority.client()
    async with authority.listening(server.url, ask_client=True) as port:
        url = f"rediss://chime:${{PW}}@localhost:{port}/0"
        redis = {"url": url, "ca_file": files.ca, "cert_file": files.cert, "key_file": files.key}
        directory = await launched(tmp_path / "sweep", small(json.dumps(redis)), environ={"PW": PASSWORD})
    [run] = directory.manifest.runs
    assert len(journal_of(directory, run)) == 7
    assert await admin.commands.llen(RedisKeys(directory.id).journal(run)) == 7
    stored = (directory.path / "sweep.json").read_text()
    assert (PASSWORD in stored, str(files.key) in stored) == (False, True)
    await admin.close()


def test_certificates_travel_to_other_processes_as_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's actors start in another folder."""
    monkeypatch.chdir(tmp_path)
    redis = {"url": "rediss://h", "ca_file": "ca.pem", "cert_file": "/c.pem", "key_file": "k.pem"}
    qdrant = {"url": "https://q", "ca_file": "ca.pem"}
    cluster = ClusterConfig.model_validate({"redis": redis, "qdrant": qdrant})
    spec = pickle.loads(pickle.dumps(services.spec_of("launch", tmp_path, tmp_path, (), cluster)))
    expected = TlsFiles(str(tmp_path / "ca.pem"), "/c.pem", str(tmp_path / "k.pem"))
    assert services.redis_files(spec.cluster) == expected
    assert spec.cluster.qdrant.ca_file == str(tmp_path / "ca.pem")
    assert services.redis_files(ClusterConfig()) == TlsFiles()


async def test_an_embedded_journal_that_came_back_empty_is_told_and_refilled(tmp_path: Path) -> None:
    """D10: what the run directory has is written back, with a warning; it never counts as a new launch."""
    launch = new_launch(tmp_path, endless("embedded"))
    async with driven(launch, head=2) as driving:
        launch.stop(Ending.PREEMPTED)
        assert await driving is Ending.PREEMPTED
    directory = launch.directory
    [run] = directory.manifest.runs
    before = journal_of(directory, run)
    assert before
    shutil.rmtree(services.state_dir(launch.sweep.cluster, directory.id))
    with capture_logs() as logs:
        async with driven(Launch.resume(directory.path), head=len(before)):
            pass
    assert {"log_level": "warning", "event": "journal.extended", "journal": "RedisJournal", "start": 0} | {
        "run": run,
        "head": len(before),
    } in logs
    assert journal_of(directory, run)[: len(before)] == before


async def test_a_refused_server_leaves_a_reason_behind(tmp_path: Path) -> None:
    """The status says why, as for everything else that keeps a launch from starting."""
    launch = new_launch(tmp_path, small("redis://localhost:1/0"))
    driving = asyncio.create_task(launch.drive(lambda _: None))
    await asyncio.sleep(0)
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    status: dict[str, Any] = json.loads((launch.directory.path / "status.json").read_text())
    assert (status["state"], status["reason"]) == ("incomplete", "killed by the second signal")


def test_credentials_are_masked_with_and_without_their_url() -> None:
    """H6: passwords and tokens that stand alone before the host."""
    cluster = ClusterConfig.model_validate(
        {
            "redis": "redis://me:canary-one@h",
            "endpoints": {"m": {"url": "https://canary-two@h/v1"}, "n": {"url": "https://h/v1"}},
        }
    )
    assert {"canary-one", "canary-two"} <= set(services.secrets_of(cluster))
