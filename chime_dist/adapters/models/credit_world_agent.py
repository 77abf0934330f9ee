"""An agent double for the benchmark ``credit_world``: planner, executor and gate of a simulated world.

Built in, and so no finding of any run: it knows the world's hidden rules. How it plans and acts is in
``credit_world_asked``, what it learns from an attempt in ``credit_world_lessons``. What a run measures is
everything between: whether the lesson is stored, found, ranked, shown, merged or pruned as it should.

Every reply is a function of (settings, request) without its session id. What it must know of a case is read from
the prompt; what is no prompt of this world is left to the hash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from chime_dist.adapters.models.credit_world_asked import (
    Asked,
    CreditWorldAgentSettings,
    Reply,
    briefed,
    json_action,
    tool_call,
)
from chime_dist.adapters.models.credit_world_lessons import (
    combination,
    diagnosis,
    distillation,
    extraction,
    merge,
)
from chime_dist.adapters.models.credit_world_planners import draft, outline, revise, scores
from chime_dist.adapters.models.credit_world_rules import (
    guidance,
    hints,
    merged_rules,
    operations,
    reduced,
    subtasks,
)
from chime_dist.core.credit_world import read_case, stated
from chime_dist.core.memory import Stage
from chime_dist.core.model_call import ChatReply, ChatRequest

__all__ = ["CreditWorldAgent", "CreditWorldAgentSettings"]


def plan(asked: Asked) -> ChatReply:
    """A plan in words that states one rule."""
    rule = asked.rule(Stage.PLAN)
    return asked.text(f"1. {stated(rule, Stage.PLAN)}\n2. Take every step with the tool, in that order.")


_FREE: Mapping[str, Reply] = {"reply": plan, "draft": draft, "guidance": guidance, "reduced": reduced}
"""What is said to prompts without a schema, by the turn's ``schema_name``."""

_STRUCTURED: Mapping[str, Reply] = {
    "action": json_action,
    "diagnosis": diagnosis,
    "distillation": distillation,
    "extraction": extraction,
    "hints": hints,
    "outline": outline,
    "revise": revise,
    "rule_operations": operations,
    "scores": scores,
    "subtasks": subtasks,
}
"""What is said to prompts with a schema, by its name."""

_CASELESS: Mapping[str, Callable[[ChatRequest, str], ChatReply | None]] = {
    "combination": combination,
    "merge": merge,
    "merged_rules": merged_rules,
}
"""Likewise, of prompts about lessons and no case; they get the request and its first user message."""


class CreditWorldAgent:
    """A ``Script`` for ``ScriptedBackbone``: which role is asked shows in the request's schema and tools."""

    def __init__(self, settings: CreditWorldAgentSettings | None = None) -> None:
        self._settings = settings or CreditWorldAgentSettings()

    def __call__(self, request: ChatRequest) -> ChatReply | None:
        """The reply, or None where the request is none of this world."""
        briefing, turns = briefed(request.messages)
        structured = request.response_schema is not None
        if structured and request.schema_name in _CASELESS:
            return _CASELESS[request.schema_name](request, briefing)
        case = read_case(briefing)
        if case is None:
            return None
        asked = Asked(self._settings, request, case, briefing, turns)
        if request.tools:
            return tool_call(asked)
        reply = (_STRUCTURED if structured else _FREE).get(request.schema_name)
        return reply(asked) if reply is not None else None
