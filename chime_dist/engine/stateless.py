"""What a method without memory answers to the learning half of ``ports.Method``: there is nothing to learn.

Its train positions are committed with no events: the stream is kept, the bank stays empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chime_dist.core.bank import BankState, Event
from chime_dist.core.episode import Outcome, Proposal, Role, Trajectory
from chime_dist.ports import CommitReply, CommitRequest, Models, Prepared, Reflection, ReflectionContext


class Stateless:
    """Everything of ``ports.Method`` but its name and ``attempt``."""

    name: str
    collections: Mapping[str, tuple[str, ...]] = {}
    max_window: int | None = None
    schemas: Mapping[Role, tuple[str, ...]] = {}

    def calls(self, steps: int) -> Mapping[Role, int]:
        """None beside the executor's."""
        return {}

    async def reflect(self, ctx: ReflectionContext, trajectory: Trajectory, outcome: Outcome) -> Reflection:
        """Nothing to learn, nothing to diagnose."""
        return Reflection(status="off")

    def prepare(self, state: BankState, proposal: Proposal) -> Prepared:
        """No events."""
        return Prepared()

    async def answer(self, request: CommitRequest, models: Models, budget_s: float) -> CommitReply:
        """Never asked: ``prepare`` has no requests."""
        raise NotImplementedError(f"{self.name} makes no commit requests, got {request.kind!r}")

    async def fallback(self, request: CommitRequest, models: Models) -> CommitReply:
        """Never asked either."""
        raise NotImplementedError(f"{self.name} makes no commit requests, got {request.kind!r}")

    def finish(self, state: BankState, proposal: Proposal, replies: Sequence[CommitReply]) -> tuple[Event, ...]:
        """No events."""
        return ()
