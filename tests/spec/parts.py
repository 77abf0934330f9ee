"""The tour's world: one run on the real engine, moved by hand, one episode at a time.

The model says what the test wrote down, the benchmark decides what the test decided, and a text that ends in a
number in square brackets lies at that cosine to every query. Everything between is the product.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.directory.file_journal import FileJournal
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.embedding.hashing import hashed_vector
from chime_dist.adapters.local.change_feed import ChangeFeed
from chime_dist.adapters.local.memory_store import MemoryStore
from chime_dist.adapters.local.queue import LocalQueue
from chime_dist.config.models import BackboneModel
from chime_dist.core.bank import BankState, Event
from chime_dist.core.episode import EndReason, EpisodeTrace, Outcome, Role, Unit
from chime_dist.core.journal import GENESIS, JournalEntry, content_hash, verified
from chime_dist.core.memory import MemoryPayload, Stage
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.core.task import Task, TaskView
from chime_dist.core.vector import Vector
from chime_dist.engine.bank_owner import BankOwner
from chime_dist.engine.episode import EpisodeRunner, RunServices
from chime_dist.engine.lane import LaneServices
from chime_dist.engine.outage import Outages
from chime_dist.engine.roles import RoleRunner, RunModels
from chime_dist.methods.chime.method import Chime, ChimeOptions
from chime_dist.ports import (
    Action,
    BankQuery,
    BankReader,
    Completed,
    Embedded,
    Embedder,
    EmbedderFingerprint,
    Hit,
    Method,
    Observation,
)
from chime_dist.wiring.registry import prompts

RUN = "tour-chime-m-o0"
DIM = 64
REQUEST = "Deliver the parcel strictly before noon."
PLAN = "1. Find a courier that arrives before noon.\n2. Book it."
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "book",
        "description": "Book a courier.",
        "parameters": {"type": "object", "properties": {"arrival": {"type": "string"}}, "required": ["arrival"]},
    },
}

_PLACED = re.compile(r"\[(-?[0-9.]+)\]$")


def placed(cosine: float) -> Vector:
    """A vector at this cosine to every query of the tour."""
    return Vector.of([cosine, (1.0 - cosine * cosine) ** 0.5, *[0.0] * (DIM - 2)])


class PlacedEmbedder:
    """Implements ``ports.Embedder``: the text says where it lies; other documents lie apart by hash."""

    fingerprint = EmbedderFingerprint(model="tour/placed", dim=DIM)

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> Embedded:
        """See the class."""
        return Embedded(self._vector(text, kind) for text in texts)

    def _vector(self, text: str, kind: str) -> Vector:
        found = _PLACED.search(text)
        if found is not None:
            return placed(float(found[1]))
        if kind == "query":
            return placed(1.0)
        return Vector.of([0.0, 0.0, *hashed_vector(text, DIM - 2).array.tolist()])


@dataclass
class Script:
    """What happens in the next episode."""

    plan: str = PLAN
    success: bool = True
    verdict: dict[str, Any] | str = field(default_factory=lambda: verdict("none"))
    merged: str = "both lessons, said once"


def verdict(
    label: str,
    confidence: float = 0.8,
    *,
    plan: tuple[str, str] | None = None,
    exec_: tuple[str, str] | None = None,
    misleading: Sequence[str] = (),
) -> dict[str, Any]:
    """A gate's reply; ``plan`` and ``exec_`` are (scenario, experience) to remember."""

    def experience(texts: tuple[str, str] | None) -> dict[str, Any] | None:
        return None if texts is None else {"scenario": texts[0], "experience": texts[1], "actionable": True}

    return {
        "assessment": {"plan": "", "execution": "", "external": ""},
        "label": label,
        "confidence": confidence,
        "plan_experience": experience(plan),
        "exec_experience": experience(exec_),
        "misleading": list(misleading),
    }


