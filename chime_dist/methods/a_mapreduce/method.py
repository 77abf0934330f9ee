"""A-MapReduce (R43): plan by map and reduce, and remember outcomes: task records, a graph of tasks, rules.

The published system maps over the rows of a table. Here a task is one environment, so the rows are its subtasks:
a planner splits the task, every subtask gets guidance on its own (map), and the guidance becomes one plan
(reduce). What it learns follows from outcomes alone: a record after each task, labelled by its outcome, and every
so many records a rewrite of the rules. There is no gate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar

import structlog
from pydantic import Field

from chime_dist.core.bank import BankState, Event
from chime_dist.core.deadline import Deadline
from chime_dist.core.episode import Json, Outcome, Proposal, Role, Trajectory
from chime_dist.core.frozen import Frozen
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.core.rule_book import RULE_VECTOR, RULES, Review, Reviewed, RuleParams, review_due, reviewed
from chime_dist.core.rule_reply import list_schema, read_list
from chime_dist.core.task_graph import RECORDS, TASK_VECTOR, GraphParams, Label, RecallParams, recorded
from chime_dist.core.text import is_visible, whole_characters
from chime_dist.core.vector import Vector
from chime_dist.engine.fan_out import every
from chime_dist.methods.a_mapreduce.recalling import Memories, recall
from chime_dist.methods.a_mapreduce.rewriting import rewritten
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

_REVIEW = "review"


class AMapReduceOptions(Frozen):
    """A-MapReduce's settings. S0 prints none of them: numbers without a mark are the published system's."""

    graph: GraphParams = GraphParams()
    recall: RecallParams = RecallParams()
    rules: RuleParams = RuleParams()
    insights: int = Field(default=3, ge=0)
    """Most rules that a task recalls; with 0 there is no projection."""
    hints: int = Field(default=3, ge=1)
    """Most hints that the projection makes of them."""
    max_subtasks: int = Field(default=4, ge=1)
    """[U] Most subtasks, and so most map calls of an episode."""
    line_chars: int = Field(default=400, ge=1)
    """[U] Longest hint and subtask that is asked for, in characters."""
    shown_chars: int = Field(default=1500, ge=1)
    """[U] Of the task and of the plan of a record, so many characters are shown."""


class Learnt(Frozen):
    """What an episode leaves for its record, beside the outcome: the content of its proposal."""

    task: str
    plan: str
    vector: Vector
    """Document vector of the task text."""


class AMapReduce:
    """The method. Any window is sound: a record is a delta, and a rewrite is made of the head at the turn.

    An episode asks the planner 1 (split) + subtasks (map) + 1 (reduce) times, and once more (projection) where
    rules were recalled: ``2 + s + r`` with ``1 <= s <= max_subtasks`` and r 0 or 1.
    """

    Options: ClassVar[type[Frozen]] = AMapReduceOptions
    name = "a_mapreduce"
    collections: Mapping[str, tuple[str, ...]] = {RECORDS: (TASK_VECTOR,), RULES: (RULE_VECTOR,)}
    max_window: int | None = None
    schemas: Mapping[Role, tuple[str, ...]] = {Role.PLANNER: ("subtasks", "hints")}

    def __init__(self, options: AMapReduceOptions) -> None:
        self.options = options

    def calls(self, steps: int) -> Mapping[Role, int]:
        """The most: as many subtasks as there may be, and a projection."""
        return {Role.PLANNER: 2 + self.options.max_subtasks + (1 if self.options.insights else 0)}

    async def attempt(self, ctx: EpisodeContext) -> None:
        """Recall, project, split, map, reduce; then one executor call per step."""
        memories = await recall(
            ctx, whole_characters(ctx.view.request), self.options.recall, self.options.insights
        )
        known = self._shown(memories) | {"hints": await self._hints(ctx, memories)}
        subtasks = await self._split(ctx, known)
        guidance = await every(
            ctx.turn(Role.PLANNER, _turn(ctx, "map", "guidance", **known, subtasks=subtasks, number=number))
            for number in range(1, len(subtasks) + 1)
        )
        parts = [
            {"subtask": subtask, "guidance": reply.text.strip()}
            for subtask, reply in zip(subtasks, guidance, strict=True)
        ]
        ctx.noted("mapped", {"parts": parts})
        reply = await ctx.turn(Role.PLANNER, _turn(ctx, "reduce", "reduced", **known, parts=parts))
        plan = reply.text.strip()
        ctx.planned(plan)
        list_tools = ctx.action_mode == "json_schema"
        await ctx.execute(_turn(ctx, "execute", "action", plan=plan, list_tools=list_tools))

    async def reflect(self, ctx: ReflectionContext, trajectory: Trajectory, outcome: Outcome) -> Reflection:
        """No diagnosis: the outcome is the label. A task that nobody can see leaves no record."""
        task = whole_characters(trajectory.view.request)
        if not is_visible(task):
            return Reflection(status="off")
        [vector] = await ctx.embed([task])
        learnt = Learnt(task=task, plan=trajectory.plan or "", vector=vector)
        return Reflection(status="off", content=learnt.model_dump(mode="json"))

    def prepare(self, state: BankState, proposal: Proposal) -> Prepared:
        """The record, or the review of the rules that becomes due with it."""
        record = self._record(state, proposal)
        if record is None:
            return Prepared()
        review = review_due(state, record, proposal.position, self.options.rules)
        if review is None:
            return Prepared(events=(record,))
        return Prepared(requests=(CommitRequest(key=_REVIEW, kind=_REVIEW, data=review.model_dump(mode="json")),))

    async def answer(self, request: CommitRequest, models: Models, budget_s: float) -> CommitReply:
        """Compare and merge, all within ``budget_s``, and embed what was written."""
        review, params = Review.model_validate(request.data), self.options.rules
        deadline = Deadline.after(budget_s, asyncio.get_running_loop().time)

        async def ask(turn: Turn) -> ChatReply:
            return await models.turn(Role.PLANNER, turn, f"rules:{review.position}", deadline.remaining_s)

        done = await rewritten(review, params, ask)
        texts = reviewed(review, done, params).texts
        vectors = await models.embed(texts, "document") if texts else []
        return CommitReply(
            key=request.key,
            data=done.model_dump(mode="json"),
            vectors=dict(zip(texts, vectors, strict=True)),
        )

    async def fallback(self, request: CommitRequest, models: Models) -> CommitReply:
        """The record is committed, the rules stay; the next review compares what is newest then."""
        log.warning("rules.review_skipped", position=request.data["position"])
        return CommitReply(key=request.key, data=Reviewed(skipped=True).model_dump(mode="json"))

    def finish(self, state: BankState, proposal: Proposal, replies: Sequence[CommitReply]) -> tuple[Event, ...]:
        """The record, then the rules."""
        record = self._record(state, proposal)
        [reply] = replies
        review = None if record is None else review_due(state, record, proposal.position, self.options.rules)
        if record is None or review is None:
            raise ValueError(f"position {proposal.position}: a review is answered that is not due")
        book = reviewed(review, Reviewed.model_validate(reply.data), self.options.rules)
        return (record, *book.events(reply.vectors))

    def _record(self, state: BankState, proposal: Proposal) -> Event | None:
        if not proposal.content:
            return None
        learnt = Learnt.model_validate(proposal.content)
        label: Label = "success" if proposal.outcome is Outcome.SUCCESS else "failure"
        return recorded(
            state, proposal.position, learnt.task, learnt.plan, label, learnt.vector, self.options.graph
        )

    def _shown(self, memories: Memories) -> dict[str, Json]:
        limit = self.options.shown_chars
        return {
            "records": [
                {"outcome": one.outcome, "task": one.task[:limit], "plan": one.plan[:limit]}
                for one in memories.records
            ]
        }

    async def _hints(self, ctx: EpisodeContext, memories: Memories) -> tuple[str, ...]:
        """The projection. Where its reply is none, the rules themselves are the hints."""
        if not memories.rules:
            return ()
        limit = self.options.hints
        reply = await ctx.turn(
            Role.PLANNER,
            _listing(ctx, "project", "hints", limit, self.options.line_chars, rules=memories.rules),
        )
        hints = read_list(reply.text, reply.finish_reason, "hints", limit) or memories.rules[:limit]
        ctx.noted("projected", {"hints": list(hints)})
        return hints

    async def _split(self, ctx: EpisodeContext, known: Mapping[str, Json]) -> tuple[str, ...]:
        """The subtasks. Where the reply has none, the task is its only one."""
        limit = self.options.max_subtasks
        turn = _listing(ctx, "split", "subtasks", limit, self.options.line_chars, **known)
        reply = await ctx.turn(Role.PLANNER, turn)
        return read_list(reply.text, reply.finish_reason, "subtasks", limit) or ("The whole task",)


def _turn(ctx: EpisodeContext, prompt: str, asked: str, **variables: Json) -> Turn:
    view = ctx.view.model_dump(mode="json")
    return Turn(
        template=f"a_mapreduce/{prompt}",
        variables={"view": view, "list_tools": True, **variables},
        conversation=ctx.view.messages,
        schema_name=asked,
    )


def _listing(ctx: EpisodeContext, prompt: str, field: str, limit: int, chars: int, **variables: Json) -> Turn:
    turn = _turn(ctx, prompt, field, limit=limit, **variables)
    return turn.model_copy(update={"response_schema": list_schema(field, limit, chars)})
