"""The seams of the engine. Adapters, methods and benchmarks implement these; the engine knows nothing else.

Everything that crosses a port is plain, picklable data. Asynchronous methods may be cancelled at any await.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal, Protocol

from chime_dist.core.bank import BankState, Event, Record
from chime_dist.core.episode import (
    EndReason,
    EpisodeRecord,
    EpisodeTrace,
    Json,
    Outcome,
    Proposal,
    Recall,
    Role,
    Trajectory,
    Unit,
)
from chime_dist.core.frozen import Frozen
from chime_dist.core.model_call import ChatReply, ChatRequest, Message, ToolCall, Turn
from chime_dist.core.task import Task
from chime_dist.core.task import TaskView as TaskView
from chime_dist.core.vector import Vector

# --- time -----------------------------------------------------------------------------------------------


class Clock(Protocol):
    """Time, so that tests can own it."""

    def now(self) -> datetime:
        """UTC with offset."""
        ...

    def monotonic(self) -> float:
        """Seconds; only differences mean anything, and only inside one process."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait at least ``seconds``."""
        ...


# --- queue and journal ----------------------------------------------------------------------------------


class Lease(Frozen):
    """A unit handed to one worker until its lease runs out; ``token`` proves ownership."""

    unit: Unit
    token: str
    """Opaque; changes with every delivery."""
    delivery: int
    """1-based, counted by the server, so a poison unit stops at K (D9)."""


class Completed(StrEnum):
    """The queue's answer to a completion."""

    STORED = "stored"
    ALREADY_SAME = "already_same"
    """This very lease completed before: a re-sent command after a lost reply (D4)."""
    LOST = "lost"
    """The lease is another worker's now; nothing was changed (D2)."""


class Change(Frozen):
    """Something happened. A hint to look, never the only copy of a fact."""

    kind: Literal["completed", "committed"]
    run_id: str
    unit: str = ""
    """The completed unit's key."""
    head: int = 0
    """The journal's length after a commit."""


class Queue(Protocol):
    """The durable work queue of one launch."""

    async def reset(self) -> None:
        """Start a driver's turn: no unit is admitted, every older lease is void; proposals stay."""
        ...

    async def admit(self, unit: Unit) -> bool:
        """Hand a unit to the workers once; False when its key was admitted since the last reset."""
        ...

    async def outstanding(self) -> set[str]:
        """Keys of units admitted and not completed."""
        ...

    async def claim(self, consumer: str, count: int, wait_s: float) -> list[Lease]:
        """Up to ``count`` units: own pending ones first, then expired leases, then new ones.

        Waits at most ``wait_s`` seconds for the first; may return an empty list.
        """
        ...

    async def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """Extend leases in one round trip; returns those that are lost."""
        ...

    async def complete(self, lease: Lease, proposal: Proposal | None) -> Completed:
        """Atomically: check the token, store the proposal (train), acknowledge, free the slot."""
        ...

    async def release(self, lease: Lease) -> bool:
        """Give a unit back for the next delivery at once; False when the lease was lost."""
        ...

    async def submit(self, proposal: Proposal) -> None:
        """Store the proposal of a finished episode found on disk (resume); the first stored one wins."""
        ...

    async def proposal(self, run_id: str, position: int) -> Proposal | None:
        """The stored proposal of a train position, or None."""
        ...

    async def forget(self, run_id: str, position: int) -> None:
        """Drop the proposal of a committed position."""
        ...

    async def changes(self, since: str, timeout_s: float) -> tuple[str, list[Change]]:
        """Changes after the cursor ``since`` ("" is: from now on), waiting at most ``timeout_s`` for one."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class Appended(StrEnum):
    """The journal's answer to an append."""

    APPENDED = "appended"
    ALREADY_SAME = "already_same"
    """The position holds the same line already."""
    CONFLICT = "conflict"
    """The position holds another line, or is not the head."""
    FENCED = "fenced"
    """A newer owner took a fence."""


class Journal(Protocol):
    """One append-only list of sealed lines per run, with a fence. See ``core.journal``."""

    async def take_fence(self, run_id: str) -> int:
        """A number greater than every one given before for this run; older owners can append no more."""
        ...

    async def append(self, run_id: str, fence: int, position: int, line: str) -> Appended:
        """Append atomically if ``fence`` is the newest and ``position`` the head; durable on return."""
        ...

    async def read(self, run_id: str, start: int = 0) -> list[str]:
        """Lines from position ``start`` on."""
        ...

    async def head(self, run_id: str) -> int:
        """Number of entries."""
        ...


# --- bank -----------------------------------------------------------------------------------------------


class EmbedderFingerprint(Frozen):
    """What must not change under a bank (E4)."""

    model: str
    dim: int
    query_prompt: str = ""
    """Put before queries only, never before stored texts (F1)."""
    distance: Literal["cosine"] = "cosine"


class Embedder(Protocol):
    """Texts to vectors."""

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """What vectors of this embedder may be compared with."""
        ...

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> list[Vector]:
        """One finite, non-zero vector of ``dim`` per text, in order.

        One text's vector never depends on its batch mates. Raises EmbeddingError (empty text, non-finite
        vector, endpoint down).
        """
        ...


class Namespace(Frozen):
    """Where one owner's projection of one run lives; a stale owner writes where nobody reads."""

    launch: str
    run_id: str
    fence: int


