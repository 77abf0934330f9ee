"""Two experiences into one (R31): a model's text where it has one, both texts joined where it has not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import structlog

from chime_dist.core.credit import EvolutionParams
from chime_dist.core.episode import Json
from chime_dist.core.evidence import Merged, MergeRequest
from chime_dist.core.json_schema import bounded_text, closed
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.core.reply import Fault, sole_object
from chime_dist.core.vector import Vector
from chime_dist.core.verdict import GateLimits

log = structlog.get_logger()

Ask = Callable[[Turn], Awaitable[ChatReply]]
Embed = Callable[[Sequence[str]], Awaitable[list[Vector]]]


async def answer_merge(
    request: MergeRequest, params: EvolutionParams, limits: GateLimits, template: str, ask: Ask, embed: Embed
) -> Merged:
    """Do one merge by the prompt ``template`` and embed what came of it; raises BackboneError, EmbeddingError."""
    if params.merge == "append":
        return await joined(request, params, embed)
    turn = Turn(
        template=template,
        variables={
            "scenario": request.scenario,
            "old": request.experience,
            "new": request.new.experience,
            "new_scenario": request.new.scenario,
            "rewrite_scenario": params.rewrite_scenario,
        },
        response_schema=_schema(params, limits),
        schema_name="merge",
    )
    reply = await ask(turn)
    found = sole_object(reply.text, reply.finish_reason)
    if isinstance(found, Fault):
        log.warning("merge.joined", target=request.target, reason=found.value)
        return await joined(request, params, embed)
    experience, scenario = _text(found.get("experience")), _text(found.get("scenario"))
    if experience is None or (params.rewrite_scenario and scenario is None):
        log.warning("merge.joined", target=request.target, reason="empty")
        return await joined(request, params, embed)
    return await _embedded(request, experience, scenario if params.rewrite_scenario else None, "llm", embed)


async def joined(request: MergeRequest, params: EvolutionParams, embed: Embed) -> Merged:
    """Both texts, one after the other: ``merge: append``, and what a failed merge comes to (R31)."""
    scenario = request.scenario if params.rewrite_scenario else None
    return await _embedded(request, request.joined, scenario, "append", embed)


async def _embedded(
    request: MergeRequest, experience: str, scenario: str | None, by: Literal["llm", "append"], embed: Embed
) -> Merged:
    if scenario is None:
        [e] = await embed([experience])
        return request.answered(experience, e, by)
    e, c = await embed([experience, scenario])
    return request.answered(experience, e, by, scenario, c)


def _schema(params: EvolutionParams, limits: GateLimits) -> dict[str, Json]:
    properties: dict[str, Json] = {"experience": bounded_text(limits.experience, least=1)}
    if params.rewrite_scenario:
        properties["scenario"] = bounded_text(limits.scenario, least=1)
    return closed(properties)


def _text(value: Json) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
