"""``chime-dist doctor`` on disks, clocks, and the servers that others run: rights, certificates, versions."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from aiohttp import web

from chime_dist.adapters import host
from chime_dist.adapters.ray import versions
from chime_dist.adapters.ray.versions import Versions
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.server import EmbeddedRedis
from chime_dist.config.cluster import ClusterConfig
from chime_dist.wiring.health.servers import clock_finding, ray_finding, versions_finding
from tests.adapters.stub_server import StubServer, answers
from tests.adapters.tls_proxy import Authority
from tests.cli.conftest import Program
from tests.cli.test_doctor import LOCAL, bad, examined, findings_of
from tests.contract.labs import PASSWORD, launch_user, set_user
from tests.contract.qdrant_rest import RestQdrant


def test_results_that_will_not_fit_are_a_problem_before_they_are_made(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H8: a disk that is full after a day is known to be too small on the first."""
    found = examined(program, program.write(LOCAL))["size of results"]
    assert found["level"] == "ok"
    monkeypatch.setattr(host, "free_bytes", lambda path: 6 * 2**30)
    many = [
        "--set",
        "orderings=[0,1,2,3,4,5,6,7,8,9]",
        "--set",
        "embedder.dim=4096",
        "--set",
        "protocol.epochs=900",
    ]
    found = examined(program, program.write(LOCAL), *many, "--set", "cluster.capture_prompts=true")
    assert bad(found) == {"size of results"}
    assert "GiB, prompts come on top, but runs has 6.0 GiB free" in found["size of results"]["what"]


def test_results_on_a_network_file_system_are_pointed_out(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Design "Run directory": doctor warns on network file systems."""
    monkeypatch.setattr(host, "file_system", lambda path: "nfs4")
    found = examined(program, program.write(LOCAL))["disk of cluster.runs_dir"]
    assert found["level"] == "warning"
    assert "locks (flock)" in found["what"]


async def test_a_redis_user_without_a_right_that_a_launch_needs_is_found_before_the_launch(
    program: Program,
) -> None:
    """The walk over queue, journal, pace and token leaves no key behind."""
    server = await EmbeddedRedis.start(program.folder / "redis")
    try:
        admin = RedisConnection(server.url)
        await set_user(admin, [*launch_user(), "-lrange"])
        file = program.write(LOCAL.replace("  state_dir: state\n", "  redis: '${REDIS}'\n"))
        program_env = {"REDIS": server.url.replace("unix://", f"unix://chime:{PASSWORD}@")}
        result = await asyncio.to_thread(program, "doctor", file, "--json", env=program_env)
        found = findings_of(json.loads(result.stdout))
        assert bad(found) == {"redis"}
        assert "Allow the Redis user the command: +lrange" in found["redis"]["what"]
        assert PASSWORD not in result.output
        await set_user(admin, launch_user())
        found = findings_of(
            json.loads((await asyncio.to_thread(program, "doctor", file, "--json", env=program_env)).stdout)
        )
        assert (found["redis"]["level"], found["clock"]["level"]) == ("ok", "ok")
        assert await admin.commands.keys("*") == []
        await admin.close()
    finally:
        await server.stop()


async def test_a_certificate_that_is_not_trusted_is_told_with_its_setting(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await EmbeddedRedis.start(program.folder / "redis")
    try:
        async with Authority.founded(program.folder).listening(server.url) as port:
            file = program.write(
                LOCAL.replace("  state_dir: state\n", f"  redis: 'rediss://localhost:{port}/0'\n")
            )
            found = await asyncio.to_thread(examined, program, file)
            assert bad(found) == {"redis"}
            assert "certificate is not trusted" in found["redis"]["what"]
            assert "redis.ca_file" in found["redis"]["what"]
            redis = f"{{url: 'rediss://localhost:{port}/0', ca_file: {program.folder / 'ca.pem'}}}"
            file = program.write(LOCAL.replace("  state_dir: state\n", f"  redis: {redis}\n"))
            assert bad(await asyncio.to_thread(examined, program, file)) == set()
    finally:
        await server.stop()


@pytest.mark.parametrize(("by_s", "words"), [(5.0, "5.0 s behind"), (-90.0, "90.0 s ahead of")])
async def test_clocks_that_differ_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_s: float, words: str
) -> None:
    server = await EmbeddedRedis.start(tmp_path / "redis")
    try:
        now = time.time
        monkeypatch.setattr("chime_dist.adapters.redis.trial.time.time", lambda: now() - by_s)
        found = await clock_finding(ClusterConfig.model_validate({"redis": {"url": server.url}}))
        assert found is not None
        assert (found.level, words in found.what) == ("warning", True), found.what
    finally:
        await server.stop()


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant:UserWarning")
async def test_a_qdrant_key_that_may_only_read_is_found_before_the_launch(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(request: web.Request) -> web.Response:
        return web.json_response({"status": {"error": "Global manage access is required"}}, status=403)

    server = RestQdrant()
    async with server.listening() as url:
        file = program.write(LOCAL.replace("  state_dir: state\n", f"  qdrant: '{url}'\n"))
        found = await asyncio.to_thread(examined, program, file)
        assert found["qdrant"]["what"].endswith("and takes collections")
    server = RestQdrant()
    monkeypatch.setattr(server, "_create", refused)
    async with server.listening() as url:
        file = program.write(LOCAL.replace("  state_dir: state\n", f"  qdrant: '{url}'\n"))
        found = await asyncio.to_thread(examined, program, file)
        assert bad(found) == {"qdrant"}
        assert "may read and write its collections" in found["qdrant"]["what"]


async def test_a_port_that_is_no_ray_head_is_told_apart_from_one_where_nobody_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versions, "PATIENCE_S", 0.5)
    async with StubServer([answers()]) as server:
        address = server.url.removeprefix("http://").removesuffix("/v1")
        found = await ray_finding(ClusterConfig.model_validate({"execution": "ray", "ray": {"address": address}}))
        assert "does not answer as the head of a Ray cluster" in found.what


def test_another_ray_or_python_on_the_cluster_is_told_with_both() -> None:
    """What Ray would say when it is joined, said before the launch."""
    ours = Versions("2.60.0", "3.11.7")
    assert versions_finding("h:1", ours, ours).level == "ok"
    for theirs in (Versions("2.59.0", "3.11.7"), Versions("2.60.0", "3.12.1")):
        found = versions_finding("h:1", theirs, ours)
        assert found.level == "problem"
        assert theirs.ray in found.what
        assert theirs.python in found.what
        assert theirs.python in found.fix
