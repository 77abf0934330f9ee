"""What a run's model is asked does not depend on how its server spells it; the endpoint says how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chime_dist.config.loading import load_sweep
from chime_dist.core.model_call import ChatRequest
from chime_dist.wiring import services
from chime_dist.wiring.pacers import local_pacer
from chime_dist.wiring.plans import plan_runs
from chime_dist.wiring.services import spec_of
from tests.adapters.stub_server import StubServer, answers
from tests.spec.sweeps import written

SWEEP = """\
name: spelt
benchmarks: [{name: credit_world, families: 1, tasks_per_family: 5, steps: 1}]
methods: [no_plan]
backbones: [{name: m, MODEL, max_output_tokens: 100}]
orderings: [0]
embedder: {kind: hashing, dim: 64}
cluster:
  endpoints: {m: {url: "URL", ENDPOINT}}
"""
SPELT = ("chat_template_kwargs", "enable_thinking", "thinking", "max_tokens", "max_completion_tokens")


@pytest.mark.parametrize(
    ("thinking", "endpoint", "sent"),
    [
        (
            "false",
            "api_key: null",
            {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}, "max_tokens": 100},
        ),
        ("false", "thinking_field: enable_thinking", {"enable_thinking": False, "max_tokens": 100}),
        ("true", "thinking_field: thinking", {"thinking": {"type": "enabled"}, "max_tokens": 100}),
        (
            "true",
            "thinking_field: null, max_tokens_field: max_completion_tokens",
            {"max_completion_tokens": 100},
        ),
    ],
)
async def test_thinking_and_limit_are_sent_as_the_server_reads_them(
    thinking: str, endpoint: str, sent: dict[str, Any], tmp_path: Path
) -> None:
    """R35, R36: OpenAI refuses a field it does not know, others ignore it and think."""
    body = await _sent(f"thinking: {thinking}", endpoint, tmp_path)
    assert {name: value for name, value in body.items() if name in SPELT} == sent


@pytest.mark.parametrize(
    ("model", "mark"), [("strict_tools: true", {"strict": True}), ("strict_tools: false", {})]
)
async def test_tools_are_marked_strict_where_the_backbone_says_so(
    model: str, mark: dict[str, bool], tmp_path: Path
) -> None:
    """A server that knows the mark keeps arguments to the schema; others may refuse a field they do not know."""
    body = await _sent(model, "api_key: null", tmp_path)
    assert body["tools"] == [{"type": "function", "function": {"name": "add", "parameters": {}, **mark}}]


async def _sent(model: str, endpoint: str, folder: Path) -> dict[str, Any]:
    """The body of a request with a tool."""
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    asked = ChatRequest(messages=({"role": "user", "content": "?"},), tools=(tool,), session_id="s")
    async with StubServer([answers()]) as server:
        text = SWEEP.replace("URL", server.url).replace("ENDPOINT", endpoint).replace("MODEL", model)
        sweep = load_sweep(written(folder, text), environ={})
        spec = spec_of("launch", folder, folder, plan_runs(sweep), sweep.cluster)
        backbone = services.client(spec, "m", local_pacer(spec, "m"))
        await backbone.complete(asked, 10.0)
        await backbone.close()
    [request] = server.received
    return request.body