@dataclass(frozen=True)
class Memory:
    """A memory that is there before the story begins."""

    stage: Stage
    cosine: float
    value: float = 0.0
    count: int = 0


class Speaker:
    """The backbone of one role. Says what the script says, and writes down that it was asked."""

    def __init__(self, role: Role, tour: Tour) -> None:
        self._role = role
        self._tour = tour

    async def complete(self, request: ChatRequest, budget_s: float) -> ChatReply:
        """See ``ports.Backbone``."""
        script = self._tour.script
        self._tour.happened.append(request.schema_name if request.schema_name == "merge" else self._role.value)
        self._tour.requests.append((self._role, request))
        if request.schema_name == "merge":
            return ChatReply(text=json.dumps({"experience": script.merged}))
        if self._role is Role.GATE:
            said = script.verdict
            return ChatReply(text=said if isinstance(said, str) else json.dumps(said))
        return ChatReply(text=script.plan if self._role is Role.PLANNER else "The courier is booked.")

    async def close(self) -> None:
        """Nothing is held."""


class Desk:
    """A benchmark of one-step tasks whose evaluator says what the script says."""

    name = "desk"
    action_mode: Literal["tools", "json_schema"] = "tools"
    max_steps = 3
    usual_steps = 1

    def __init__(self, tour: Tour) -> None:
        self._tour = tour

    def tasks(self) -> list[Task]:
        """See ``ports.Benchmark``."""
        return [Task(id=f"parcel-{index}", domain="parcels") for index in range(100)]

    def fingerprint(self) -> dict[str, str]:
        """Nothing upstream."""
        return {}

    async def open(self, task_id: str) -> DeskEnvironment:
        """See ``ports.Benchmark``."""
        return DeskEnvironment(self._tour)


class DeskEnvironment:
    """One open parcel."""

    view = TaskView(request=REQUEST, messages=({"role": "user", "content": REQUEST},), tools=(TOOL,))

    def __init__(self, tour: Tour) -> None:
        self._tour = tour

    async def act(self, action: Action) -> Observation:
        """The first action ends the task."""
        self._tour.happened.append("act")
        return Observation(done=True, end_reason=EndReason.SCORED)

    async def score(self) -> bool:
        """As the script says."""
        self._tour.happened.append("score")
        return self._tour.script.success

    async def close(self) -> None:
        """Nothing is held."""


class WatchedBank:
    """A bank reader that writes down what is searched for."""

    def __init__(self, inner: BankReader, tour: Tour) -> None:
        self._inner = inner
        self._tour = tour

    async def search(self, query: BankQuery) -> list[Hit]:
        """See ``ports.BankReader``."""
        self._tour.happened.append(f"recall {query.collection} @{query.version}")
        return await self._inner.search(query)

    async def export(self, run_id: str, version: int) -> BankState:
        """See ``ports.BankReader``."""
        return await self._inner.export(run_id, version)


