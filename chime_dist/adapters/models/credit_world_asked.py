"""One request to the agent double of ``credit_world``, taken apart: which case, what is known, what to do.

The agent plans or acts by a rule that its prompt states, right or wrong, without judging it; where none is stated
it guesses, right for a fixed share of cases. Whatever a method asks for, its reply is made of these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import Field

from chime_dist.core.canonical import canonical_json
from chime_dist.core.credit_world import (
    ARGUMENTS,
    TOOL,
    Case,
    all_right,
    chance,
    hidden_rule,
    rules_in,
    scenario,
    wrong_rule,
)
from chime_dist.core.episode import Json, Usage
from chime_dist.core.frozen import Frozen
from chime_dist.core.memory import Stage
from chime_dist.core.model_call import ChatReply, ChatRequest, Message, ToolCall

_ACT = re.compile(rf'\{{[^{{}}]*"(?:{"|".join(ARGUMENTS.values())})"[^{{}}]*\}}')
_OUTCOME = re.compile(r"\b(success|failure)\b")


class CreditWorldAgentSettings(Frozen):
    """How good the agent is without and with lessons."""

    seed: int = 0
    gate_accuracy: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of requests to the gate, chosen by hash, that see the true cause."""
    base_rate: float = Field(default=0.25, ge=0.0, le=1.0)
    """Share of cases, chosen by hash for each stage, whose rule the agent guesses when nothing states one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request about one case."""

    settings: CreditWorldAgentSettings
    request: ChatRequest
    case: Case
    briefing: str
    """The first user message: the task and the role's part."""
    turns: int
    """How many turns were taken since."""

    def rule(self, stage: Stage) -> str:
        """The first rule the prompt states (the plan stands before lessons, better lessons before others), or a
        guess that stays the same however often the case is met."""
        shown = rules_in(self.briefing, stage)
        if shown:
            return shown[0]
        lucky = chance(self.settings.seed, "luck", stage, self.case.world, self.case.id) < self.settings.base_rate
        if lucky:
            return hidden_rule(self.case, stage)
        return wrong_rule(self.case, stage, self.settings.seed, "guess")

    def action(self) -> dict[str, Json]:
        """The arguments of the next step."""
        return {name: self.rule(stage) for stage, name in ARGUMENTS.items()}

    @property
    def succeeded(self) -> bool:
        """Whether the prompt calls the attempt a success."""
        outcome = _OUTCOME.search(self.briefing)
        return outcome is not None and outcome[1] == "success"

    @property
    def used(self) -> dict[Stage, list[str]]:
        """The rules named in every step that the prompt shows, by stage."""
        used: dict[Stage, list[str]] = {stage: [] for stage in Stage}
        for written in _ACT.findall(self.briefing):
            try:
                arguments = json.loads(written)
            except ValueError:
                continue
            for stage, name in ARGUMENTS.items():
                used[stage].append(str(arguments.get(name)))
        return used

    @property
    def right(self) -> dict[Stage, bool]:
        """Which stages of the steps shown kept the case's rule."""
        return {stage: all_right(self.case, stage, rules) for stage, rules in self.used.items()}

    @property
    def sees(self) -> bool:
        """Whether this request sees the true cause."""
        return self.chance("gate") < self.settings.gate_accuracy

    def chance(self, kind: str) -> float:
        """A uniform number in [0, 1) for this kind of choice."""
        return chance(kind, self.settings.seed, self.briefing)

    def other_rule(self, stage: Stage) -> str:
        """A rule that does not help: what those advise who do not know."""
        return wrong_rule(self.case, stage, "lesson", self.settings.seed, self.briefing)

    def scenario(self, stage: Stage) -> str:
        """What a lesson of this stage is about."""
        variant = int(chance("scenario", stage, self.settings.seed, self.briefing) * 3)
        return scenario(self.case.family, variant)

    def text(self, text: str) -> ChatReply:
        """Say this."""
        return said(self.request, text)

    def json(self, content: Json) -> ChatReply:
        """Say this as JSON."""
        return said(self.request, canonical_json(content))


Reply = Callable[[Asked], ChatReply | None]
"""What the agent says to one kind of prompt; None leaves it to the hash."""


def briefed(messages: Sequence[Message]) -> tuple[str, int]:
    """The first user message, and how many turns were taken since."""
    spoken = [message for message in messages if message.get("role") != "system"]
    content = spoken[0].get("content") if spoken else ""
    taken = sum(message.get("role") == "assistant" for message in spoken)
    return (content if isinstance(content, str) else ""), taken


def said(request: ChatRequest, text: str, calls: tuple[ToolCall, ...] = ()) -> ChatReply:
    """The reply to ``request``, its tokens counted by words."""
    asked = sum(len(str(message.get("content") or "").split()) for message in request.messages)
    answered = len((text or " ".join(call.raw for call in calls)).split())
    return ChatReply(
        text=text,
        tool_calls=calls,
        finish_reason="tool_calls" if calls else "stop",
        usage=Usage(calls=1, requests=1, prompt_tokens=asked, completion_tokens=answered),
    )


def tool_call(asked: Asked) -> ChatReply:
    """The next step as a native tool call."""
    arguments = asked.action()
    call = ToolCall(id=f"act_{asked.turns}", name=TOOL, arguments=arguments, raw=canonical_json(arguments))
    return said(asked.request, "", (call,))


def json_action(asked: Asked) -> ChatReply:
    """The next step as one JSON object."""
    return asked.json({"calls": [{"name": TOOL, "arguments": asked.action()}], "answer": "The next step."})
