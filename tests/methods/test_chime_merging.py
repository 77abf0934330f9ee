"""One merge of CHIME's: the model's text where it gives one, both texts joined where it does not (R31)."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from chime_dist.adapters.embedding.hashing import HashingEmbedder
from chime_dist.core.credit import EvolutionParams
from chime_dist.core.evidence import Merged, MergeRequest
from chime_dist.core.memory import Stage
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.core.vector import Vector
from chime_dist.core.verdict import GateLimits, NewExperience
from chime_dist.methods.chime.merging import answer_merge

REQUEST = MergeRequest(
    stage=Stage.PLAN,
    target="0-0",
    text_sha256="",
    scenario="parcels",
    experience="be early",
    new=NewExperience(scenario="letters", experience="ring twice", actionable=True),
)


async def embed(texts: Sequence[str]) -> list[Vector]:
    return await HashingEmbedder(8).embed(texts, "document")


async def merged(reply: ChatReply, *, rewrite: bool = False) -> Merged:
    async def ask(_: Turn) -> ChatReply:
        return reply

    params = EvolutionParams(rewrite_scenario=rewrite)
    return await answer_merge(REQUEST, params, GateLimits(), "chime/merge", ask, embed)


@pytest.mark.parametrize("rewrite", [False, True])
async def test_the_models_text_replaces_both_and_the_scenario_only_where_that_is_asked(rewrite: bool) -> None:
    """R31: what is embedded is what is kept."""
    said = {"experience": " be early, ring twice ", "scenario": "anything by post"}
    found = await merged(ChatReply(text=json.dumps(said)), rewrite=rewrite)
    assert (found.experience, found.by) == ("be early, ring twice", "llm")
    assert [found.e] == await embed([found.experience])
    assert (found.scenario, found.c) == (
        ("anything by post", (await embed(["anything by post"]))[0]) if rewrite else (None, None)
    )


@pytest.mark.parametrize(
    ("reply", "rewrite"),
    [
        (ChatReply(text="I would keep both."), False),
        (ChatReply(text='{"experience": "be early"}', finish_reason="length"), False),
        (ChatReply(text='{"experience": " \\n"}'), False),
        (ChatReply(text='{"experience": ["be early"]}'), False),
        (ChatReply(text='{"experience": "be early"}'), True),
        (ChatReply(text='{"experience": "be early", "scenario": ""}'), True),
    ],
)
async def test_a_reply_that_is_no_merge_leaves_both_texts_joined(reply: ChatReply, rewrite: bool) -> None:
    """R31: nothing that was learnt gets lost by it, and the scenario stays."""
    found = await merged(reply, rewrite=rewrite)
    assert (found.experience, found.by) == ("be early\nring twice", "append")
    assert [found.e] == await embed([found.experience])
    assert found.scenario == ("parcels" if rewrite else None)
