"""An agent double for the benchmark ``credit_world``: planner, executor and gate of a simulated world.

Built in, and so no finding of any run: it knows the world's hidden rules. It plans or acts by a rule that its
prompt states, right or wrong, without judging it; where none is stated it guesses, right for a fixed share of
cases. Its gate sees the true cause and writes the matching lesson, wrong for a share of requests. What a run
measures is everything between: whether the lesson is stored, found, ranked, shown, merged or pruned as it should.

Every reply is a function of (settings, request) without its session id. What it must know of a case is read from
the prompt; what is no prompt of this world is left to the hash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pydantic import Field

from chime_dist.core.canonical import canonical_json
from chime_dist.core.credit_world import (
    ARGUMENTS,
    TOOL,
    Case,
    all_right,
    chance,
    family_in,
    hidden_rule,
    read_case,
    rules_in,
    scenario,
    stated,
    statements,
    true_label,
    wrong_rule,
)
from chime_dist.core.episode import Json, Usage
from chime_dist.core.frozen import Frozen
from chime_dist.core.memory import Stage
from chime_dist.core.model_call import ChatReply, ChatRequest, Message, ToolCall
from chime_dist.core.verdict import Label, attributed

_ACT = re.compile(rf'\{{[^{{}}]*"(?:{"|".join(ARGUMENTS.values())})"[^{{}}]*\}}')
_OUTCOME = re.compile(r"\b(success|failure)\b")


class CreditWorldAgentSettings(Frozen):
    """How good the agent is without and with lessons."""

    seed: int = 0
    gate_accuracy: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of gate requests, chosen by hash, that get the true label."""
    base_rate: float = Field(default=0.25, ge=0.0, le=1.0)
    """Share of cases, chosen by hash for each stage, whose rule the agent guesses when nothing states one."""


class CreditWorldAgent:
    """A ``Script`` for ``ScriptedBackbone``: which role is asked shows in the request's schema and tools."""

    def __init__(self, settings: CreditWorldAgentSettings | None = None) -> None:
        self._settings = settings or CreditWorldAgentSettings()

    def __call__(self, request: ChatRequest) -> ChatReply | None:
        """The reply, or None where the request is none of this world."""
        briefing, acted = _briefing(request.messages)
        schema = request.response_schema
        if schema is not None and request.schema_name == "merge":
            return _merged(request, schema, briefing)
        case = read_case(briefing)
        if case is None:
            return None
        if request.tools:
            return _said(request, "", (_tool_call(self._act(case, briefing), acted),))
        if schema is None:
            return _said(request, self._plan(case, briefing))
        if request.schema_name == "action":
            call = {"name": TOOL, "arguments": self._act(case, briefing)}
            return _said(request, canonical_json({"calls": [call], "answer": "The next step."}))
        if request.schema_name == "diagnosis":
            return _said(request, canonical_json(self._diagnosis(case, briefing, schema)))
        return None

    def _plan(self, case: Case, briefing: str) -> str:
        rule = self._rule(case, Stage.PLAN, briefing)
        return f"1. {stated(rule, Stage.PLAN)}\n2. Take every step with the tool, in that order."

    def _act(self, case: Case, briefing: str) -> dict[str, Json]:
        return {name: self._rule(case, stage, briefing) for stage, name in ARGUMENTS.items()}

    def _rule(self, case: Case, stage: Stage, briefing: str) -> str:
        """The first rule the prompt states (the plan stands before lessons, better lessons before others), or a
        guess that stays the same however often the case is met."""
        shown = rules_in(briefing, stage)
        if shown:
            return shown[0]
        lucky = chance(self._settings.seed, "luck", stage, case.world, case.id) < self._settings.base_rate
        return hidden_rule(case, stage) if lucky else wrong_rule(case, stage, self._settings.seed, "guess")

    def _diagnosis(self, case: Case, briefing: str, schema: dict[str, Json]) -> dict[str, Json]:
        used = _used(briefing)
        right = {stage: all_right(case, stage, used[stage]) for stage in Stage}
        outcome = _OUTCOME.search(briefing)
        success = outcome is not None and outcome[1] == "success"
        truth = true_label(success, right[Stage.PLAN], right[Stage.EXEC])
        draw = (self._settings.seed, briefing)
        sees = chance("gate", *draw) < self._settings.gate_accuracy
        label = truth if sees else _other_label(truth, chance("label", *draw))
        reply: dict[str, Json] = {
            "assessment": {
                "plan": _kept(right[Stage.PLAN]),
                "execution": _kept(right[Stage.EXEC]),
                "external": "decided the result" if truth is Label.NONE else "no influence",
            },
            "label": label.value,
            "confidence": round(0.5 + 0.5 * chance("confidence", *draw), 2),
        }
        for stage in Stage:
            # Whoever blames a stage that was not at fault advises to change what was right.
            knows = stage in attributed(truth)
            rule = hidden_rule(case, stage) if knows else wrong_rule(case, stage, "lesson", *draw)
            named = stage in attributed(label)
            reply[f"{stage.value}_experience"] = _lesson(case, stage, rule, *draw) if named else None
        ids = schema.get("properties", {}).get("misleading", {}).get("items", {}).get("enum")
        if ids is not None:
            reply["misleading"] = _misleading(briefing, ids, used, right) if sees else []
        return reply


