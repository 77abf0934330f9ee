"""How the agent double of ``credit_world`` plays A-MapReduce: it plans by parts, and keeps a book of rules.

Nobody sees a cause here: a success speaks for every rule of its plan, a failure against it. What is said of a
family is "TITLE: statements", alone or in a row, so that a merged rule can still be told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from chime_dist.adapters.models.credit_world_asked import Asked, said
from chime_dist.core.canonical import canonical_json
from chime_dist.core.credit_world import FAMILIES, family_in, rules_in, stated, statements
from chime_dist.core.episode import Json
from chime_dist.core.memory import Stage
from chime_dist.core.model_call import ChatReply, ChatRequest

_TITLES = "|".join(family.title for family in FAMILIES)
_TOLD = re.compile(rf"({_TITLES}): (.*?)(?=(?:{_TITLES}): |$)")
_RULE = re.compile(r"^- (?:(\d+-\d+): )?(.+)$", re.MULTILINE)
_RECORD = re.compile(r"^- Task: (.*?)^  It was a (success|failure)\.$", re.MULTILINE | re.DOTALL)
_CASE = re.compile(r"^\[([SF]\d+)\] \w+\nTask: (.*?)\nPlan: (.*?)(?=^\[|^The )", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"subtask (\d+) alone")
_PARTS = {
    Stage.PLAN: "Find out in which order this kind of case is worked on",
    Stage.EXEC: "Find out how values are written in it",
}


def hints(asked: Asked) -> ChatReply:
    """What the recalled rules say of the case's family; that nothing is known, where they say nothing."""
    title = FAMILIES[asked.case.family].title
    told = [about for rule in _rules(asked.briefing).values() for about in _about(rule, title)]
    return asked.json({"hints": told[: _most(asked.request, "hints")] or [f"Nothing is known of {title}"]})


def subtasks(asked: Asked) -> ChatReply:
    """One for each stage."""
    return asked.json({"subtasks": list(_PARTS.values())[: _most(asked.request, "subtasks")]})


def guidance(asked: Asked) -> ChatReply:
    """The rule of one stage: a hint's, else that of a task that went well, else a guess."""
    found = _NUMBER.search(asked.briefing)
    number = int(found[1]) if found is not None else 1
    _, _, hinted = asked.briefing.partition("Hints for this task:")
    went_well = [text for text, outcome in _RECORD.findall(asked.briefing) if outcome == "success"]
    seen = replace(asked, briefing="\n".join([hinted, *went_well]))
    stage = list(_PARTS)[(number - 1) % len(_PARTS)]
    return asked.text(stated(seen.rule(stage), stage))


def reduced(asked: Asked) -> ChatReply:
    """A plan that states what the parts state, and guesses the rest."""
    _, _, parts = asked.briefing.partition("thought about separately:")
    seen = replace(asked, briefing=parts)
    lines = [stated(seen.rule(stage), stage) for stage in Stage]
    return asked.text("\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1)))


class _Lesson(NamedTuple):
    """What one compared case says."""

    name: str
    family: int
    text: str


def operations(asked: Asked) -> ChatReply:
    """Successes are agreed with, or written into the rule of their family, or into a new one; a rule that only
    failures went by is removed."""
    rules = _rules(asked.briefing)
    lessons = [lesson for case in _CASE.findall(asked.briefing) if (lesson := _lesson(*case)) is not None]
    by_family: dict[int, list[_Lesson]] = {}
    for lesson in lessons:
        by_family.setdefault(lesson.family, []).append(lesson)
    done = [one for family, told in by_family.items() for one in _operations(rules, family, told)]
    return asked.json({"operations": done[: _most(asked.request, "operations")]})


def merged_rules(request: ChatRequest, briefing: str) -> ChatReply | None:
    """Everything that the rules say, once, dealt out to as many rules as there may be."""
    told = list(dict.fromkeys(f"{title}: {text.strip()}" for title, text in _TOLD.findall(_lines(briefing))))
    if not told:
        return None
    most = _most(request, "rules")
    return said(
        request, canonical_json({"rules": [" ".join(told[start::most]) for start in range(most)][: len(told)]})
    )


def _operations(rules: Mapping[str, str], family: int, lessons: Iterable[_Lesson]) -> Iterable[dict[str, Json]]:
    title = FAMILIES[family].title
    book = {item: about for item, rule in rules.items() for about in _about(rule, title)}
    good = [lesson for lesson in lessons if lesson.name.startswith("S")]
    bad = [lesson for lesson in lessons if lesson.name.startswith("F")]
    for lesson in good[:1]:
        names = [other.name for other in good if other.text == lesson.text]
        same = [item for item, about in book.items() if about == lesson.text]
        if same:
            yield _operation("AGREE", same[0], "", names)
        elif book:
            yield _operation("EDIT", next(iter(book)), lesson.text, names)
        else:
            yield _operation("ADD", "", lesson.text, names)
    if not good:
        for item, about in book.items():
            names = [lesson.name for lesson in bad if lesson.text == about]
            if names:
                yield _operation("REMOVE", item, "", names)


def _operation(op: str, rule: str, text: str, cases: list[str]) -> dict[str, Json]:
    return {"op": op, "rule": rule, "text": text, "cases": cases}


def _lesson(name: str, task: str, plan: str) -> _Lesson | None:
    family = family_in(task)
    used = [rules_in(plan, stage)[:1] for stage in Stage]
    if family is None or not all(used):
        return None
    text = " ".join(stated(rules[0], stage) for stage, rules in zip(Stage, used, strict=True))
    return _Lesson(name, family, f"{FAMILIES[family].title}: {text}")


def _rules(briefing: str) -> dict[str, str]:
    """The listed rules by id, or by place where they have none."""
    found = [(item, text) for item, text in _RULE.findall(briefing) if statements(text)]
    return {item or str(place): text for place, (item, text) in enumerate(found)}


def _lines(briefing: str) -> str:
    return " ".join(_rules(briefing).values())


def _about(rule: str, title: str) -> list[str]:
    return [f"{title}: {text.strip()}" for about, text in _TOLD.findall(rule) if about == title]


def _most(request: ChatRequest, field: str) -> int:
    """How many entries the schema allows."""
    schema = (request.response_schema or {}).get("properties", {}).get(field, {})
    return int(schema.get("maxItems", 1))
