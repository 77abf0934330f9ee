"""No-Plan (R43): a standard agent. No plan call, no memory, no gate; one executor from start to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from chime_dist.core.bank import BankState, Event
from chime_dist.core.episode import Outcome, Proposal, Role, Trajectory
from chime_dist.core.frozen import Frozen
from chime_dist.core.model_call import Turn
from chime_dist.ports import (
    CommitReply,
    CommitRequest,
    EpisodeContext,
    Models,
    Prepared,
    Reflection,
    ReflectionContext,
)


class NoPlanOptions(Frozen):
    """No-Plan has nothing to set."""


class NoPlan:
    """One executor per episode. Its train positions are committed empty: the stream is kept, nothing is learnt."""

    Options: ClassVar[type[Frozen]] = NoPlanOptions
    name = "no_plan"
    collections: Mapping[str, tuple[str, ...]] = {}
    max_window: int | None = None
    calls: Mapping[Role, int] = {}

    def __init__(self, options: NoPlanOptions) -> None:
        self.options = options

    async def attempt(self, ctx: EpisodeContext) -> None:
        """Execute; costs one model call per step."""
        list_tools = ctx.action_mode == "json_schema"
        await ctx.execute(
            Turn(
                template="no_plan/execute",
                variables={"view": ctx.view.model_dump(mode="json"), "list_tools": list_tools},
                conversation=ctx.view.messages,
            )
        )

    async def reflect(self, ctx: ReflectionContext, trajectory: Trajectory, outcome: Outcome) -> Reflection:
        """Nothing to learn, nothing to diagnose."""
        return Reflection(status="off")

    def prepare(self, state: BankState, proposal: Proposal) -> Prepared:
        """No events."""
        return Prepared()

    async def answer(self, request: CommitRequest, models: Models, budget_s: float) -> CommitReply:
        """Never asked: ``prepare`` has no requests."""
        raise NotImplementedError(f"no_plan makes no commit requests, got {request.kind!r}")

    async def fallback(self, request: CommitRequest, models: Models) -> CommitReply:
        """Never asked either."""
        raise NotImplementedError(f"no_plan makes no commit requests, got {request.kind!r}")

    def finish(self, state: BankState, proposal: Proposal, replies: Sequence[CommitReply]) -> tuple[Event, ...]:
        """No events."""
        return ()