def _briefing(messages: Sequence[Message]) -> tuple[str, int]:
    """The first user message, which holds the task and the role's part; and how many turns were taken since."""
    spoken = [message for message in messages if message.get("role") != "system"]
    content = spoken[0].get("content") if spoken else ""
    taken = sum(message.get("role") == "assistant" for message in spoken)
    return (content if isinstance(content, str) else ""), taken


def _used(briefing: str) -> dict[Stage, list[str]]:
    """The rules named in every call that the gate is shown, by stage."""
    used: dict[Stage, list[str]] = {stage: [] for stage in Stage}
    for written in _ACT.findall(briefing):
        try:
            arguments = json.loads(written)
        except ValueError:
            continue
        for stage, name in ARGUMENTS.items():
            used[stage].append(str(arguments.get(name)))
    return used


def _misleading(
    briefing: str, ids: Sequence[str], used: dict[Stage, list[str]], right: dict[Stage, bool]
) -> list[str]:
    """Shown lessons whose first rule was followed although the case needed another."""
    starts = {item: re.search(rf"^\W*{re.escape(item)}\b", briefing, re.MULTILINE) for item in ids}
    places = {item: found.start() for item, found in starts.items() if found is not None}
    found = []
    for item, start in places.items():
        end = min((other for other in places.values() if other > start), default=len(briefing))
        told = {stage: rules_in(briefing[start:end], stage) for stage in Stage}
        if any(rules and rules[0] in used[stage] and not right[stage] for stage, rules in told.items()):
            found.append(item)
    return found


def _other_label(truth: Label, draw: float) -> Label:
    others = [label for label in Label if label is not truth]
    return others[int(draw * len(others))]


def _lesson(case: Case, stage: Stage, rule: str, *draw: object) -> dict[str, Json]:
    variant = int(chance("scenario", stage, *draw) * 3)
    return {
        "scenario": scenario(case.family, variant),
        "experience": stated(rule, stage),
        "actionable": True,
    }


def _kept(right: bool) -> str:
    return "kept the rule" if right else "broke the rule"


def _merged(request: ChatRequest, schema: dict[str, Json], briefing: str) -> ChatReply | None:
    """Every rule of both lessons once, the newest first: that is the one a reader follows."""
    family = family_in(briefing)
    rules = statements(briefing)
    if family is None or not rules:
        return None
    newest_first = dict.fromkeys([rules[-1], *rules])
    merged: dict[str, Json] = {"experience": "\n".join(stated(rule, stage) for stage, rule in newest_first)}
    if "scenario" in schema.get("properties", {}):
        merged["scenario"] = scenario(family, 0)
    return _said(request, canonical_json(merged))


def _tool_call(arguments: dict[str, Json], acted: int) -> ToolCall:
    return ToolCall(id=f"act_{acted}", name=TOOL, arguments=arguments, raw=canonical_json(arguments))


def _said(request: ChatRequest, text: str, calls: tuple[ToolCall, ...] = ()) -> ChatReply:
    asked = sum(len(str(message.get("content") or "").split()) for message in request.messages)
    answered = len((text or " ".join(call.raw for call in calls)).split())
    return ChatReply(
        text=text,
        tool_calls=calls,
        finish_reason="tool_calls" if calls else "stop",
        usage=Usage(calls=1, requests=1, prompt_tokens=asked, completion_tokens=answered),
    )
