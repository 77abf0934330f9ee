"""``chime-dist serve``: one backbone until Ctrl-C, and how served backbones do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

import pytest

from chime_dist.adapters.directory.artifact_json import encode
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.vllm.actor import ReplicaActor
from chime_dist.adapters.vllm.status import FleetStatus, PrefixCache, ReplicaStatus, ServingStatus
from chime_dist.cli import serving
from tests.cli.conftest import Program
from tests.serving.endpoints import stub_endpoint

FILE = "cluster: {endpoints: {m: {kind: vllm}, other: {kind: scripted}}}\n"


def replica(index: int, url: str | None, **keys: object) -> ReplicaStatus:
    usual = {"index": index, "state": "serving" if url else "restarting", "url": url, "restarts": index}
    return ReplicaStatus.model_validate({**usual, "start_s": 12.3, "log": "m.log", **keys})


def written(folder: Path, *replicas: ReplicaStatus, caches: tuple[PrefixCache, ...] = ()) -> None:
    """The status of a backbone with these replicas."""
    url = "http://127.0.0.1:9/v1"
    fleet = FleetStatus(backbone="m", model="Qwen/m", url=url, replicas=replicas, router_restarts=0)
    status = ServingStatus(launch="l", pid=1, time=datetime.now(UTC), fleets=(fleet,), caches=caches)
    (folder / "serving").mkdir(parents=True)
    (folder / "serving" / "status.json").write_bytes(encode(status, "the status"))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[str]:
    """A double of a replica's server."""
    actor = ReplicaActor(token_hex(8), "m-0", tmp_path / "m-0.log", "127.0.0.1")
    url = await actor.start(stub_endpoint(), "m", None)
    assert url is not None
    yield url
    await actor.stop()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serve", "m"], "say which FILE holds this backbone"),
        (["serve", "n", "serve.yaml"], "no cluster.endpoints.n says how it is served"),
        (["serve", "other", "serve.yaml"], "only 'vllm' is ours to serve"),
        (["serve", "m", "none.yaml"], "none.yaml"),
    ],
)
def test_what_cannot_be_served_is_a_usage_error(program: Program, words: list[str], said: str) -> None:
    program.write(FILE, "serve.yaml")
    result = program(*words)
    assert result.exit_code == 2
    assert said in result.output


def test_the_status_of_what_serves_nothing_says_so(program: Program, launch: LaunchDirectory) -> None:
    nowhere, unserved = program("serve", "nowhere", "--status"), program("serve", "runs/latest", "--status")
    assert (nowhere.exit_code, unserved.exit_code) == (1, 1)
    assert "nowhere is not a launch" in nowhere.output
    assert "status.json is not there: this launch serves no backbone, or has not begun to" in unserved.output


def test_the_status_is_what_replicas_say_now(program: Program, server: str) -> None:
    """A7: how much of the prompts was in the cache is read from the servers themselves."""
    folder = program.folder / "launch"
    written(folder, replica(0, server), replica(1, "http://127.0.0.1:9"), replica(2, None, start_s=None))
    said = program("serve", folder, "--status").output
    first, second, third = (line for line in said.splitlines() if line.startswith(" m "))
    assert "m (Qwen/m) at http://127.0.0.1:9/v1" in said
    assert "serving" in first
    assert "60.0% of 1,000 prompt tokens" in first
    assert "25%" in first
    assert "no answer" in second
    assert "restarting" in third
    document = program.json("serve", folder, "--status")
    [live] = document["live"]
    assert (live["backbone"], live["replica"], live["metrics"]["prefix_hits"]) == ("m", 0, 600)


def test_what_has_ended_shows_what_its_caches_saved(program: Program) -> None:
    folder = program.folder / "launch"
    cache = PrefixCache(backbone="m", replica=0, queries=200, hits=150)
    empty = PrefixCache(backbone="m", replica=1, queries=0, hits=0)
    stopped = (replica(0, None, state="stopped"), replica(1, None, state="stopped"))
    written(folder, *stopped, caches=(cache, empty))
    said = program("serve", folder, "--status").output
    assert "75.0% of 200 prompt tokens" in said
    assert "no prompts" in said
    assert "ended at " in said


def test_a_second_signal_while_serving_exits_with_130_and_no_traceback(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut_off(*_: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(serving, "_served", cut_off)
    result = program("serve", "m", program.write(FILE))
    assert result.exit_code == 130
    assert "killed before all requests had ended" in result.stderr
