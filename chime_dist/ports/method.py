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
        """Search one collection of the bank at the version that this episode reads (R7); returns hits and it.

        ``query`` is text, embedded here. Best first, at most ``limit``, similarity at least ``min_similarity``
        (-1 takes all); none while the bank is empty. Only records that have a vector ``vector_name`` are found.
        """
        ...

    async def turn(self, role: Role, turn: Turn) -> ChatReply:
        """One model turn inside the episode's deadline. Let pass what it raises: the engine knows its meaning."""
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

        ``turn`` holds template, variables and the task's conversation (``view.messages``); history, tools and
        schema are added here. An attempt awaits this exactly once: an episode that executed nothing is infra.
        """
        ...


class Reflection(Frozen):
    """What a method makes of a scored trajectory."""

    status: Literal["off", "decided", "gate_error"]
    """``decided``; ``off`` for a method without a gate; ``gate_error`` where there was no decision: then the
    position is committed empty (R21), else ``prepare`` is asked at its turn."""
    label: str | None = None
    """One word for tables, e.g. CHIME's attribution."""
    diagnosis: dict[str, Json] | None = None
    """Kept in the journal, and so for ever."""
    content: dict[str, Json] = {}
    """Becomes ``Proposal.content``: what ``prepare`` works with. It travels as JSON; a vector as its dump."""
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
    """Something a commit needs that is not pure, such as a model's words; ``Method.answer`` gives it."""

    key: str
    """Names it inside one commit."""
    kind: str
    """The method's own word for what is wanted; it is logged."""
    data: dict[str, Json] = {}


class CommitReply(Frozen):
    """The answer to a CommitRequest."""

    key: str
    data: dict[str, Json] = {}
    vectors: dict[str, Vector] = {}


class Prepared(Frozen):
    """First half of a commit: complete events, or what is still to be asked."""

    events: tuple[Event, ...] = ()
    """All events of the commit; not read where there are requests."""
    requests: tuple[CommitRequest, ...] = ()
    """Asked side by side; then ``finish`` gives all events."""


class Method(Protocol):
    """A way of solving tasks with, or without, memory. One file each; no method imports another.

    Of an episode ``attempt`` is called, then for train positions ``reflect``, both in a worker and side by side
    with other episodes. At the position's turn, in stream order and one at a time, ``prepare`` and, if it asks for
    something, ``answer`` and ``finish``, where the bank is. Nothing may be remembered in the object: workers have
    copies of it, and what a later episode is to know belongs into the bank.

    An exception in ``attempt`` makes the episode infra, one in ``reflect`` a gate error. One in the commit, an
    answer of another type, or an event that the bank cannot hold stops the launch with nothing committed.
    """

    name: str
    """What sweeps call it: the name of its entry point."""
    collections: Mapping[str, tuple[str, ...]]
    """Collections of the bank and the vector names of each; empty for a method without state."""
    max_window: int | None
    """Largest window the method's commits are sound for; None for any. 1 where what an episode read must still be
    the newest when it is committed."""
    schemas: Mapping[Role, tuple[str, ...]]
    """Schemas (``Turn.schema_name``) that an episode's replies have to follow, by role, beside the executor's: a
    backbone is tried for them before a start. Empty where all replies are free text."""

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
        """Pure: events of the proposal against the newest bank, ``state``, or requests.

        No clock, no randomness, no file: a replacement owner of the bank does it again and must get the same. The
        id of a new record is ``str(ItemId(proposal.position, k))``, k from 0.
        """
        ...

    async def answer(self, request: CommitRequest, models: Models, budget_s: float) -> CommitReply:
        """Answer one request of ``prepare``. Let pass BackboneError and EmbeddingError of a failed model: an
        outage is waited out, and a model that is up is asked again, a few times."""
        ...

    async def fallback(self, request: CommitRequest, models: Models) -> CommitReply:
        """What counts instead where a model fails this request although it is up; may raise EmbeddingError."""
        ...

    def finish(self, state: BankState, proposal: Proposal, replies: Sequence[CommitReply]) -> tuple[Event, ...]:
        """Pure like ``prepare``: all events, given the answers in the order of the requests."""
        ...
