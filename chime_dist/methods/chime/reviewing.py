"""Looking back at an attempt: one structured call, and a repair call where its reply is no decision (R18, R21)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chime_dist.core.distillation import OutcomeParams, distillation_schema, parse_distillation
from chime_dist.core.episode import Json, Outcome, Recalled, Role, Trajectory
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.core.verdict import GateLimits, Verdict, gate_schema, parse_verdict
from chime_dist.ports import Reflection, ReflectionContext

ATTRIBUTION, DISTILLATION = "diagnosis", "distillation"
"""What the schemas of the two reviews are called."""


@dataclass(frozen=True, slots=True)
class Review:
    """What is asked, and how the reply is read."""

    turn: Turn
    read: Callable[[ChatReply], Verdict]

    async def asked(self, ctx: ReflectionContext) -> tuple[Verdict, list[ChatReply]]:
        """The verdict, and every reply that it took; raises BackboneError."""
        reply = await ctx.turn(Role.GATE, self.turn)
        verdict = self.read(reply)
        if verdict.diagnosis is not None:
            return verdict, [reply]
        repair = self.turn.model_copy(update={"variables": {**self.turn.variables, "repair": verdict.reason}})
        second = await ctx.turn(Role.GATE, repair)
        return self.read(second), [reply, second]


def attribution(prompts: str, trajectory: Trajectory, outcome: Outcome, limits: GateLimits) -> Review:
    """The gate's review (R18): which stage, what to remember, which memories misled."""
    memories = _shown(trajectory)
    ids = [memory.id for memory in memories]
    turn = _turn(trajectory, outcome, f"{prompts}/review", ATTRIBUTION, gate_schema(ids, limits), memories)
    return Review(turn, lambda reply: parse_verdict(reply.text, reply.finish_reason, ids))


def distillation(
    prompts: str, trajectory: Trajectory, outcome: Outcome, limits: GateLimits, params: OutcomeParams
) -> Review:
    """The distiller's review (R44 no_gate): what to remember. Of the memories it is told nothing: the outcome
    alone judges them."""
    ids = [memory.id for memory in _shown(trajectory)]
    success = outcome is Outcome.SUCCESS
    turn = _turn(trajectory, outcome, f"{prompts}/distil", DISTILLATION, distillation_schema(limits))
    return Review(turn, lambda reply: parse_distillation(reply.text, reply.finish_reason, ids, success, params))


def undecided(verdict: Verdict, replies: Sequence[ChatReply]) -> Reflection:
    """No decision: nothing is learnt, and it is counted (R21)."""
    audit = {**audited(verdict, replies), "reason": verdict.reason, "excerpt": verdict.excerpt}
    return Reflection(status="gate_error", audit=audit)


def audited(verdict: Verdict, replies: Sequence[ChatReply]) -> dict[str, Json]:
    """What was said, and what of it was dropped."""
    return {
        "replies": [reply.text for reply in replies],
        "dropped_ids": list(verdict.dropped_ids),
        "dropped_stages": [stage.value for stage in verdict.dropped_stages],
    }


def _shown(trajectory: Trajectory) -> list[Recalled]:
    """The memories that stood in prompts, each once: stages that share a bank may have shown the same one."""
    shown: dict[str, Recalled] = {}
    for recall in trajectory.recalls:
        for memory in recall.selected:
            shown.setdefault(memory.id, memory)
    return list(shown.values())


def _turn(
    trajectory: Trajectory,
    outcome: Outcome,
    template: str,
    schema_name: str,
    schema: dict[str, Json],
    memories: Sequence[Recalled] = (),
) -> Turn:
    return Turn(
        template=template,
        variables={
            "view": trajectory.view.model_dump(mode="json"),
            "list_tools": True,
            "plan": trajectory.plan,
            "steps": [step.model_dump(mode="json") for step in trajectory.steps],
            "outcome": outcome.value,
            "memories": [memory.model_dump(mode="json") for memory in memories],
            "repair": None,
        },
        conversation=trajectory.view.messages,
        response_schema=schema,
        schema_name=schema_name,
    )
