"""How the agent double of ``credit_world`` plays A-MapReduce: it plans by parts, and keeps a book of rules.

Nobody sees a cause here: a success speaks for every rule of its plan, a failure against it. A plan that went well
is followed, unless the prompt shows that it failed in a case of the family; a comparison goes by which of its
cases are more. So a rule is learnt only once it was guessed. What is said of a family is "TITLE: statements",
alone or in a row, so that a merged rule can still be told apart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
    known = [text for rule in _rules(asked.briefing).values() for text in _told(rule)]
    told = [text for text in known if _same_family(asked, text)]
    nothing = f"Nothing is known of {FAMILIES[asked.case.family].title}"
    return asked.json({"hints": told[: _most(asked.request, "hints")] or [nothing]})


def subtasks(asked: Asked) -> ChatReply:
    """One for each stage."""
    return asked.json({"subtasks": list(_PARTS.values())[: _most(asked.request, "subtasks")]})


def guidance(asked: Asked) -> ChatReply:
    """The rule of one stage: a hint's, else that of a task that went well, else a guess."""
    found = _NUMBER.search(asked.briefing)
    number = int(found[1]) if found is not None else 1
    _, _, hinted = asked.briefing.partition("Hints for this task:")
    seen = replace(asked, briefing="\n".join([hinted, *_went_well(asked)]))
    stage = list(_PARTS)[(number - 1) % len(_PARTS)]
    return asked.text(stated(seen.rule(stage), stage))


def reduced(asked: Asked) -> ChatReply:
    """A plan that states what the parts state, and guesses the rest."""
    _, _, parts = asked.briefing.partition("thought about separately:")
    seen = replace(asked, briefing=parts)
    lines = [stated(seen.rule(stage), stage) for stage in Stage]
    return asked.text("\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1)))


def operations(asked: Asked) -> ChatReply:
    """Brings the book in line with the cases: of a family it then says what went well more often than not, and
    nothing that went wrong more often. What else a rule says stays; corrections come first, agreements last."""
    lessons = [lesson for case in _CASE.findall(asked.briefing) if (lesson := _lesson(*case)) is not None]
    book = _Book({item: _told(rule) for item, rule in _rules(asked.briefing).items()})
    for family in dict.fromkeys(lesson.family for lesson in lessons):
        book.learn([lesson for lesson in lessons if lesson.family == family])
    return asked.json({"operations": book.operations()[: _most(asked.request, "operations")]})


def merged_rules(request: ChatRequest, briefing: str) -> ChatReply | None:
    """Everything that the rules say, once, dealt out to as many rules as there may be."""
    told = list(dict.fromkeys(_told(" ".join(_rules(briefing).values()))))
    if not told:
        return None
    most = _most(request, "rules")
    return said(
        request, canonical_json({"rules": [" ".join(told[start::most]) for start in range(most)][: len(told)]})
    )


class _Lesson(NamedTuple):
    """What one compared case says."""

    name: str
    family: int
    text: str

    @property
    def succeeded(self) -> bool:
        """Whether the case is named as a success."""
        return self.name.startswith("S")


@dataclass(slots=True)
class _Book:
    """The listed rules, each a row of what it says, while the cases of one family after the other are compared."""

    rules: dict[str, list[str]]
    agreed: dict[str, list[str]] = field(default_factory=dict)
    """By id, the cases that bear a rule out."""
    changed: dict[str, list[str]] = field(default_factory=dict)
    """By id, the cases for which a rule becomes another."""
    added: list[tuple[str, list[str]]] = field(default_factory=list)
    """New texts, and their cases."""

    def learn(self, lessons: Sequence[_Lesson]) -> None:
        """Compare the cases of one family."""
        balance: Counter[str] = Counter()
        for lesson in lessons:
            balance[lesson.text] += 1 if lesson.succeeded else -1
        best = max(balance, key=lambda text: balance[text])
        good = best if balance[best] > 0 else None
        names = [lesson.name for lesson in lessons if lesson.text == good and lesson.succeeded]
        said = self._said_of(lessons[0].family)
        if good is None:
            for item, text in said:
                if balance[text] < 0:
                    failures = [lesson.name for lesson in lessons if lesson.text == text and not lesson.succeeded]
                    self._rewrite(item, text, None, failures)
        elif same := [item for item, text in said if text == good]:
            self.agreed.setdefault(same[0], []).extend(names)
        elif said:
            self._rewrite(*said[0], good, names)
        else:
            self.added.append((good, names))

    def operations(self) -> list[dict[str, Json]]:
        """What has to be done to the rules as they were listed."""
        changes = [
            _operation("EDIT", item, " ".join(self.rules[item]), [*names, *self.agreed.get(item, ())])
            if self.rules[item]
            else _operation("REMOVE", item, "", names)
            for item, names in self.changed.items()
        ]
        additions = [_operation("ADD", "", text, names) for text, names in self.added]
        agreements = [
            _operation("AGREE", item, "", names) for item, names in self.agreed.items() if item not in self.changed
        ]
        return [*changes, *additions, *agreements]

    def _said_of(self, family: int) -> list[tuple[str, str]]:
        return [(item, text) for item, told in self.rules.items() for text in told if family_in(text) == family]

    def _rewrite(self, item: str, old: str, new: str | None, names: list[str]) -> None:
        told = [new if text == old else text for text in self.rules[item]]
        self.rules[item] = [text for text in told if text is not None]
        self.changed.setdefault(item, []).extend(names)


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


def _went_well(asked: Asked) -> list[str]:
    """The shown tasks that went well, but for those by whose plan a shown one of the case's family failed."""
    records = _RECORD.findall(asked.briefing)
    failed = {statements(text) for text, outcome in records if outcome == "failure" and _same_family(asked, text)}
    return [text for text, outcome in records if outcome == "success" and statements(text) not in failed]


def _same_family(asked: Asked, task: str) -> bool:
    return family_in(task) == asked.case.family


def _told(rule: str) -> list[str]:
    """What a rule says of each family."""
    return [f"{title}: {text.strip()}" for title, text in _TOLD.findall(rule)]


def _most(request: ChatRequest, name: str) -> int:
    """How many entries the schema allows."""
    schema = (request.response_schema or {}).get("properties", {}).get(name, {})
    return int(schema.get("maxItems", 1))
