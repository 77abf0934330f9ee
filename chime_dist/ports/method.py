"""How it is solved, and what a method may work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol

from chime_dist.core.bank import BankState, Event
from chime_dist.core.episode import Json, Outcome, Proposal, Recall, Role, Step, Trajectory, Unit
from chime_dist.core.frozen import Frozen
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.core.task import TaskView
from chime_dist.core.vector import Vector
from chime_dist.ports.bank import Hit
from chime_dist.ports.models import Models

StepHook = Callable[[int, Sequence[Step]], Awaitable[str | None]]
"""Asked before every executor turn: its 0-based number and the trajectory's steps so far. Text that it returns is
said to the executor from then on (``Turn.notes``) and recorded as an event; None says nothing."""


class EpisodeContext(Protocol):
    """What a method's pipeline works with; everything it does through here is recorded in the trajectory."""

    @property
    def view(self) -> TaskView:
        """What the agent may see of the open task."""
        ...

    @property
    def action_mode(self) -> Literal["tools", "json_schema"]:
        """See Benchmark."""
        ...

    async def search(
        self, collection: str, query: str, limit: int, min_similarity: float, vector_name: str = "c"
    ) -> tuple[list[Hit], int]:
        """Search the bank at the pinned version; returns hits and that version."""
        ...

    async def turn(self, role: Role, turn: Turn) -> ChatReply:
        """One model turn inside the episode's deadline."""
        ...

    def planned(self, plan: str) -> None:
        """Record the plan."""
        ...

    def recalled(self, recall: Recall) -> None:
        """Record a retrieval (R17)."""
        ...

    def noted(self, text: str, data: dict[str, Json] | None = None) -> None:
        """Record something else that happened, as a step of kind ``event``."""
        ...

    async def execute(self, turn: Turn, before_step: StepHook | None = None) -> None:
        """Run the executor to the end of the task: turn, act, observe, until done or capped.

        ``turn`` holds template and variables; history, tools and schema are added here.
        """
        ...


class Reflection(Frozen):
    """What a method makes of a scored trajectory."""

    status: Literal["off", "decided", "gate_error"]
    label: str | None = None
    diagnosis: dict[str, Json] | None = None
    content: dict[str, Json] = {}
    """Becomes ``Proposal.content``."""
    audit: dict[str, Json] = {}
    """Raw replies and what was dropped; goes to the trace, never to the bank."""


class ReflectionContext(Protocol):
    """What a gate works with: the stored trajectory, never the benchmark."""

    @property
    def unit(self) -> Unit:
        """The train position being reflected on."""
        ...

    async def turn(self, role: Role, turn: Turn) -> ChatReply:
        """One model turn inside the episode's deadline."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Document vectors."""
        ...

    async def nearest(self, collection: str, vector: Vector, min_similarity: float) -> Hit | None:
        """The most similar record at the version the episode read (of equal ones the lowest id), or None."""
        ...


class CommitRequest(Frozen):
    """Something a commit needs that is not pure. ``key`` names it inside one commit."""

    key: str
    kind: str
    data: dict[str, Json] = {}


class CommitReply(Frozen):
    """The answer to a CommitRequest."""

    key: str
    data: dict[str, Json] = {}
    vectors: dict[str, Vector] = {}


class Prepared(Frozen):
    """First half of a commit: complete events, or what is still to be asked."""

    events: tuple[Event, ...] = ()
    requests: tuple[CommitRequest, ...] = ()


class Method(Protocol):
    """A way of solving tasks with, or without, memory. One file each; no method imports another."""

    name: str
    collections: Mapping[str, tuple[str, ...]]
    """Collections of the bank and the vector names of each; empty for a method without state."""
    max_window: int | None
    """Largest window the method's commits are sound for; None for any."""
    def calls(self, steps: int) -> Mapping[Role, int]:
        """Model turns of an episode of ``steps`` executor steps (at least 1) by role, beside the executor's own.

        The most where an episode may do with fewer. The gate's are asked for train episodes only; repairs and
        commits come on top. A role that is never asked is absent. Only cost estimates and checks before a start
        read it.
        """
        ...

    async def attempt(self, ctx: EpisodeContext) -> None:
        """Solve the open task (R2 up to the trajectory)."""
        ...

    async def reflect(self, ctx: ReflectionContext, trajectory: Trajectory, outcome: Outcome) -> Reflection:
        """Diagnose a scored train episode; never called in eval."""
        ...

    def prepare(self, state: BankState, proposal: Proposal) -> Prepared:
        """Pure: events of the proposal against the head, or requests."""
        ...

    async def answer(self, request: CommitRequest, models: Models, budget_s: float) -> CommitReply:
        """Answer one request of ``prepare``. Raises BackboneError and EmbeddingError of a failed model."""
        ...

    async def fallback(self, request: CommitRequest, models: Models) -> CommitReply:
        """What counts instead where a model fails this request although it is up; may raise EmbeddingError."""
        ...

    def finish(self, state: BankState, proposal: Proposal, replies: Sequence[CommitReply]) -> tuple[Event, ...]:
        """Pure: the events, given the answers."""
        ...
