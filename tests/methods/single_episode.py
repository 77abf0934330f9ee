"""One episode of any method on the real engine: nothing is queued, nothing is committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.embedding.hashing import HashingEmbedder
from chime_dist.adapters.models.credit_world_agent import CreditWorldAgent
from chime_dist.adapters.models.scripted import ScriptedBackbone
from chime_dist.config.models import BackboneModel
from chime_dist.core.bank import BankState
from chime_dist.core.episode import EpisodeTrace, Role, Step, Unit, Usage
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.engine.episode import EpisodeRunner, RunServices
from chime_dist.engine.outage import Outages
from chime_dist.engine.roles import RoleRunner, RunModels
from chime_dist.ports import BankQuery, Benchmark, Hit, Method
from chime_dist.wiring.registry import prompts

Words = Callable[[ChatRequest], ChatReply | str | None]
"""What a role says to a request; None leaves it to the agent double of credit_world."""


class Speaking:
    """The backbone of one role: writes down what it is asked, and says what the test wants said."""

    def __init__(self, role: Role, words: Words | None, asked: list[tuple[Role, ChatRequest]]) -> None:
        self._role = role
        self._words = words
        self._asked = asked
        self._double = ScriptedBackbone(script=CreditWorldAgent())

    async def complete(self, request: ChatRequest, budget_s: float) -> ChatReply:
        """See ``ports.Backbone``."""
        self._asked.append((self._role, request))
        said = self._words(request) if self._words is not None else None
        if said is None:
            return await self._double.complete(request, budget_s)
        return ChatReply(text=said, usage=Usage(calls=1, requests=1)) if isinstance(said, str) else said

    async def close(self) -> None:
        """Nothing is held."""


class NoBank:
    """A bank reader that a method without memory never asks."""

    async def search(self, query: BankQuery) -> list[Hit]:
        """See ``ports.BankReader``."""
        raise AssertionError(f"a method without memory searched {query.collection}")

    async def export(self, run_id: str, version: int) -> BankState:
        """See ``ports.BankReader``."""
        raise AssertionError("a method without memory exported the bank")


@dataclass(frozen=True)
class Told:
    """What an episode left behind."""

    trace: EpisodeTrace
    asked: list[tuple[Role, ChatRequest]]

    @property
    def calls(self) -> dict[str, int]:
        """Model calls by role, as they were counted."""
        return {role: used.calls for role, used in self.trace.record.usage.items()}

    @property
    def events(self) -> list[Step]:
        """The trajectory's events."""
        return [step for step in self.trace.trajectory.steps if step.kind == "event"]

    def requests(self, role: Role, schema_name: str | None = None) -> list[ChatRequest]:
        """What a role was asked, in order."""
        return [
            request
            for asker, request in self.asked
            if asker is role and schema_name in (None, request.schema_name)
        ]


async def episode(
    method: Method, benchmark: Benchmark, words: Mapping[Role, Words] | None = None, temperature: float = 0.0
) -> Told:
    """Attempt the benchmark's first task as the first train position. ``temperature`` is the backbone's own."""
    asked: list[tuple[Role, ChatRequest]] = []
    model, library = BackboneModel(name="m", model="m", temperature=temperature), prompts([method.name])
    speakers = {role: Speaking(role, (words or {}).get(role), asked) for role in (Role.PLANNER, Role.EXECUTOR)}
    roles = {role: RoleRunner(role, model, speaker, library) for role, speaker in speakers.items()}
    clock = SystemClock()
    services = RunServices(method, benchmark, RunModels(roles, HashingEmbedder(16)), 60.0)
    runner = EpisodeRunner({"run": services}, NoBank(), clock, Outages(clock, 60.0), "worker-0")
    task = benchmark.tasks()[0].id
    unit = Unit(run_id="run", phase="train", epoch=0, position=0, task=task, read_version=0)
    return Told(await runner.run(unit, 1), asked)
