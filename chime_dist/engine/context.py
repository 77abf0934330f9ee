"""What a method and a gate work with: every call is bounded, counted and recorded on its way through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Literal, TypeVar

from chime_dist.core.chat_reply import assistant_message
from chime_dist.core.deadline import Deadline
from chime_dist.core.episode import EndReason, Json, Recall, Role, Step, Trajectory, Unit, Usage
from chime_dist.core.model_call import ChatReply, Message, Note, Turn
from chime_dist.core.text import is_visible
from chime_dist.core.vector import Vector
from chime_dist.engine.action import action_schema, json_action, native_action
from chime_dist.engine.capture import Capture
from chime_dist.engine.counting import CountedModels
from chime_dist.errors import BackboneError
from chime_dist.ports import Action, BankQuery, BankReader, Benchmark, Environment, Hit, Models, StepHook

T = TypeVar("T")

GRACE_S = 30.0
"""How long after an episode's deadline a started step of the benchmark, or a read of the bank, may still end."""


class AgentDeadlineError(Exception):
    """The episode's deadline passed while the agent was working (an outcome, not a fault of ours)."""


class UnansweredError(Exception):
    """A part of ours did not answer within the episode's deadline."""


class MeteredModels:
    """Model calls inside one deadline, with usage counted by role."""

    def __init__(
        self, models: Models, session_id: str, deadline: Deadline, capture: Capture | None = None
    ) -> None:
        self._models = CountedModels(models)
        self._capture = capture
        self._session_id = session_id
        self._deadline = deadline

    @property
    def usage(self) -> dict[str, Usage]:
        """By role, so far."""
        return self._models.usage

    async def turn(self, role: Role, turn: Turn) -> ChatReply:
        """One turn within what is left; raises AgentDeadlineError when nothing is, or BackboneError."""
        if self._deadline.passed:
            raise AgentDeadlineError
        try:
            reply = await self._models.turn(role, turn, self._session_id, self._deadline.remaining_s)
        except BackboneError as error:
            if self._capture is not None:
                self._capture.failed(role, turn, error)
            raise
        return reply if self._capture is None else self._capture.replied(role, turn, reply)

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> list[Vector]:
        """Vectors of ``texts``; counted as one call of the embedder."""
        return await self._models.embed(texts, kind)

    async def in_time(self, ask: Callable[[], Awaitable[T]], who: str) -> T:
        """The answer, at the latest a little after the deadline: what lives and does not answer must not hold a
        slot for ever (G6). An answer that comes late is used; the next turn ends the episode.

        Raises UnansweredError, and AgentDeadlineError where nothing is left to begin with.
        """
        if self._deadline.passed:
            raise AgentDeadlineError
        try:
            async with asyncio.timeout(self._deadline.remaining_s + GRACE_S):
                return await ask()
        except TimeoutError:
            raise UnansweredError(f"{who} did not answer within the episode's deadline") from None


