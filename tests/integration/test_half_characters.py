"""Servers send half an emoji now and then: it is replaced where a reply is read, so all that follows is UTF-8."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.directory.file_journal import FileJournal
from chime_dist.adapters.local.change_feed import ChangeFeed
from chime_dist.adapters.local.memory_store import MemoryStore
from chime_dist.adapters.local.queue import LocalQueue
from chime_dist.core.chat_reply import read_completion
from chime_dist.core.episode import Outcome
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.engine.driver import Ending
from tests.integration.launching import Launched, new_directory, plan_of
from tests.integration.toy import ToyBenchmark, toy_script

HALF = "\ud83d"


class CutServer:
    """The toy's model behind a wire that cuts an emoji in two in every text and every tool argument."""

    async def complete(self, request: ChatRequest, budget_s: float) -> ChatReply:
        """See ``ports.Backbone``."""
        if request.schema_name == "action" and request.response_schema is not None:
            call = {"name": "act", "arguments": {"how": HALF}}
            return _received({"content": json.dumps({"calls": [call], "answer": HALF})})
        reply = toy_script(request)
        assert reply is not None
        if reply.tool_calls:
            arguments = json.dumps({"how": f"{reply.tool_calls[0].arguments} {HALF}"})
            call = {"id": "c0", "type": "function", "function": {"name": "act", "arguments": arguments}}
            return _received({"content": HALF, "tool_calls": [call]})
        return _received(
            {"content": reply.text.replace("rule ", f"rule {HALF} ").replace("plan ", f"plan {HALF} ")}
        )

    async def close(self) -> None:
        """Nothing is held."""


def _received(message: dict[str, Any]) -> ChatReply:
    return read_completion(json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode())


@pytest.mark.parametrize("mode", ["tools", "json_schema"])
async def test_what_an_agent_and_a_gate_said_with_half_an_emoji_is_committed(
    tmp_path: Path, mode: Literal["tools", "json_schema"]
) -> None:
    """R34: the journal is UTF-8; half a character must be no fault of our machinery and lose no lesson."""
    benchmark = ToyBenchmark(8)
    benchmark.action_mode = mode
    directory = new_directory(tmp_path)
    clock = SystemClock()
    feed = ChangeFeed(clock)
    launch = Launched(
        directory=directory,
        plan=plan_of(benchmark, window=2),
        benchmark=benchmark,
        backbone=CutServer(),
        queue=LocalQueue(clock, feed, 30.0),
        journal=FileJournal(lambda run_id: directory.run(run_id).path, feed),
        store=MemoryStore(),
    )

    assert await launch.run() is Ending.COMPLETE

    entries = await launch.entries()
    assert [(entry.outcome is Outcome.INFRA, entry.empty_reason) for entry in entries] == [(False, None)] * 8
    learnt = [event.payload for entry in entries for event in entry.events if event.kind == "content.insert"]
    assert learnt
    assert all("rule � " in payload["experience"] for payload in learnt if payload is not None)
