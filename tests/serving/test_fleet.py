"""Replicas as Ray actors behind the real router; the servers are doubles that start in a tenth of a second."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import aiohttp
import psutil
import pytest
import ray
import structlog.testing

from chime_dist.adapters.models.chat_request import ChatSettings, request_body
from chime_dist.adapters.vllm.actor import work_folder
from chime_dist.adapters.vllm.child import log_tail, processes_in
from chime_dist.adapters.vllm.fleet import Fleet
from chime_dist.adapters.vllm.replica import Served
from chime_dist.core.episode import Json
from chime_dist.core.model_call import ChatRequest
from chime_dist.errors import ServingError
from tests.chaos.patience import eventually
from tests.serving.endpoints import stub_endpoint
from tests.serving.waiting import until_true

_CALL = {"id": "c0", "type": "function", "function": {"name": "act", "arguments": "{}"}}
_TOOL = {
    "type": "function",
    "function": {
        "name": "act",
        "description": "Act.",
        "parameters": {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}},
    },
}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


def served(tmp_path: Path, router_command: list[str], **keys: Any) -> Served:
    """A backbone with a launch of its own."""
    endpoint = stub_endpoint(router={"command": router_command}, **keys)
    return Served(token_hex(8), "a/m", "m", endpoint, tmp_path / "serving", "127.0.0.1")


@asynccontextmanager
async def fleet_of(what: Served) -> AsyncIterator[Fleet]:
    fleet = await Fleet.start(what)
    try:
        yield fleet
    finally:
        await fleet.stop()
        assert leftovers(what) == []


def leftovers(what: Served) -> list[int]:
    """Processes of every part of the fleet."""
    parts = [*(f"a%2Fm-{i}" for i in range(what.endpoint.replicas)), "a%2Fm-router"]
    return [pid for part in parts for pid in processes_in(work_folder(what.launch, part))]


async def answered_by(fleet: Fleet, session_id: str) -> int:
    """Ask for a chat; returns the process id of the server that answered."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    return int((await answer(fleet, session_id, body))["pid"])


async def answer(fleet: Fleet, session_id: str, body: Json) -> Json:
    """Ask for a chat; the stub repeats what reached it."""
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{fleet.url}/chat/completions", json=body, headers={"x-session-id": session_id}) as response,
    ):
        assert response.status == 200, await response.text()
        return await response.json()


async def until_serving(fleet: Fleet, restarts: list[int]) -> None:
    """Wait until every replica serves after that many restarts."""
    wanted = [("serving", number) for number in restarts]
    await eventually(lambda: [(r.state, r.restarts) for r in fleet.status.replicas] == wanted)


async def until_in_flight(fleet: Fleet) -> None:
    """Wait until a replica works on a request."""

    async def in_flight() -> bool:
        return any(metrics.in_flight for metrics in (await fleet.metrics()).values())

    await until_true(in_flight)


async def test_a_fleet_is_ready_when_every_replica_answers_and_leaves_nothing(
    tmp_path: Path, router_command: list[str]
) -> None:
    what = served(tmp_path, router_command, replicas=2, context_tokens=5000)
    async with fleet_of(what) as fleet:
        status = fleet.status
        assert [replica.state for replica in status.replicas] == ["serving", "serving"]
        assert [Path(replica.log).name for replica in status.replicas] == ["a%2Fm-0.log", "a%2Fm-1.log"]
        await eventually(lambda: all("engine runs" in log_tail(Path(replica.log)) for replica in status.replicas))
        assert await fleet.api.context_tokens("m") == 5000
        assert {i: m.hit_rate for i, m in (await fleet.metrics()).items()} == {0: 0.6, 1: 0.6}
        actors = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
        assert sum(name.startswith(f"chime-{what.launch}-serving-a%2Fm-") for name in actors) == 2
    assert [replica.state for replica in fleet.status.replicas] == ["stopped", "stopped"]


