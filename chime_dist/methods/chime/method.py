"""CHIME (S0 section 3): a planning bank, an execution bank, and a gate that attributes before it memorises.

One episode is R2's order: recall plan memories, plan, recall exec memories for task and plan, execute; then,
for a scored train episode, the gate's diagnosis (R18) and a proposal for the bank (R24 to R34).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar

import structlog

from chime_dist.core.bank import BankState, Event
from chime_dist.core.credit import EvolutionParams, accepted
from chime_dist.core.episode import Json, Outcome, Proposal, Recall, Recalled, Role, Trajectory
from chime_dist.core.evidence import (
    EvolutionContent,
    EvolutionInput,
    ExperienceVectors,
    Merged,
    MergeRequest,
    reads_of,
)
from chime_dist.core.evolution import finish, merge_ahead, prepare
from chime_dist.core.frozen import Frozen
from chime_dist.core.memory import EXPERIENCE_VECTOR, SCENARIO_VECTOR, Stage
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.core.retrieval import RetrievalParams, rerank
from chime_dist.core.vector import Vector
from chime_dist.core.verdict import Diagnosis, GateLimits, Verdict, gate_schema, parse_verdict
from chime_dist.errors import BackboneError
from chime_dist.methods.chime.merging import Embed, answer_merge, joined
from chime_dist.ports import (
    CommitReply,
    CommitRequest,
    EpisodeContext,
    Models,
    Prepared,
    Reflection,
    ReflectionContext,
)

log = structlog.get_logger()

_MERGE = "merge"


class ChimeOptions(Frozen):
    """CHIME's settings; defaults are Table 7 of S0."""

    retrieval: RetrievalParams = RetrievalParams()
    """For both stages."""
    evolution: EvolutionParams = EvolutionParams()
    gate: GateLimits = GateLimits()
    """Bounds on the gate's texts, in characters."""


