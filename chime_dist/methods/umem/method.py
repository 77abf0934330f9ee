"""U-Mem without training: one bank, found by similarity, written after every task.

[U] No table of S0 has it: RQ2 cites it and runs CHIME without a gate (``umem_outcome``). Here is its own update.
One episode recalls lessons for the task, shows them to planner and executor, and asks once what to learn: a new
lesson, another text for one that was shown, or nothing. Outcomes are told to that call and judge nothing by
themselves: there are no values, nothing is pruned, and the bank only grows or is rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import structlog
from pydantic import Field

from chime_dist.core.bank import BankState, Event
from chime_dist.core.episode import Json, Outcome, Proposal, Recall, Recalled, Role, Trajectory
from chime_dist.core.frozen import Frozen
from chime_dist.core.memory import SCENARIO_VECTOR
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.core.reply import Fault, excerpt
from chime_dist.core.retrieval import RetrievalParams, rerank
from chime_dist.methods.umem.notes import (
    LESSONS,
    Change,
    Extraction,
    ExtractionFault,
    LessonLimits,
    Written,
    extraction_schema,
    lesson_schema,
    parse_extraction,
    parse_lesson,
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

log = structlog.get_logger()


class UmemOptions(Frozen):
    """U-Mem's settings; those that it shares with CHIME have CHIME's values."""

    k: int = Field(default=3, ge=1)
    """How many lessons reach the prompts."""
    min_similarity: float = Field(default=0.3, ge=-1.0, le=1.0)
    """Lessons below it are not shown; equal is."""
    limits: LessonLimits = LessonLimits()


class Umem:
    """The method. An update meets the head's text, so any window is sound."""

    Options: ClassVar[type[Frozen]] = UmemOptions
    name = "umem"
    collections: Mapping[str, tuple[str, ...]] = {LESSONS: (SCENARIO_VECTOR,)}
    max_window: int | None = None
    schemas: Mapping[Role, tuple[str, ...]] = {Role.GATE: ("extraction",)}

    def __init__(self, options: UmemOptions) -> None:
        self.options = options

    def calls(self, steps: int) -> Mapping[Role, int]:
        """One plan, and one extraction."""
        return {Role.PLANNER: 1, Role.GATE: 1}

    async def attempt(self, ctx: EpisodeContext) -> None:
        """One recall, one planner call, then one executor call per step."""
        view = ctx.view.model_dump(mode="json")
        lessons = [lesson.model_dump(mode="json") for lesson in await self._recall(ctx)]
        reply = await ctx.turn(
            Role.PLANNER,
            Turn(
                template="umem/plan",
                variables={"view": view, "list_tools": True, "lessons": lessons},
                conversation=ctx.view.messages,
            ),
        )
        plan = reply.text.strip()
        ctx.planned(plan)
        list_tools = ctx.action_mode == "json_schema"
        await ctx.execute(
            Turn(
                template="umem/execute",
                variables={"view": view, "list_tools": list_tools, "plan": plan, "lessons": lessons},
                conversation=ctx.view.messages,
            )
        )

    async def reflect(self, ctx: ReflectionContext, trajectory: Trajectory, outcome: Outcome) -> Reflection:
        """The extraction: one structured call, and one repair call where its reply is no decision."""
        shown = [lesson for recall in trajectory.recalls for lesson in recall.selected]
        ids = [lesson.id for lesson in shown]
        turn = self._extraction(trajectory, outcome, shown)
        replies = [await ctx.turn(Role.GATE, turn)]
        found = parse_extraction(replies[0].text, replies[0].finish_reason, ids)
        if not isinstance(found, Extraction):
            repair = turn.model_copy(update={"variables": {**turn.variables, "repair": found.value}})
            replies.append(await ctx.turn(Role.GATE, repair))
            found = parse_extraction(replies[1].text, replies[1].finish_reason, ids)
        audit: dict[str, Json] = {"replies": [reply.text for reply in replies]}
        if not isinstance(found, Extraction):
            return _undecided(found, replies[-1], audit)
        written = None
        if found.lesson is not None:
            [c] = await ctx.embed([found.lesson.scenario])
            written = Written(lesson=found.lesson, c=c)
        read = _version_read(trajectory.recalls, found.target)
        return Reflection(
            status="decided",
            diagnosis=found.model_dump(mode="json"),
            content={"written": written and written.model_dump(mode="json"), "version_read": read},
            audit=audit,
        )

    def prepare(self, state: BankState, proposal: Proposal) -> Prepared:
        """The events, or both texts of a lesson that was rewritten since it was read."""
        change = _change(proposal)
        current = change.conflict(state)
        if current is None or change.written is None:
            return Prepared(events=change.events(state, None))
        data = {"current": current.model_dump(mode="json"), "new": change.written.lesson.model_dump(mode="json")}
        request = CommitRequest(key=str(change.extraction.target), kind="combine", data=data)
        return Prepared(requests=(request,))

    async def answer(self, request: CommitRequest, models: Models, budget_s: float) -> CommitReply:
        """One lesson out of two texts; an unusable reply leaves both."""
        turn = Turn(
            template="umem/combine",
            variables=request.data,
            response_schema=lesson_schema(self.options.limits),
            schema_name="combination",
        )
        reply = await models.turn(Role.GATE, turn, f"combine:{request.key}", budget_s)
        lesson = parse_lesson(reply.text, reply.finish_reason)
        if lesson is None:
            return await self.fallback(request, models)
        [c] = await models.embed([lesson.scenario], "document")
        return CommitReply(key=request.key, data=Written(lesson=lesson, c=c).model_dump(mode="json"))

    async def fallback(self, request: CommitRequest, models: Models) -> CommitReply:
        """No combined text: the new one becomes a lesson of its own."""
        log.warning("update.added", target=request.key)
        return CommitReply(key=request.key)

    def finish(self, state: BankState, proposal: Proposal, replies: Sequence[CommitReply]) -> tuple[Event, ...]:
        """The events, with the texts combined or the new one on its own."""
        [reply] = replies
        combined = Written.model_validate(reply.data) if reply.data else None
        return _change(proposal).events(state, combined)

    async def _recall(self, ctx: EpisodeContext) -> tuple[Recalled, ...]:
        k, least = self.options.k, self.options.min_similarity
        query = ctx.view.request
        hits, version = await ctx.search(LESSONS, query, k, least)
        by_similarity = RetrievalParams(candidates=k, k=k, min_similarity=least, alpha=0.0, near_tie="off")
        recall = rerank(hits, by_similarity, LESSONS, query, version)
        ctx.recalled(recall)
        return recall.selected

    def _extraction(self, trajectory: Trajectory, outcome: Outcome, shown: Sequence[Recalled]) -> Turn:
        return Turn(
            template="umem/extract",
            variables={
                "view": trajectory.view.model_dump(mode="json"),
                "list_tools": True,
                "plan": trajectory.plan,
                "steps": [step.model_dump(mode="json") for step in trajectory.steps],
                "outcome": outcome.value,
                "lessons": [lesson.model_dump(mode="json") for lesson in shown],
                "repair": None,
            },
            conversation=trajectory.view.messages,
            response_schema=extraction_schema([lesson.id for lesson in shown], self.options.limits),
            schema_name="extraction",
        )


def _version_read(recalls: Sequence[Recall], target: str | None) -> int | None:
    """The chain version of the target that stood in the prompts."""
    found = (c.item_version for recall in recalls for c in recall.candidates if c.id == target)
    return next(found, None)


def _undecided(fault: Fault | ExtractionFault, reply: ChatReply, audit: dict[str, Json]) -> Reflection:
    return Reflection(status="gate_error", audit={**audit, "reason": fault.value, "excerpt": excerpt(reply.text)})


def _change(proposal: Proposal) -> Change:
    return Change.model_validate(
        {**proposal.content, "position": proposal.position, "extraction": proposal.diagnosis}
    )
