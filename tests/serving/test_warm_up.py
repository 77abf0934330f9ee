"""A served backbone shows what its roles need, or the key to change is named."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from secrets import token_hex

import pytest

from chime_dist.adapters.vllm.actor import ReplicaActor
from chime_dist.adapters.vllm.engine_api import EngineApi
from chime_dist.config.models import BackboneModel
from chime_dist.wiring.warm_up import context_finding, thinking_finding
from tests.serving.endpoints import stub_endpoint

MODEL = BackboneModel(name="m", model="m", max_input_tokens=6000)


@pytest.mark.parametrize(
    ("asked", "served", "level", "words"),
    [
        (8192, 8192, "ok", "8192 tokens"),
        (None, 8192, "ok", "8192 tokens"),
        (8192, 4096, "problem", "8192 tokens were asked for, the server has 4096"),
        (None, 6000, "problem", "max_input_tokens (6000) are sent to a server that takes 6000"),
        (None, None, "problem", "does not say how long it is"),
    ],
)
def test_the_context_is_what_the_config_says_and_prompts_fit(
    asked: int | None, served: int | None, level: str, words: str
) -> None:
    """R36: a longer prompt must be cut before it is sent, not refused when it arrives."""
    finding = context_finding(MODEL, stub_endpoint(context_tokens=asked), served)
    assert finding.level == level
    assert words in finding.what
    assert level == "ok" or "cluster.endpoints.m.context_tokens" in finding.fix


@pytest.fixture
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineApi]:
    """A server that behaves as this environment of the stub says."""
    actor = ReplicaActor(token_hex(8), "m-0", tmp_path / "m-0.log", "127.0.0.1")
    url = await actor.start(stub_endpoint(env=request.param), "m", None)
    assert url is not None
    yield EngineApi(url)
    await actor.stop()


@pytest.mark.parametrize("api", [{}], indirect=True)
async def test_a_model_that_answers_at_once_does_not_think(api: EngineApi) -> None:
    finding = await thinking_finding(MODEL, api)
    assert (finding.level, finding.what) == ("ok", "is off")


@pytest.mark.parametrize(
    "api",
    [
        {"STUB_THINKS": "Let me see: 7 is"},
        {"STUB_SAYS": "<think>Let me see: 7 is"},
        {"STUB_SAYS": "Let me see: 7 is prime.</think>yes"},
    ],
    indirect=True,
)
async def test_a_model_that_thinks_although_it_must_not_names_the_switch(api: EngineApi) -> None:
    """R35: thinking is disabled."""
    finding = await thinking_finding(MODEL, api)
    assert finding.level == "problem"
    assert "Let me see: 7 is" in finding.what
    assert "cluster.endpoints.m.chat_template_kwargs" in finding.fix
    thinker = MODEL.model_copy(update={"thinking": True})
    assert (await thinking_finding(thinker, api)).level == "ok"
