"""R36: a prompt that is too long loses its oldest observations, and the model is asked again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.models.chat import ChatBackbone
from chime_dist.adapters.models.chat_request import ChatSettings
from chime_dist.config.models import BackboneModel
from chime_dist.core.episode import Role
from chime_dist.core.model_call import Turn
from chime_dist.core.trimming import LEFT_OUT, estimated_tokens
from chime_dist.engine.prompting import PromptLibrary
from chime_dist.engine.roles import RoleRunner
from chime_dist.errors import BackboneError
from tests.adapters.stub_server import Behaviour, StubServer, answers, completion

HISTORY = tuple(
    message
    for number in range(6)
    for message in (
        {"role": "assistant", "content": f"call {number}"},
        {"role": "tool", "tool_call_id": f"c{number}", "content": str(number) * 400},
    )
)
TURN = Turn(template="m/act", variables={"plan": "the plan"}, history=HISTORY)


def takes(limit: int, sentence: Callable[[int, int], str]) -> Behaviour:
    """A server with a context of ``limit`` tokens that counts like we estimate."""

    async def behave(request: web.Request, payload: dict[str, Any]) -> web.StreamResponse:
        prompt = estimated_tokens(payload["messages"])
        if prompt + payload["max_tokens"] <= limit:
            return web.json_response(completion("fits"))
        return web.json_response({"error": {"message": sentence(limit, prompt)}}, status=400)

    return behave


@asynccontextmanager
async def executor(
    behaviour: Behaviour, prompts: Path, **model: Any
) -> AsyncIterator[tuple[RoleRunner, StubServer]]:
    (prompts / "act.j2").write_text("Solve it.{{ boundary }}Plan: {{ plan }}")
    async with StubServer([behaviour]) as server:
        backbone = ChatBackbone(ChatSettings(name="stub", base_url=server.url, model="m"), SystemClock())
        settings = BackboneModel.model_validate({"name": "stub", "model": "m", **model})
        try:
            yield RoleRunner(Role.EXECUTOR, settings, backbone, PromptLibrary({"m": prompts})), server
        finally:
            await backbone.close()


def kept(server: StubServer) -> list[int]:
    """Which results of the last request still said something."""
    tools = [m for m in server.received[-1].body["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in tools] == [f"c{number}" for number in range(6)]
    return [number for number, m in enumerate(tools) if m["content"] != LEFT_OUT]


@pytest.mark.parametrize(
    "sentence",
    [
        lambda limit, prompt: (
            f"This model's maximum context length is {limit} tokens, but {prompt} in the messages were sent"
        ),
        lambda limit, prompt: "the prompt is too long",
    ],
    ids=["with figures", "without"],
)
async def test_after_a_refusal_the_oldest_observations_go(
    sentence: Callable[[int, int], str], tmp_path: Path
) -> None:
    """A6, R36: one more request with a trimmed history; what was left out is counted."""
    async with executor(takes(650, sentence), tmp_path, max_output_tokens=100) as (runner, server):
        reply = await runner.turn(TURN, "run:train:0", 10.0)
    assert reply.text == "fits"
    still_said = kept(server)
    assert still_said
    assert still_said == list(range(6 - len(still_said), 6))
    assert reply.usage.left_out == 6 - len(still_said)
    assert len(server.received) == 2


async def test_our_own_limit_is_kept_before_anything_is_sent(tmp_path: Path) -> None:
    """R36: ``max_input_tokens`` holds whatever the server would take."""
    async with executor(answers(), tmp_path, max_input_tokens=500) as (runner, server):
        reply = await runner.turn(TURN, "run:train:0", 10.0)
    assert len(server.received) == 1
    assert estimated_tokens(server.received[0].body["messages"]) <= 500
    assert 0 < reply.usage.left_out == 6 - len(kept(server)) < 6


async def test_a_prompt_that_fits_is_sent_as_it_is(tmp_path: Path) -> None:
    async with executor(answers(), tmp_path) as (runner, server):
        reply = await runner.turn(TURN, "run:train:0", 10.0)
    assert kept(server) == list(range(6))
    assert reply.usage.left_out == 0


async def test_task_and_plan_alone_too_long_is_a_context_overflow(tmp_path: Path) -> None:
    """R36, A6: nothing but observations may go; then the episode ends ``context_overflow``."""

    def never(limit: int, prompt: int) -> str:
        return "the prompt is too long"

    async with executor(takes(10, never), tmp_path, max_output_tokens=10) as (runner, server):
        with pytest.raises(BackboneError) as caught:
            await runner.turn(TURN, "run:train:0", 10.0)
    assert caught.value.code == "context_overflow"
    assert kept(server) == []
    assert "the plan" in server.received[-1].body["messages"][1]["content"]
    assert len(server.received) <= 5