class RunningEpisode:
    """``ports.EpisodeContext`` of one attempt. Records the trajectory as it happens."""

    def __init__(
        self, unit: Unit, benchmark: Benchmark, environment: Environment, bank: BankReader, models: MeteredModels
    ) -> None:
        self._unit = unit
        self._benchmark = benchmark
        self._environment = environment
        self.view = environment.view
        """See ``ports.EpisodeContext``; kept, because a benchmark may build it anew whenever it is asked."""
        self._bank = bank
        self._models = models
        self._plan: str | None = None
        self._recalls: list[Recall] = []
        self._steps: list[Step] = []
        self.end_reason: EndReason | None = None

    @property
    def action_mode(self) -> Literal["tools", "json_schema"]:
        """See ``ports.EpisodeContext``."""
        return self._benchmark.action_mode

    @property
    def trajectory(self) -> Trajectory:
        """What happened so far."""
        return Trajectory(view=self.view, plan=self._plan, recalls=tuple(self._recalls), steps=tuple(self._steps))

    async def search(
        self, collection: str, query: str, limit: int, min_similarity: float, vector_name: str = "c"
    ) -> tuple[list[Hit], int]:
        """See ``ports.EpisodeContext``."""
        version = self._unit.read_version
        if version == 0 or not is_visible(query):
            # An empty bank, or a request of control characters only (there is one in BFCL-v4): nothing is like it.
            return [], version
        [vector] = await self._models.embed([query], "query")
        asked = BankQuery(
            run_id=self._unit.run_id,
            version=version,
            collection=collection,
            vector=vector,
            vector_name=vector_name,
            limit=limit,
            min_similarity=min_similarity,
            frozen=self._unit.phase == "eval",
        )
        return await self._models.in_time(lambda: self._bank.search(asked), "the bank"), version

    async def turn(self, role: Role, turn: Turn) -> ChatReply:
        """See ``ports.EpisodeContext``."""
        reply = await self._models.turn(role, turn)
        if reply.usage.left_out:
            detail: dict[str, Json] = {"role": role.value, "left_out": reply.usage.left_out}
            self._step("event", "observations left out of a prompt that was too long", detail)
        return reply

    def planned(self, plan: str) -> None:
        """See ``ports.EpisodeContext``."""
        self._plan = plan
        self._step("plan", plan)

    def recalled(self, recall: Recall) -> None:
        """See ``ports.EpisodeContext``."""
        self._recalls.append(recall)

    def noted(self, text: str, data: dict[str, Json] | None = None) -> None:
        """See ``ports.EpisodeContext``."""
        self._step("event", text, data)

    async def execute(self, turn: Turn, before_step: StepHook | None = None) -> None:
        """See ``ports.EpisodeContext``."""
        native = self.action_mode == "tools"
        tools = self.view.tools
        turn = turn.model_copy(
            update={
                "tools": tools if native else (),
                "response_schema": None if native else action_schema(tools),
                "schema_name": "action",
            }
        )
        for number in range(self._benchmark.max_steps):
            if before_step is not None:
                turn = await self._told(turn, number, before_step)
            reply = await self.turn(Role.EXECUTOR, turn)
            action = native_action(reply) if native else json_action(reply)
            self._step("action", action.text, _action_data(action))
            observation = await self._models.in_time(partial(self._environment.act, action), "the benchmark")
            for message in observation.messages:
                self._step("observation", str(message.get("content", "")), {"role": message.get("role")})
            self._flag(observation.flags)
            if observation.done:
                self.end_reason = observation.end_reason or EndReason.UNKNOWN
                return
            said: Message = assistant_message(reply) if native else {"role": "assistant", "content": reply.text}
            turn = turn.model_copy(update={"history": (*turn.history, said, *observation.messages)})
        self.end_reason = EndReason.STEP_CAP

    async def _told(self, turn: Turn, number: int, before_step: StepHook) -> Turn:
        said = await before_step(number, tuple(self._steps))
        if said is None:
            return turn
        self._step("event", said, {"before_step": number})
        note = Note(after=len(turn.history), text=said)
        return turn.model_copy(update={"notes": (*turn.notes, note)})

    def _flag(self, flags: Sequence[str]) -> None:
        """Put a benchmark's remarks beside the last step: a step of their own would be shown to the gate."""
        if flags:
            last = self._steps[-1]
            self._steps[-1] = last.model_copy(update={"data": {**last.data, "flags": list(flags)}})

    def _step(
        self,
        kind: Literal["plan", "action", "observation", "event"],
        content: str,
        data: dict[str, Json] | None = None,
    ) -> None:
        self._steps.append(Step(index=len(self._steps), kind=kind, content=content, data=data or {}))


def _action_data(action: Action) -> dict[str, Json]:
    data: dict[str, Json] = {
        "calls": [
            {"name": call.name, "arguments": call.arguments}
            if call.error is None
            else {"name": call.name, "raw": call.raw, "error": call.error}
            for call in action.tool_calls
        ]
    }
    if action.malformed is not None:
        data["malformed"] = action.malformed
    return data


class Reflecting:
    """``ports.ReflectionContext``: the stored trajectory's unit, the gate's models, the version that was read."""

    def __init__(self, unit: Unit, bank: BankReader, models: MeteredModels) -> None:
        self._unit = unit
        self._bank = bank
        self._models = models

    @property
    def unit(self) -> Unit:
        """See ``ports.ReflectionContext``."""
        return self._unit

    async def turn(self, role: Role, turn: Turn) -> ChatReply:
        """See ``ports.ReflectionContext``."""
        return await self._models.turn(role, turn)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """See ``ports.ReflectionContext``."""
        return await self._models.embed(texts, "document")

    async def nearest(self, collection: str, vector: Vector, min_similarity: float) -> Hit | None:
        """See ``ports.ReflectionContext``."""
        if self._unit.read_version == 0:
            return None
        asked = BankQuery(
            run_id=self._unit.run_id,
            version=self._unit.read_version,
            collection=collection,
            vector=vector,
            limit=1,
            min_similarity=min_similarity,
        )
        hits = await self._models.in_time(lambda: self._bank.search(asked), "the bank")
        return hits[0] if hits else None
