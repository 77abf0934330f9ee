"""One open case of the simulated world: takes steps, tells nothing, and knows at the end."""

from __future__ import annotations

from typing import Literal

from chime_dist.core.credit_world import ARGUMENTS, TOOL, Case, all_right, interfered
from chime_dist.core.episode import EndReason, Json
from chime_dist.core.memory import Stage
from chime_dist.core.model_call import Message
from chime_dist.errors import BenchmarkError
from chime_dist.ports import Action, Observation, TaskView


def tool_definition() -> dict[str, Json]:
    """The one tool, as an OpenAI definition."""
    described = {
        Stage.PLAN: "The rule about the order of work that the plan follows.",
        Stage.EXEC: "The rule about how values are written.",
    }
    return {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "Take the next step of the case.",
            "parameters": {
                "type": "object",
                "properties": {
                    name: {"type": "string", "minLength": 1, "maxLength": 200, "description": described[stage]}
                    for stage, name in ARGUMENTS.items()
                },
                "required": list(ARGUMENTS.values()),
                "additionalProperties": False,
            },
        },
    }


class CreditEnvironment:
    """Implements ``ports.Environment``. Observations count steps and say nothing else (R8)."""

    def __init__(self, case: Case, steps: int, noise: float, action_mode: Literal["tools", "json_schema"]) -> None:
        self._case = case
        self._steps = steps
        self._noise = noise
        self._native = action_mode == "tools"
        self._used: dict[Stage, list[str]] = {stage: [] for stage in Stage}
        self._taken = 0
        self._end: EndReason | None = None

    @property
    def view(self) -> TaskView:
        """The case's words and the tool. Neither hidden rule is in it."""
        return TaskView(
            request=self._case.request,
            messages=({"role": "user", "content": self._case.request},),
            policy=(
                f"A case takes {self._steps} steps. Take each one with the tool {TOOL}, and name the rules that "
                "you go by. Every kind of case has its own rules; nobody tells them."
            ),
            tools=(tool_definition(),),
        )

    async def act(self, action: Action) -> Observation:
        """Take every call of the action as one step. Words without a call give the case up.

        Raises BenchmarkError once the case is over.
        """
        if self._end is not None:
            raise BenchmarkError(f"case {self._case.id} is over")
        told: list[Message] = []
        self._end = _unusable(action)
        for call in action.tool_calls if self._end is None else ():
            arguments = call.arguments or {}
            for stage, name in ARGUMENTS.items():
                self._used[stage].append(arguments[name].strip())
            self._taken += 1
            told.append(self._told(call.id))
        if self._end is None and (self._taken >= self._steps or not action.tool_calls):
            self._end = EndReason.SCORED
        return Observation(done=self._end is not None, messages=tuple(told), end_reason=self._end)

    async def score(self) -> bool:
        """Exactly the asked-for steps, both rules kept in each; noise turns the verdict of a finished case."""
        if self._end is not EndReason.SCORED or self._taken != self._steps:
            return False
        kept = all(all_right(self._case, stage, self._used[stage]) for stage in Stage)
        return kept != interfered(self._case, self._noise)

    async def close(self) -> None:
        """Nothing to free."""

    def _told(self, call_id: str) -> Message:
        content = f"Step {self._taken} of {self._steps} is on file."
        if self._native:
            return {"role": "tool", "tool_call_id": call_id, "content": content}
        return {"role": "user", "content": content}


def _unusable(action: Action) -> EndReason | None:
    for call in action.tool_calls:
        arguments = call.arguments
        if call.error is not None or call.name != TOOL or arguments is None:
            return EndReason.MALFORMED_OUTPUT
        if not all(isinstance(arguments.get(name), str) for name in ARGUMENTS.values()):
            return EndReason.MALFORMED_OUTPUT
    if action.malformed is not None:
        return EndReason.MALFORMED_OUTPUT
    if not action.tool_calls and not action.text.strip():
        return EndReason.EMPTY_OUTPUT
    return None
