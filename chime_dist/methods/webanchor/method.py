"""WebAnchor (R43): test-time search over plans: several are sampled, one is chosen and pinned. No memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from chime_dist.core.episode import Json, Role
from chime_dist.core.frozen import Frozen
from chime_dist.core.model_call import Turn
from chime_dist.engine.fan_out import every
from chime_dist.engine.stateless import Stateless
from chime_dist.methods.webanchor.judging import DIMENSIONS, HIGHEST, LOWEST, Choice, choose, scores_schema
from chime_dist.ports import EpisodeContext


class WebAnchorOptions(Frozen):
    """How wide the search is; defaults are Table 7 of S0."""

    candidates: int = Field(default=4, ge=2, le=16)
    """Plans that are sampled for every task."""
    temperature: float = Field(default=0.6, ge=0.0, le=2.0)
    """Of the sampled plans alone; the judge decodes at 0 (R35)."""


class WebAnchor(Stateless):
    """``candidates`` plans, one judging call, then the executor: five calls of the planner by default.

    The plans are asked for at the same time, in one session, with prompts that differ in their last line only, so
    that a server's prefix cache serves all. [U] That line numbers the draft: a backbone that answers equal
    requests equally (a fixed seed, a cache, a double) would otherwise make one plan out of four.
    """

    Options: ClassVar[type[Frozen]] = WebAnchorOptions
    name = "webanchor"
    schemas: Mapping[Role, tuple[str, ...]] = {Role.PLANNER: ("scores",)}

    def __init__(self, options: WebAnchorOptions) -> None:
        self.options = options

    def calls(self, steps: int) -> Mapping[Role, int]:
        """The plans, and the judging."""
        return {Role.PLANNER: self.options.candidates + 1}

    async def attempt(self, ctx: EpisodeContext) -> None:
        """Sample, judge, execute. Every plan, its scores and the choice become steps of the trajectory."""
        view: dict[str, Json] = ctx.view.model_dump(mode="json")
        plans = await self._sampled(ctx, view)
        for number, plan in enumerate(plans, 1):
            ctx.noted(plan, {"candidate": number, "of": len(plans)})
        choice = await self._judged(ctx, view, plans)
        ctx.noted(_verdict(choice), _evidence(choice))
        plan = plans[choice.chosen]
        ctx.planned(plan)
        await ctx.execute(
            Turn(
                template="webanchor/execute",
                variables={"view": view, "list_tools": ctx.action_mode == "json_schema", "plan": plan},
                conversation=ctx.view.messages,
            )
        )

    async def _sampled(self, ctx: EpisodeContext, view: Json) -> list[str]:
        count = self.options.candidates
        turns = (
            Turn(
                template="webanchor/plan",
                variables={"view": view, "list_tools": True, "number": number, "candidates": count},
                conversation=ctx.view.messages,
                schema_name="draft",
                temperature=self.options.temperature,
            )
            for number in range(1, count + 1)
        )
        replies = await every(ctx.turn(Role.PLANNER, turn) for turn in turns)
        return [reply.text.strip() for reply in replies]

    async def _judged(self, ctx: EpisodeContext, view: Json, plans: list[str]) -> Choice:
        reply = await ctx.turn(
            Role.PLANNER,
            Turn(
                template="webanchor/judge",
                variables={
                    "view": view,
                    "list_tools": True,
                    "plans": plans,
                    "dimensions": DIMENSIONS,
                    "lowest": LOWEST,
                    "highest": HIGHEST,
                },
                conversation=ctx.view.messages,
                response_schema=scores_schema(len(plans)),
                schema_name="scores",
                temperature=0.0,
            ),
        )
        return choose(reply.text, reply.finish_reason, len(plans))


def _verdict(choice: Choice) -> str:
    chosen = choice.scores[choice.chosen]
    if choice.judged:
        return f"plan {chosen.plan} of {len(choice.scores)} is chosen, mean score {chosen.mean:g}"
    return f"plan {chosen.plan} of {len(choice.scores)} is taken: the judge's reply scores none"


def _evidence(choice: Choice) -> dict[str, Json]:
    evidence: dict[str, Json] = {
        "chosen": choice.scores[choice.chosen].plan,
        "scores": [score.model_dump(mode="json") for score in choice.scores],
    }
    if not choice.judged:
        evidence |= {"reason": choice.fault.value if choice.fault else "no usable scores", "reply": choice.excerpt}
    return evidence
