"""The real engine behind the real router, as ``chime-dist serve`` starts them: two replicas of a tiny model.

One server process for the file. Tests run in its order: first what it answers, then what dies, the node last.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.models.chat import ChatBackbone
from chime_dist.adapters.models.chat_request import ChatSettings
from chime_dist.adapters.vllm.actor import work_folder
from chime_dist.adapters.vllm.child import processes_in
from chime_dist.adapters.vllm.metrics import EngineMetrics
from chime_dist.adapters.vllm.status import ReplicaStatus, ServingStatus
from chime_dist.core.episode import Json
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.core.retry import RetryPolicy
from chime_dist.errors import BackboneError
from chime_dist.wiring.serving import live_metrics, read_status
from tests.chaos.patience import eventually, until
from tests.integration.processes import finish, start
from tests.serving.endpoints import tiny_endpoint

pytestmark = pytest.mark.slow

START_S = 420.0
"""For two engines at once on a busy machine, in seconds."""
SOON_S = 15.0
"""For everything of a killed part to be gone, in seconds; it takes two."""
BUDGET_S = 120.0
SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "colour": {"enum": ["red", "blue"]}},
    "required": ["ok", "colour"],
    "additionalProperties": False,
}
TOOL: dict[str, Json] = {"type": "function", "function": {"name": "report", "parameters": SCHEMA}}


@dataclass
class Served:
    """A running ``chime-dist serve``."""

    process: subprocess.Popen[bytes]
    cwd: Path
    folder: Path
    """Of its logs and its status."""

    @property
    def status(self) -> ServingStatus:
        """As its file has it now."""
        return read_status(self.folder)

    @property
    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """Of its only backbone."""
        [fleet] = self.status.fleets
        return fleet.replicas

    def processes_of(self, replica: int) -> list[psutil.Process]:
        """Server, engine and workers."""
        return [psutil.Process(pid) for pid in processes_in(work_folder(self.status.launch, f"tiny-{replica}"))]

    def backbone(self, **keys: Json) -> ChatBackbone:
        """The product's client; it never tries again."""
        settings = {"name": "tiny", "model": "tiny", "base_url": self.status.fleets[0].url, **keys}
        retry = RetryPolicy(max_retries=0)
        return ChatBackbone(ChatSettings.model_validate({**settings, "retry": retry}), SystemClock())

    async def metrics(self) -> list[EngineMetrics]:
        """Of all replicas."""
        return list((await live_metrics(self.status)).values())


