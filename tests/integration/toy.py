"""A small world for the engine: tasks in families, a model that learns from what it is shown, all by hash.

Outcomes depend on the plan and the action, plans depend on the memories in the prompt, and the gate writes a few
distinct scenarios per family: so inserts, merges, value moves and prunes all happen, and any difference in what
an episode read shows up in everything that follows.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from typing import Literal

from chime_dist.adapters.models.scripted import ScriptedBackbone, ScriptedSettings
from chime_dist.core.canonical import canonical_json
from chime_dist.core.episode import EndReason
from chime_dist.core.model_call import ChatReply, ChatRequest, ToolCall
from chime_dist.core.task import Task, TaskView
from chime_dist.errors import BenchmarkError
from chime_dist.ports import Action, Observation

FAMILIES = ("returns", "bookings", "invoices")
GOLD = "GOLD-CANARY-7f3a"
"""What the toy's evaluator knows and nobody else may see (R8)."""

_TOOL = {
    "type": "function",
    "function": {
        "name": "act",
        "description": "Do it.",
        "parameters": {"type": "object", "properties": {"how": {"type": "string"}}, "required": ["how"]},
    },
}


def draw(*parts: str) -> int:
    """A number that only depends on the parts."""
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:8], "big")


class ToyEnvironment:
    """One answer and a check."""

    def __init__(self, task_id: str) -> None:
        self._task = task_id
        self._answer = ""
        family, _, number = task_id.partition("-")
        request = f"Handle the {family} of customer {number} and report what was done about the {family}"
        self.view = TaskView(
            request=request, messages=({"role": "user", "content": request},), policy="Be brief.", tools=(_TOOL,)
        )

    async def act(self, action: Action) -> Observation:
        """The first action ends the task."""
        self._answer = canonical_json([action.text, [call.arguments for call in action.tool_calls]])
        return Observation(done=True, end_reason=EndReason.SCORED)

    async def score(self) -> bool:
        """By hash of the answer and the reference answer."""
        return draw(self._task, self._answer, GOLD) % 5 < 3

    async def close(self) -> None:
        """Nothing is held."""


class ToyBenchmark:
    """``size`` tasks, spread over the families."""

    name = "toy"
    action_mode: Literal["tools", "json_schema"] = "tools"
    max_steps = 3
    usual_steps = 1

    def __init__(self, size: int) -> None:
        self._ids = [f"{FAMILIES[i % len(FAMILIES)]}-{i}" for i in range(size)]

    def tasks(self) -> list[Task]:
        """In order of their numbers."""
        return [Task(id=task_id, domain=task_id.partition("-")[0]) for task_id in self._ids]

    def fingerprint(self) -> dict[str, str]:
        """Nothing upstream."""
        return {}

    async def open(self, task_id: str) -> ToyEnvironment:
        """See ``ports.Benchmark``."""
        if task_id not in self._ids:
            raise BenchmarkError(f"toy has no task {task_id!r}")
        return ToyEnvironment(task_id)


def toy_script(request: ChatRequest) -> ChatReply | None:
    """The toy's model; None leaves a request to the shipped double."""
    said = canonical_json(list(request.messages))
    if request.schema_name == "diagnosis":
        return ChatReply(text=json.dumps(_diagnosis(request, said)))
    if request.schema_name == "merge":
        return ChatReply(text=json.dumps({"experience": f"combined rule {draw(said) % 10_000}"}))
    if request.tools:
        call = ToolCall(id="c0", name="act", arguments={"how": str(draw("act", said) % 7)}, raw="")
        return ChatReply(tool_calls=(call,), finish_reason="tool_calls")
    return ChatReply(text=f"1. plan variant {draw('plan', said) % 5}")


def _diagnosis(request: ChatRequest, said: str) -> dict[str, object]:
    label = ("planning", "execution", "both", "both", "none")[draw("label", said) % 5]
    family = next(family for family in FAMILIES if family in said)
    assert request.response_schema is not None
    shown = request.response_schema["properties"].get("misleading", {}).get("items", {}).get("enum", [])
    reply: dict[str, object] = {
        "assessment": {},
        "label": label,
        "confidence": (30 + draw("confidence", said) % 71) / 100,
        "misleading": [item for item in shown if draw("misleading", item, said) % 3 == 0],
    }
    for stage, labels in (("plan", ("planning", "both")), ("exec", ("execution", "both"))):
        if label not in labels:
            reply[f"{stage}_experience"] = None
            continue
        when = ("now", "soon", "later", "twice")[draw(stage, said) % 4]
        rule, word = draw("rule", stage, said) % 1000, draw(said) % 50
        reply[f"{stage}_experience"] = {
            "scenario": f"Handle the {family} of a customer and report {when}",
            "experience": f"rule {rule} for {family}: word{word} comes first",
            "actionable": draw("actionable", stage, said) % 6 > 0,
        }
    return reply


class JitteryBackbone:
    """The toy's model behind random delays: timing must not matter."""

    def __init__(self, longest_s: float, seed: int) -> None:
        self._inner = ScriptedBackbone(ScriptedSettings(), script=toy_script)
        self._longest_s = longest_s
        self._random = random.Random(seed)
        self.requests: list[ChatRequest] = []

    async def complete(self, request: ChatRequest, budget_s: float) -> ChatReply:
        """See ``ports.Backbone``."""
        self.requests.append(request)
        if self._longest_s:
            await asyncio.sleep(self._random.uniform(0, self._longest_s))
        return await self._inner.complete(request, budget_s)

    async def close(self) -> None:
        """Nothing is held."""