class Chime:
    """The method. Commits are deltas against the head, so any window is sound."""

    Options: ClassVar[type[Frozen]] = ChimeOptions
    name = "chime"
    collections: Mapping[str, tuple[str, ...]] = {
        stage.value: (SCENARIO_VECTOR, EXPERIENCE_VECTOR) for stage in Stage
    }
    max_window: int | None = None
    calls: Mapping[Role, int] = {Role.PLANNER: 1, Role.GATE: 1}

    def __init__(self, options: ChimeOptions) -> None:
        self.options = options

    async def attempt(self, ctx: EpisodeContext) -> None:
        """R2, S0 Eq. 4: one planner call, then one executor call per step."""
        view = ctx.view.model_dump(mode="json")
        plan_memories = await self._recall(ctx, Stage.PLAN, ctx.view.request)
        reply = await ctx.turn(
            Role.PLANNER,
            Turn(
                template="chime/plan",
                variables={"view": view, "list_tools": True, "memories": _shown(plan_memories)},
                conversation=ctx.view.messages,
            ),
        )
        plan = reply.text.strip()
        ctx.planned(plan)
        exec_memories = await self._recall(ctx, Stage.EXEC, f"{ctx.view.request}\n\n{plan}")
        await ctx.execute(
            Turn(
                template="chime/execute",
                variables={
                    "view": view,
                    "list_tools": ctx.action_mode == "json_schema",
                    "plan": plan,
                    "memories": _shown(exec_memories),
                },
                conversation=ctx.view.messages,
            )
        )

    async def reflect(self, ctx: ReflectionContext, trajectory: Trajectory, outcome: Outcome) -> Reflection:
        """The gate: one structured call, one repair call if its reply is no decision (R18, R21)."""
        memories = [memory for recall in trajectory.recalls for memory in recall.selected]
        verdict, replies = await self._judged(ctx, trajectory, outcome, memories)
        audit: dict[str, Json] = {
            "replies": [reply.text for reply in replies],
            "dropped_ids": list(verdict.dropped_ids),
            "dropped_stages": [stage.value for stage in verdict.dropped_stages],
        }
        if verdict.diagnosis is None:
            return Reflection(
                status="gate_error", audit={**audit, "reason": verdict.reason, "excerpt": verdict.excerpt}
            )
        content = await self._content(ctx, trajectory, verdict.diagnosis)
        return Reflection(
            status="decided",
            label=verdict.diagnosis.label.value,
            diagnosis=verdict.diagnosis.model_dump(mode="json"),
            content=content.model_dump(mode="json"),
            audit=audit,
        )

    def prepare(self, state: BankState, proposal: Proposal) -> Prepared:
        """R24 to R33 at the head; asks for the merges that were not done ahead, or went stale."""
        evolved = prepare(state, EvolutionInput.from_proposal(proposal), self.options.evolution)
        requests = tuple(
            CommitRequest(key=request.stage.value, kind=_MERGE, data=request.model_dump(mode="json"))
            for request in evolved.requests
        )
        return Prepared(events=evolved.events, requests=requests)

    async def answer(self, request: CommitRequest, models: Models, budget_s: float) -> CommitReply:
        """Do one merge (R31)."""
        merge = MergeRequest.model_validate(request.data)

        async def ask(turn: Turn) -> ChatReply:
            return await models.turn(Role.GATE, turn, f"merge:{merge.target}", budget_s)

        merged = await answer_merge(merge, self.options.evolution, self.options.gate, ask, _documents(models))
        return CommitReply(key=request.key, data=merged.model_dump(mode="json"))

    async def fallback(self, request: CommitRequest, models: Models) -> CommitReply:
        """Joined texts where the model fails a merge (R31)."""
        merge = MergeRequest.model_validate(request.data)
        log.warning("merge.joined", target=merge.target, reason="failed")
        merged = await joined(merge, self.options.evolution, _documents(models))
        return CommitReply(key=request.key, data=merged.model_dump(mode="json"))

    def finish(self, state: BankState, proposal: Proposal, replies: Sequence[CommitReply]) -> tuple[Event, ...]:
        """The events, with the merges answered."""
        merged = [Merged.model_validate(reply.data) for reply in replies]
        return finish(state, EvolutionInput.from_proposal(proposal), merged, self.options.evolution)

    async def _recall(self, ctx: EpisodeContext, stage: Stage, query: str) -> Recall:
        params = self.options.retrieval
        hits, version = await ctx.search(stage.value, query, params.candidates, params.min_similarity)
        recall = rerank(hits, params, stage.value, query, version)
        ctx.recalled(recall)
        return recall

    async def _judged(
        self, ctx: ReflectionContext, trajectory: Trajectory, outcome: Outcome, memories: Sequence[Recalled]
    ) -> tuple[Verdict, list[ChatReply]]:
        ids = [memory.id for memory in memories]
        turn = Turn(
            template="chime/review",
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
            response_schema=gate_schema(ids, self.options.gate),
            schema_name="diagnosis",
        )
        reply = await ctx.turn(Role.GATE, turn)
        verdict = parse_verdict(reply.text, reply.finish_reason, ids)
        if verdict.diagnosis is not None:
            return verdict, [reply]
        repair = turn.model_copy(update={"variables": {**turn.variables, "repair": verdict.reason}})
        second = await ctx.turn(Role.GATE, repair)
        return parse_verdict(second.text, second.finish_reason, ids), [reply, second]

    async def _content(
        self, ctx: ReflectionContext, trajectory: Trajectory, diagnosis: Diagnosis
    ) -> EvolutionContent:
        """Vectors of the new experience, and the merges that the version read suggests, done ahead."""
        params = self.options.evolution
        stages = accepted(diagnosis, params)
        texts = [
            text for s in stages for text in (diagnosis.experience[s].scenario, diagnosis.experience[s].experience)
        ]
        embedded = iter(await ctx.embed(texts) if texts else ())
        vectors = {stage: ExperienceVectors(c=next(embedded), e=next(embedded)) for stage in stages}
        requests = []
        for stage in stages:
            hit = await ctx.nearest(stage.value, vectors[stage].c, params.merge_threshold)
            request = merge_ahead(stage, diagnosis.experience[stage], hit, params)
            if request is not None:
                requests.append(request)

        async def ask(turn: Turn) -> ChatReply:
            return await ctx.turn(Role.GATE, turn)

        try:
            merges = await asyncio.gather(
                *(answer_merge(request, params, self.options.gate, ask, ctx.embed) for request in requests)
            )
        except BackboneError as error:
            # Done ahead only to keep it off the bank's lane, where it is asked for again.
            log.warning("merge.left_to_commit", unit=ctx.unit.key, reason=str(error))
            merges = []
        return EvolutionContent(reads=reads_of(trajectory.recalls), vectors=vectors, merges=tuple(merges))


def _documents(models: Models) -> Embed:
    async def embed(texts: Sequence[str]) -> list[Vector]:
        return await models.embed(texts, "document")

    return embed


def _shown(recall: Recall) -> list[Json]:
    return [memory.model_dump(mode="json") for memory in recall.selected]
