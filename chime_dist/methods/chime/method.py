"""CHIME (S0 section 3): a planning bank, an execution bank, and a gate that attributes before it memorises.

One episode is R2's order: recall plan memories, plan, recall exec memories for task and plan, execute; then,
for a scored train episode, the gate's diagnosis (R18) and a proposal for the bank (R24 to R34). Which of these
parts there are, and where they read and write, is the variant's to say (``options.Variant``, R44).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar

import structlog

from chime_dist.core.bank import BankState, Event
from chime_dist.core.credit import accepted
from chime_dist.core.episode import Json, Outcome, Proposal, Role, Trajectory
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
from chime_dist.core.retrieval import rerank
from chime_dist.core.vector import Vector
from chime_dist.core.verdict import Diagnosis
from chime_dist.errors import BackboneError
from chime_dist.methods.chime.merging import Ask, Embed, answer_merge, joined
from chime_dist.methods.chime.options import ChimeOptions, variant_of
from chime_dist.methods.chime.reviewing import (
    ATTRIBUTION,
    DISTILLATION,
    Review,
    attribution,
    audited,
    distillation,
    undecided,
)
from chime_dist.ports import (
    CommitReply,
    CommitRequest,
    EpisodeContext,
    Models,
    Prepared,
    Reflection,
    ReflectionContext,
)

__all__ = ["Chime", "ChimeOptions"]

log = structlog.get_logger()

_MERGE = "merge"


class Chime:
    """The method. Commits are deltas against the head, so any window is sound."""

    Options: ClassVar[type[Frozen]] = ChimeOptions
    name = "chime"
    """Also the folder of its prompts."""
    max_window: int | None = None

    def __init__(self, options: ChimeOptions) -> None:
        self.options = options
        self._variant = variant_of(options.ablation, options.outcome)
        self.collections: Mapping[str, tuple[str, ...]] = dict.fromkeys(
            self._variant.banks.values(), (SCENARIO_VECTOR, EXPERIENCE_VECTOR)
        )
        asked = {"gate": ATTRIBUTION, "distiller": DISTILLATION}.get(self._variant.reviewer or "")
        self.schemas: Mapping[Role, tuple[str, ...]] = {Role.GATE: (asked,)} if asked else {}

    def calls(self, steps: int) -> Mapping[Role, int]:
        """One plan, and one review where there is a reviewer."""
        return dict.fromkeys((Role.PLANNER, Role.GATE) if self._variant.reviewer else (Role.PLANNER,), 1)

    async def attempt(self, ctx: EpisodeContext) -> None:
        """R2, S0 Eq. 4: one planner call, then one executor call per step."""
        view = ctx.view.model_dump(mode="json")
        plan_memories = await self._recall(ctx, Stage.PLAN, ctx.view.request)
        reply = await ctx.turn(
            Role.PLANNER,
            Turn(
                template=f"{self.name}/plan",
                variables={"view": view, "list_tools": True, "memories": plan_memories},
                conversation=ctx.view.messages,
            ),
        )
        plan = reply.text.strip()
        ctx.planned(plan)
        exec_memories = await self._recall(ctx, Stage.EXEC, f"{ctx.view.request}\n\n{plan}")
        await ctx.execute(
            Turn(
                template=f"{self.name}/execute",
                variables={
                    "view": view,
                    "list_tools": ctx.action_mode == "json_schema",
                    "plan": plan,
                    "memories": exec_memories,
                },
                conversation=ctx.view.messages,
            )
        )

    async def reflect(self, ctx: ReflectionContext, trajectory: Trajectory, outcome: Outcome) -> Reflection:
        """The reviewer's verdict, and what has to be embedded and merged for it."""
        review = self._review(trajectory, outcome)
        if review is None:
            return Reflection(status="off")
        verdict, replies = await review.asked(ctx)
        diagnosis = verdict.diagnosis
        if diagnosis is None:
            return undecided(verdict, replies)
        content = await self._content(ctx, trajectory, diagnosis)
        return Reflection(
            status="decided",
            label=diagnosis.label.value if self._variant.reviewer == "gate" else None,
            diagnosis=diagnosis.model_dump(mode="json"),
            content=content.model_dump(mode="json"),
            audit=audited(verdict, replies),
        )

    def prepare(self, state: BankState, proposal: Proposal) -> Prepared:
        """R24 to R33 at the head; asks for the merges that were not done ahead, or went stale."""
        if not self.collections:
            return Prepared()
        given = EvolutionInput.from_proposal(proposal)
        evolved = prepare(state, given, self.options.evolution, self._variant.banks)
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

        merged = await self._merged(merge, ask, _documents(models))
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
        given = EvolutionInput.from_proposal(proposal)
        return finish(state, given, merged, self.options.evolution, self._variant.banks)

    async def _recall(self, ctx: EpisodeContext, stage: Stage, query: str) -> list[Json]:
        """The stage's memories for its prompt; nothing is asked of a bank that is not there."""
        bank = self._variant.banks.get(stage)
        if bank is None:
            return []
        params = self.options.retrieval
        hits, version = await ctx.search(bank, query, params.candidates, params.min_similarity)
        recall = rerank(hits, params, bank, query, version, stage.value)
        ctx.recalled(recall)
        return [memory.model_dump(mode="json") for memory in recall.selected]

    def _review(self, trajectory: Trajectory, outcome: Outcome) -> Review | None:
        limits = self.options.gate
        match self._variant.reviewer:
            case "gate":
                return attribution(self.name, trajectory, outcome, limits)
            case "distiller":
                return distillation(self.name, trajectory, outcome, limits, self.options.outcome)
            case None:
                return None

    async def _merged(self, request: MergeRequest, ask: Ask, embed: Embed) -> Merged:
        return await answer_merge(
            request, self.options.evolution, self.options.gate, f"{self.name}/merge", ask, embed
        )

    async def _content(
        self, ctx: ReflectionContext, trajectory: Trajectory, diagnosis: Diagnosis
    ) -> EvolutionContent:
        """Vectors of the new experience, and the merges that the version read suggests, done ahead."""
        params, banks = self.options.evolution, self._variant.banks
        written = accepted(diagnosis, params, banks)
        texts = [text for new in written.values() for text in (new.scenario, new.experience)]
        embedded = iter(await ctx.embed(texts) if texts else ())
        vectors = {stage: ExperienceVectors(c=next(embedded), e=next(embedded)) for stage in written}
        requests = []
        for stage, new in written.items():
            hit = await ctx.nearest(banks[stage], vectors[stage].c, params.merge_threshold)
            request = merge_ahead(stage, new, hit, params)
            if request is not None:
                requests.append(request)

        async def ask(turn: Turn) -> ChatReply:
            return await ctx.turn(Role.GATE, turn)

        try:
            merges = await asyncio.gather(*(self._merged(request, ask, ctx.embed) for request in requests))
        except BackboneError as error:
            # Done ahead only to keep it off the bank's lane, where it is asked for again.
            log.warning("merge.left_to_commit", unit=ctx.unit.key, reason=str(error))
            merges = []
        return EvolutionContent(reads=reads_of(trajectory.recalls), vectors=vectors, merges=tuple(merges))


def _documents(models: Models) -> Embed:
    async def embed(texts: Sequence[str]) -> list[Vector]:
        return await models.embed(texts, "document")

    return embed