class Tour:
    """One run. ``learn`` runs a train episode at the head and commits it, ``evaluate`` an eval episode."""

    def __init__(self, folder: Path, method: Method) -> None:
        self.script = Script()
        self.happened: list[str] = []
        """Recalls, model turns, actions and scores in the order they came."""
        self.requests: list[tuple[Role, ChatRequest]] = []
        clock = SystemClock()
        feed = ChangeFeed(clock)
        self.directory = LaunchDirectory.create(folder, "tour", {}, now=datetime.now(UTC))
        self.journal = FileJournal(lambda run_id: self.directory.run(run_id).path, feed)
        self.queue = LocalQueue(clock, feed, 30.0)
        outages = Outages(clock, 60.0)
        embedder: Embedder = PlacedEmbedder()
        library, model = prompts(["chime", "no_plan"]), BackboneModel(name="m", model="m")
        roles = (Role.PLANNER, Role.EXECUTOR, Role.GATE)
        models = RunModels({r: RoleRunner(r, model, Speaker(r, self), library) for r in roles}, embedder)
        lanes = {RUN: LaneServices(method, models, embedder.fingerprint, 1, 3, 60.0)}
        self.owner = BankOwner(self.directory.id, lanes, self.queue, self.journal, MemoryStore(), clock, outages)
        services = {RUN: RunServices(method, Desk(self), models, 60.0)}
        self.runner = EpisodeRunner(services, WatchedBank(self.owner, self), clock, outages, "worker-0")

    async def learn(self, **script: Any) -> EpisodeTrace:
        """Run the next train position with this script and commit it."""
        self.script, self.happened = Script(**script), []
        position = await self.journal.head(RUN)
        unit = Unit(
            run_id=RUN,
            phase="train",
            epoch=0,
            position=position,
            task=f"parcel-{position}",
            read_version=position,
        )
        trace = await self._finished(unit)
        await self.owner.export(RUN, position + 1)
        return trace

    async def evaluate(self, version: int, **script: Any) -> EpisodeTrace:
        """Run an eval episode that is pinned at ``version``."""
        self.script, self.happened = Script(**script), []
        unit = Unit(run_id=RUN, phase="eval", epoch=1, position=0, task="parcel-99", read_version=version)
        return await self._finished(unit)

    async def _finished(self, unit: Unit) -> EpisodeTrace:
        await self.queue.admit(unit)
        [lease] = await self.queue.claim("worker-0", 1, 0.0)
        trace = await self.runner.run(unit, lease.delivery)
        assert await self.queue.complete(lease, trace.proposal) is Completed.STORED
        return trace

    async def entries(self) -> list[JournalEntry]:
        """The verified journal."""
        return list(verified(await self.journal.read(RUN), "the journal"))

    async def bank(self) -> BankState:
        """The bank at the head."""
        return await self.owner.export(RUN, await self.journal.head(RUN))

    async def memories(self) -> dict[str, MemoryPayload]:
        """What is in the bank at the head, by id."""
        return {item: MemoryPayload.of(record) for item, record in (await self.bank()).records.items()}

    def asked(self, role: Role) -> list[str]:
        """All prompts of a role, as text."""
        return [request.model_dump_json() for asker, request in self.requests if asker is role]


@asynccontextmanager
async def touring(
    folder: Path,
    memories: Sequence[Memory] = (),
    options: ChimeOptions | None = None,
    method: Method | None = None,
) -> AsyncIterator[Tour]:
    """A run whose bank holds ``memories`` (ids 0-0, 0-1, ...) and commits until the story is over."""
    tour = Tour(folder, method or Chime(options or ChimeOptions()))
    if memories:
        await _seed(tour, memories)
    await tour.owner.open()
    committing = asyncio.create_task(tour.owner.run())
    try:
        yield tour
    finally:
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
        await tour.owner.close()


async def _seed(tour: Tour, memories: Sequence[Memory]) -> None:
    events = tuple(
        Event(
            op="put",
            kind="content.insert",
            collection=memory.stage,
            id=f"0-{k}",
            payload=MemoryPayload(
                scenario=f"scenario {k} [{memory.cosine}]",
                experience=f"lesson number {k}",
                value=memory.value,
                count=memory.count,
            ).to_json(),
            vectors={"c": placed(memory.cosine), "e": Vector.of([0.0, 0.0, *_apart(k)])},
        )
        for k, memory in enumerate(memories)
    )
    content: dict[str, Any] = {
        "position": 0,
        "task": "before the story",
        "outcome": Outcome.SUCCESS,
        "diagnosis": None,
        "events": events,
    }
    entry = JournalEntry(
        **content,
        content_hash=content_hash(GENESIS, **content),
        run_id=RUN,
        fence=0,
        attempt="",
        read_version=0,
        committed_at="",
    )
    fence = await tour.journal.take_fence(RUN)
    await tour.journal.append(RUN, fence, 0, entry.line())


def _apart(k: int) -> list[float]:
    return [float(axis == k) for axis in range(DIM - 2)]