class BankStore(Protocol):
    """The searchable projection of a bank. Proposes candidates only; never the source of a vector.

    Points are record versions with ``valid_from``/``valid_to``; ``valid_to`` is set once. Every write waits.
    """

    async def open(self, namespace: Namespace, fingerprint: EmbedderFingerprint) -> None:
        """Start an empty projection; raises BankMismatchError when the store was built for another embedder."""
        ...

    async def project(self, namespace: Namespace, version: int, before: BankState, after: BankState) -> None:
        """Bring the projection from ``before`` to ``after`` (= ``version``); idempotent."""
        ...

    async def candidates(
        self,
        namespace: Namespace,
        version: int,
        collection: str,
        vector_name: str,
        vector: Vector,
        limit: int,
        min_similarity: float,
    ) -> list[str]:
        """Ids valid at ``version``: a superset of the best ``limit`` with cosine >= ``min_similarity``."""
        ...

    async def close(self) -> None:
        """Release the engine; the projection may be thrown away."""
        ...


class Hit(Frozen):
    """A record found, without its vectors, and its recomputed similarity (rounded to six decimals)."""

    record: Record
    sim: float


class BankQuery(Frozen):
    """A search of one collection at one version."""

    run_id: str
    version: int
    collection: str
    vector: Vector
    vector_name: str = "c"
    limit: int
    min_similarity: float = -1.0
    withheld: tuple[str, ...] = ()
    """Ids that are treated as not there (deletion probes)."""


class BankReader(Protocol):
    """What episodes may ask of the bank."""

    async def search(self, query: BankQuery) -> list[Hit]:
        """Best ``limit`` records by (similarity descending, id ascending), threshold inclusive (R12, R13)."""
        ...

    async def export(self, run_id: str, version: int) -> BankState:
        """The whole bank at a version that is kept: inside the window, a checkpoint, or the head."""
        ...


# --- models ---------------------------------------------------------------------------------------------


class Backbone(Protocol):
    """A model behind an OpenAI-compatible URL, or a double that ships in the package."""

    async def complete(self, request: ChatRequest, budget_s: float) -> ChatReply:
        """One completion within ``budget_s`` seconds of wall clock, retries and waits included (R37).

        Raises BackboneError.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class Models(Protocol):
    """The models of one run by role, wherever their actors are."""

    async def turn(self, role: Role, turn: Turn, session_id: str, budget_s: float) -> ChatReply:
        """Render, call, normalise. Raises BackboneError."""
        ...

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> list[Vector]:
        """See Embedder."""
        ...

    async def probe(self, budget_s: float) -> None:
        """Every model of the run answers a small request; raises the BackboneError or EmbeddingError of one."""
        ...


# --- benchmarks -----------------------------------------------------------------------------------------


class Action(Frozen):
    """What the executor did in one turn."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    malformed: str | None = None
    """Why the reply could not be read as an action; None for a well-formed reply."""


class Observation(Frozen):
    """What came back. ``messages`` continue the chat history (tool results, the user's next words)."""

    done: bool
    messages: tuple[Message, ...] = ()
    end_reason: EndReason | None = None
    """Set with ``done``."""


class Environment(Protocol):
    """One open task."""

    @property
    def view(self) -> TaskView:
        """What the agent may see."""
        ...

    async def act(self, action: Action) -> Observation:
        """Take one step. Raises BenchmarkError where the benchmark itself fails."""
        ...

    async def score(self) -> bool:
        """Success by the benchmark's own evaluator. Raises BenchmarkError."""
        ...

    async def close(self) -> None:
        """Free the slot's resources; idempotent."""
        ...


class Benchmark(Protocol):
    """A task stream and its evaluator."""

    name: str
    action_mode: Literal["tools", "json_schema"]
    """How the executor answers: native tool calls, or one JSON object (R42 deviation, named in reports)."""
    max_steps: int
    """Most executor turns of an episode."""
    usual_steps: int
    """Executor turns that a usual episode takes; at most ``max_steps``. Only cost estimates read it."""

    def tasks(self) -> Sequence[Task]:
        """All tasks in the benchmark's own order; no reference answers in them."""
        ...

    def fingerprint(self) -> dict[str, str]:
        """Upstream version and data hash, recorded with every run."""
        ...

    async def open(self, task_id: str) -> Environment:
        """Raises BenchmarkError for an unknown id or broken data."""
        ...


# --- methods --------------------------------------------------------------------------------------------


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

    async def execute(self, turn: Turn) -> None:
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
    calls: Mapping[Role, int]
    """Model turns of one episode by role, beside the executor's steps; the gate's are asked for train episodes
    only. Repairs and commits come on top. Only cost estimates read it."""

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


# --- results --------------------------------------------------------------------------------------------


class RecordStore(Protocol):
    """The run directory's writer. One per launch; the arbiter of which attempt of a unit is final."""

    async def write(self, trace: EpisodeTrace) -> EpisodeTrace:
        """Store record and trajectory durably; returns the unit's final trace, which may be an earlier one.

        A trace that is not final (an infra attempt that will be tried again) is stored as history.
        """
        ...

    async def final(self, unit: Unit) -> EpisodeTrace | None:
        """The unit's final trace, or None."""
        ...

    async def finals(self, run_id: str) -> Mapping[str, EpisodeRecord]:
        """All final records of a run by unit key."""
        ...

    async def tally(self, run_id: str) -> Mapping[str, int]:
        """Settled episodes of a run by outcome (``success``, ``failure``, ``infra``), and ``gate_error``."""
        ...