async def test_an_episode_stays_on_its_replica_and_episodes_spread_over_all(
    tmp_path: Path, router_command: list[str]
) -> None:
    """A7: every request carries its episode's id, by which the prefix cache is met again."""
    async with fleet_of(served(tmp_path, router_command, replicas=2)) as fleet:
        first = {f"episode-{i}": await answered_by(fleet, f"episode-{i}") for i in range(24)}
        again = {session: await answered_by(fleet, session) for session in first}
        assert again == first
        assert len(Counter(first.values())) == 2


async def test_what_the_product_sends_reaches_the_server_as_it_was_sent(
    tmp_path: Path, router_command: list[str]
) -> None:
    """R35: among others the switch of thinking. The router reads requests and writes them anew."""
    turn = ChatRequest(
        messages=(
            {"role": "system", "content": "policy"},
            {"role": "user", "content": "do it"},
            {"role": "assistant", "content": "", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "c0", "content": "done"},
        ),
        tools=(_TOOL,),
        response_schema={"type": "object", "properties": {"b": {}, "a": {}}, "required": ["b", "a"]},
        max_tokens=7,
        session_id="episode",
    )
    settings = ChatSettings(name="m", model="m", base_url="http://h/v1", seed=3, extra_body={"top_k": 5})
    body = request_body(settings, turn, 7)
    async with fleet_of(served(tmp_path, router_command)) as fleet:
        arrived = (await answer(fleet, "episode", body))["asked"]
    assert {key: arrived.get(key) for key in body} == body
    assert json.dumps(arrived["tools"]) == json.dumps(body["tools"]), "in the same order, or the prompt differs"


async def test_no_request_fails_while_a_replica_dies_and_comes_back(
    tmp_path: Path, router_command: list[str]
) -> None:
    what = served(tmp_path, router_command, replicas=2, env={"STUB_LATENCY_S": "0.05"})
    async with fleet_of(what) as fleet:
        old = processes_in(work_folder(what.launch, "a%2Fm-0"))
        answers: list[int] = []
        asking = [asyncio.create_task(_ask_on(fleet, f"episode-{i}", 40, answers)) for i in range(8)]
        await eventually(lambda: len(answers) >= 40)
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        await asyncio.gather(*asking)
        assert len(answers) == 320
        await until_serving(fleet, [1, 0])
        assert not set(old) & set(leftovers(what))
        later = {await answered_by(fleet, f"later-{i}") for i in range(24)}
        assert len(later) == 2, "the replica that came back gets requests again"


async def _ask_on(fleet: Fleet, session_id: str, times: int, answers: list[int]) -> None:
    for _ in range(times):
        answers.append(await answered_by(fleet, session_id))


async def test_a_killed_router_comes_back_at_its_address_with_its_replicas(
    tmp_path: Path, router_command: list[str]
) -> None:
    async with fleet_of(served(tmp_path, router_command, replicas=2)) as fleet:
        url = fleet.url
        os.kill(fleet.router_pid, signal.SIGKILL)

        async def is_back() -> bool:
            return fleet.status.router_restarts == 1 and await fleet.api.context_tokens("m") is not None

        await until_true(is_back)
        assert fleet.url == url
        assert len({await answered_by(fleet, f"episode-{i}") for i in range(24)}) == 2


def _actor_of(folder: Path) -> psutil.Process:
    """Whoever started what works there."""
    working = [psutil.Process(pid) for pid in processes_in(folder)]
    [actor] = {_above(process) for process in working} - set(working)
    return actor


def _above(process: psutil.Process) -> psutil.Process:
    parent = process.parent()
    assert parent is not None
    return parent


async def test_a_killed_actor_takes_its_server_and_its_engine_along(
    tmp_path: Path, router_command: list[str]
) -> None:
    what = served(tmp_path, router_command)
    async with fleet_of(what) as fleet:
        folder = work_folder(what.launch, "a%2Fm-0")
        old = [psutil.Process(pid) for pid in processes_in(folder)]
        actor = _actor_of(folder)
        assert actor.name().startswith("ray::Replica")
        actor.kill()
        await eventually(lambda: not any(process.is_running() for process in old))
        await until_serving(fleet, [1])