@pytest.fixture(scope="module")
def served(vllm_environment: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two replicas, ready."""
    cwd = tmp_path_factory.mktemp("serve")
    endpoint = tiny_endpoint(vllm_environment, tiny_model, replicas=2)
    config = {"cluster": {"ray": {"num_cpus": 2}, "endpoints": {"tiny": endpoint}}, "backbones": ["tiny"]}
    (cwd / "serve.yaml").write_text(json.dumps(config))
    process = start(["serve", "tiny", "serve.yaml"], cwd)
    try:
        until(lambda: "until Ctrl-C" in _said(cwd) or process.poll() is not None, START_S)
        assert process.poll() is None, _said(cwd)
        [status] = (cwd / "runs" / "serving").glob("*/status.json")
        served = Served(process, cwd, status.parent)
        assert served.status.fleets[0].url in _said(cwd)
        yield served
    finally:
        process.send_signal(signal.SIGINT)
        finish(process, cwd)


def _said(cwd: Path) -> str:
    return (cwd / "output.txt").read_text()


def request(text: str = "hi", session_id: str = "episode", **keys: Json) -> ChatRequest:
    """One user message."""
    asked = {"messages": ({"role": "user", "content": text},), "max_tokens": 32, "session_id": session_id}
    return ChatRequest.model_validate({**asked, **keys})


async def asked(backbone: ChatBackbone, *requests: ChatRequest) -> list[ChatReply]:
    """All at once."""
    try:
        return await asyncio.gather(*(backbone.complete(one, BUDGET_S) for one in requests))
    finally:
        await backbone.close()


async def test_a_chat_is_completed_and_its_prompt_is_met_again_in_the_cache(served: Served) -> None:
    backbone, long = served.backbone(), request("the same policy, again and again. " * 60)
    try:
        first = await backbone.complete(long, BUDGET_S)
        again = await backbone.complete(long, BUDGET_S)
    finally:
        await backbone.close()
    assert (first.finish_reason, first.usage.completion_tokens) == ("length", 32)
    assert first.text == again.text
    assert again.usage.cached_tokens > first.usage.prompt_tokens / 2
    hits = sum(metrics.prefix_hits for metrics in await served.metrics())
    assert hits >= again.usage.cached_tokens


async def test_a_schema_is_enforced(served: Served) -> None:
    [reply] = await asked(served.backbone(), request(response_schema=SCHEMA, max_tokens=200))
    answer = json.loads(reply.text)
    assert answer.keys() == {"ok", "colour"}
    assert answer["colour"] in ("red", "blue")


async def test_tool_calls_are_parsed_and_strict_ones_follow_their_schema(served: Served) -> None:
    """Some run out of output before they are done, and none is wrong. Asked of a replica itself: vllm-router
    leaves ``strict`` out of what it passes on."""
    choice = {"type": "function", "function": {"name": "report"}}
    backbone = served.backbone(
        base_url=f"{served.replicas[0].url}/v1", strict_tools=True, seed=1, extra_body={"tool_choice": choice}
    )
    tries = [request(f"try {i}", tools=(TOOL,), temperature=1.0, max_tokens=600) for i in range(8)]
    calls = [call for reply in await asked(backbone, *tries) for call in reply.tool_calls]
    assert calls
    for call in calls:
        assert call.name == "report"
        assert call.arguments is not None
        assert call.arguments.keys() == {"ok", "colour"}
        assert call.arguments["colour"] in ("red", "blue")


async def test_a_prompt_that_is_too_long_is_a_context_overflow(served: Served) -> None:
    """A6: never a server's error, which would be tried again."""
    with pytest.raises(BackboneError) as caught:
        await asked(served.backbone(), request("xyz " * 9000))
    assert (caught.value.code, caught.value.status, caught.value.retriable) == ("context_overflow", 400, False)


async def test_requests_of_several_episodes_are_worked_on_at_once(served: Served) -> None:
    """They last for as long as it takes to see three of them run: what an engine tells of itself comes late.
    One replica is asked, as two busy ones leave nobody else a core."""
    requests = [request(session_id=f"episode-{i}", max_tokens=6_000) for i in range(8)]
    asking = asyncio.create_task(asked(served.backbone(base_url=f"{served.replicas[0].url}/v1"), *requests))
    most = 0
    while most <= 2 and not asking.done():
        most = max(most, sum(metrics.running for metrics in await served.metrics()))
        await asyncio.sleep(0.1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert most > 2


async def test_no_request_fails_when_an_engine_is_killed_and_its_replica_comes_back(served: Served) -> None:
    """kill -9 of the engine's process, with sixteen requests in flight on two replicas. The engine is held still
    before, so that it cannot be done with its own."""
    old = served.processes_of(0)
    [engine] = [process for process in old if "EngineCore" in process.name()]
    engine.suspend()
    asking = [
        asyncio.create_task(asked(served.backbone(), request(session_id=f"session-{i}", max_tokens=300)))
        for i in range(16)
    ]
    await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    assert any(not task.done() for task in asking)
    engine.kill()
    killed = time.monotonic()
    replies = await asyncio.gather(*asking)
    assert [len(reply) for reply in replies] == [1] * 16
    await asyncio.to_thread(until, lambda: not any(_lives(process) for process in old), START_S)
    gone_s = time.monotonic() - killed
    await asyncio.to_thread(until, lambda: _states(served) == [("serving", 1), ("serving", 0)], START_S)
    print(f"gone after {gone_s:.1f} s, back after {time.monotonic() - killed:.1f} s")  # noqa: T201
    [reply] = await asked(served.backbone(), request())
    assert reply.usage.completion_tokens == 32


async def test_a_killed_actor_takes_its_engine_along(served: Served) -> None:
    """kill -9 of the actor's process: nothing of it holds memory seconds later."""
    old = served.processes_of(1)
    assert any("EngineCore" in process.name() for process in old)
    [actor] = {process.parent() for process in old} - {*old, None}
    assert actor is not None
    actor.kill()
    await asyncio.to_thread(until, lambda: not any(_lives(process) for process in old), SOON_S)


async def test_a_dead_node_leaves_no_engine(served: Served) -> None:
    """kill -9 of the raylet, which is the node's death to Ray: engines on it would hold GPUs for ever."""
    old = served.processes_of(0)
    assert any("EngineCore" in process.name() for process in old)
    [raylet] = [child for child in psutil.Process(served.process.pid).children() if child.name() == "raylet"]
    raylet.kill()
    folders = [work_folder(served.status.launch, f"tiny-{i}") for i in range(2)]
    await asyncio.to_thread(until, lambda: not any(_lives(process) for process in old), SOON_S)
    await eventually(lambda: not any(processes_in(folder) for folder in folders))


def _states(served: Served) -> list[tuple[str, int]]:
    return [(replica.state, replica.restarts) for replica in served.replicas]


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
