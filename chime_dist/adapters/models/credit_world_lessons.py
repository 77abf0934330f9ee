"""What the agent double of ``credit_world`` learns from an attempt: it sees the true cause, unless told not to.

The gate writes the lesson that matches the cause. Who only distils an outcome has no cause to go by: a success
speaks for every rule that was used, a failure against every one, right or wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from chime_dist.adapters.models.credit_world_asked import Asked, said
from chime_dist.core.canonical import canonical_json
from chime_dist.core.credit_world import family_in, hidden_rule, rules_in, scenario, stated, statements, true_label
from chime_dist.core.episode import Json
from chime_dist.core.memory import Stage
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.core.verdict import Label, attributed


def diagnosis(asked: Asked) -> ChatReply:
    """The gate's verdict, right for the share of requests that see the cause."""
    right = asked.right
    truth = _truth(asked)
    label = truth if asked.sees else _other_label(truth, asked.chance("label"))
    reply: dict[str, Json] = {
        "assessment": {
            "plan": _kept(right[Stage.PLAN]),
            "execution": _kept(right[Stage.EXEC]),
            "external": "decided the result" if truth is Label.NONE else "no influence",
        },
        "label": label.value,
        "confidence": round(0.5 + 0.5 * asked.chance("confidence"), 2),
    }
    for stage in Stage:
        # Whoever blames a stage that was not at fault advises to change what was right.
        knows = stage in attributed(truth)
        rule = hidden_rule(asked.case, stage) if knows else asked.other_rule(stage)
        named = stage in attributed(label)
        reply[f"{stage.value}_experience"] = _lesson(asked, stage, rule) if named else None
    ids = _shown_ids(asked, "misleading")
    if ids:
        reply["misleading"] = _misleading(asked, ids) if asked.sees else []
    return asked.json(reply)


def distillation(asked: Asked) -> ChatReply:
    """One lesson for each stage, from the outcome alone."""
    return asked.json({f"{s.value}_experience": _lesson(asked, s, _distilled(asked, s)) for s in Stage})


def extraction(asked: Asked) -> ChatReply:
    """One lesson about both stages: new, or in place of a shown one that was followed into a failure; none where
    a shown one says the same. Shown ones about cases of another family are no lessons for this one."""
    rules = {stage: _distilled(asked, stage) for stage in Stage}
    text = " ".join(stated(rule, stage) for stage, rule in rules.items())
    shown = _spans(asked.briefing, [i for i in _shown_ids(asked, "target") if i != "none"])
    about = {item: told for item, told in shown.items() if family_in(told) == asked.case.family}
    if any(rules_in(told, stage)[:1] == (rule,) for told in about.values() for stage, rule in rules.items()):
        return asked.json({"operation": "NONE", "target": "none", "scenario": "", "experience": ""})
    followed = [item for item, told in about.items() if any(_followed(asked, told).values())]
    target = followed[0] if followed and not asked.succeeded else None
    return asked.json(
        {
            "operation": "ADD" if target is None else "UPDATE",
            "target": target or "none",
            "scenario": asked.scenario(Stage.PLAN),
            "experience": text,
        }
    )


def merge(request: ChatRequest, briefing: str) -> ChatReply | None:
    """Every rule of both lessons once, the newest first: that is the one a reader follows."""
    rules = statements(briefing)
    return _combined(request, briefing, [*rules[-1:], *rules])


def combination(request: ChatRequest, briefing: str) -> ChatReply | None:
    """Likewise of two texts of one lesson about both stages: the last text's rules come first."""
    return _combined(request, briefing, statements(briefing)[::-1])


def _combined(request: ChatRequest, briefing: str, rules: Sequence[tuple[Stage, str]]) -> ChatReply | None:
    family = family_in(briefing)
    if family is None or not rules:
        return None
    told = "\n".join(stated(rule, stage) for stage, rule in dict.fromkeys(rules))
    combined: dict[str, Json] = {"experience": told}
    if "scenario" in (request.response_schema or {}).get("properties", {}):
        combined["scenario"] = scenario(family, 0)
    return said(request, canonical_json(combined))


def _truth(asked: Asked) -> Label:
    right = asked.right
    return true_label(asked.succeeded, right[Stage.PLAN], right[Stage.EXEC])


def _other_label(truth: Label, draw: float) -> Label:
    others = [label for label in Label if label is not truth]
    return others[int(draw * len(others))]


def _kept(right: bool) -> str:
    return "kept the rule" if right else "broke the rule"


def _lesson(asked: Asked, stage: Stage, rule: str) -> dict[str, Json]:
    return {"scenario": asked.scenario(stage), "experience": stated(rule, stage), "actionable": True}


def _distilled(asked: Asked, stage: Stage) -> str:
    """The rule that an outcome alone suggests: the one that was used, or after a failure another one, which is
    the right one only for a stage that was at fault."""
    used = asked.used[stage]
    if asked.succeeded and used:
        return used[0]
    at_fault = asked.sees and not asked.right[stage]
    return hidden_rule(asked.case, stage) if at_fault else asked.other_rule(stage)


def _shown_ids(asked: Asked, field: str) -> list[str]:
    """The ids that the reply's schema lets ``field`` name."""
    schema = (asked.request.response_schema or {}).get("properties", {}).get(field, {})
    ids: list[str] = schema.get("items", schema).get("enum", [])
    return ids


def _spans(briefing: str, ids: Sequence[str]) -> dict[str, str]:
    """What the prompt says of each shown lesson: from its id to the next one's."""
    starts = {item: re.search(rf"^\W*{re.escape(item)}\b", briefing, re.MULTILINE) for item in ids}
    places = {item: found.start() for item, found in starts.items() if found is not None}
    return {
        item: briefing[start : min((p for p in places.values() if p > start), default=len(briefing))]
        for item, start in places.items()
    }


def _followed(asked: Asked, told: str) -> dict[Stage, bool]:
    """Stages whose first rule in this lesson was used."""
    used = asked.used
    rules = {stage: rules_in(told, stage) for stage in Stage}
    return {stage: bool(found) and found[0] in used[stage] for stage, found in rules.items()}


def _misleading(asked: Asked, ids: Sequence[str]) -> list[str]:
    """Shown lessons whose first rule was followed although the case needed another."""
    right = asked.right
    return [
        item
        for item, told in _spans(asked.briefing, ids).items()
        if any(followed and not right[stage] for stage, followed in _followed(asked, told).items())
    ]