async def test_what_the_cluster_does_not_have_is_named_within_a_bound(
    tmp_path: Path, router_command: list[str]
) -> None:
    what = served(tmp_path, router_command, gpus=8, accelerator="H100", placement_timeout_s=1.0)
    started = time.monotonic()
    with pytest.raises(ServingError, match=r"within 1 s: 0 of 2 nodes have 8 GPU; the most on one node is 0"):
        await Fleet.start(what)
    assert time.monotonic() - started < 60.0
    assert leftovers(what) == []


async def test_a_replica_that_cannot_start_ends_the_start_with_its_last_words(
    tmp_path: Path, router_command: list[str]
) -> None:
    what = served(tmp_path, router_command, replicas=2, env={"STUB_FAILS": "1"})
    with pytest.raises(ServingError, match=r"(?s)a%2Fm-\d ended with code 1; .*CUDA out of memory"):
        await Fleet.start(what)
    assert leftovers(what) == []


async def test_a_start_that_is_broken_off_leaves_nothing(tmp_path: Path, router_command: list[str]) -> None:
    what = served(tmp_path, router_command, command=["sh", "-c", "sleep 600"])
    starting = asyncio.create_task(Fleet.start(what))
    await eventually(lambda: bool(processes_in(work_folder(what.launch, "a%2Fm-0"))) or starting.done())
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await eventually(lambda: leftovers(what) == [])


async def test_a_replica_that_spans_two_nodes_is_one_replica(tmp_path: Path, router_command: list[str]) -> None:
    """One actor per node, an equal share of the ranks on each; the death of either part is the replica's."""
    what = served(tmp_path, router_command, tensor_parallel=2, nodes=2)
    async with fleet_of(what) as fleet:
        parts = [work_folder(what.launch, part) for part in ("a%2Fm-0", "a%2Fm-0-node1")]
        nodes = {_above(_actor_of(part)).pid for part in parts}
        assert len(nodes) == 2
        assert await answered_by(fleet, "episode")
        for pid in processes_in(parts[1]):
            os.kill(pid, signal.SIGKILL)
        await until_serving(fleet, [1])
        assert await answered_by(fleet, "episode")
    assert not any(map(processes_in, parts))


async def test_a_part_that_ends_while_the_replica_starts_is_its_end(
    tmp_path: Path, router_command: list[str]
) -> None:
    part = ["sh", "-c", 'case "$*" in *--headless*) echo no NCCL here; exit 3;; *) sleep 600;; esac', "vllm"]
    what = served(tmp_path, router_command, tensor_parallel=2, nodes=2, command=part)
    with pytest.raises(
        ServingError, match=r"(?s)another node ended: its server ended with code 3; .*no NCCL here"
    ):
        await Fleet.start(what)


async def test_requests_in_flight_end_before_their_server_does(tmp_path: Path, router_command: list[str]) -> None:
    what = served(tmp_path, router_command, env={"STUB_LATENCY_S": "5"})
    async with fleet_of(what) as fleet:
        asked = asyncio.create_task(answered_by(fleet, "episode"))
        await until_in_flight(fleet)
        stopped = asyncio.create_task(fleet.stop())
        await until_refused(fleet)
        assert not asked.done(), "the router sent no more before the server ended"
        await stopped
    assert await asked


async def until_refused(fleet: Fleet) -> None:
    """Wait until the router has nobody to send a request to."""

    async def refused() -> bool:
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"{fleet.url.removesuffix('/v1')}/workers") as response,
        ):
            return not (await response.json())["workers"]

    await until_true(refused)


async def test_a_drain_has_a_bound(tmp_path: Path, router_command: list[str]) -> None:
    what = served(tmp_path, router_command, env={"STUB_LATENCY_S": "300"}, drain_timeout_s=0.2)
    with structlog.testing.capture_logs() as logs:
        async with fleet_of(what) as fleet:
            asked = asyncio.create_task(answered_by(fleet, "episode"))
            await until_in_flight(fleet)
        assert "serving.cut_off" in [entry["event"] for entry in logs]
    with pytest.raises((AssertionError, aiohttp.ClientError)):
        await asked


async def test_a_router_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match="there is no command 'no-such-router' on PATH"):
        await Fleet.start(served(tmp_path, ["no-such-router"]))
