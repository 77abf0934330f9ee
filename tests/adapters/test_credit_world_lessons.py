"""What the double of ``credit_world`` learns where nobody attributes: outcomes speak for or against rules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chime_dist.adapters.models.credit_world_agent import CreditWorldAgent, CreditWorldAgentSettings
from chime_dist.benchmarks.credit_world.environment import CreditEnvironment
from chime_dist.core.credit_world import Case, family_in, hidden_rule, rules_in, scenario, stated, wrong_rule
from chime_dist.core.distillation import distillation_schema
from chime_dist.core.episode import Json
from chime_dist.core.memory import Stage
from chime_dist.core.model_call import ChatRequest, Turn
from chime_dist.core.verdict import GateLimits
from chime_dist.methods.umem.notes import LessonLimits, extraction_schema, lesson_schema
from chime_dist.wiring.registry import prompts

CASE = Case(0, 3, 5)
RIGHT = {stage: hidden_rule(CASE, stage) for stage in Stage}
WRONG = {stage: wrong_rule(CASE, stage, "a test") for stage in Stage}
PROMPTS = prompts(["chime", "umem"])


def lesson(rules: dict[Stage, str]) -> dict[str, str]:
    """One lesson about both stages."""
    return {
        "scenario": scenario(CASE.family, 0),
        "experience": " ".join(stated(rule, stage) for stage, rule in rules.items()),
    }


def said(
    template: str,
    schema: tuple[str, dict[str, Json]],
    variables: dict[str, Json],
    accuracy: float = 1.0,
) -> dict[str, Any]:
    """The agent's reply to a prompt."""
    view = CreditEnvironment(CASE, 1, 0.0, "tools").view
    turn = Turn(
        template=template,
        variables={"view": view.model_dump(mode="json"), "list_tools": True, "repair": None, **variables},
        conversation=() if template.endswith("combine") else view.messages,
    )
    request = ChatRequest(
        messages=PROMPTS.render(turn), response_schema=schema[1], schema_name=schema[0], session_id="s"
    )
    reply = CreditWorldAgent(CreditWorldAgentSettings(gate_accuracy=accuracy))(request)
    assert reply is not None
    found: dict[str, Any] = json.loads(reply.text)
    return found


def after(plan: str, detail: str, outcome: str) -> dict[str, Json]:
    """An attempt of one step by these rules."""
    call = {"name": "act", "arguments": {"plan_rule": plan, "detail": detail}}
    step = {"index": 1, "kind": "action", "content": "", "data": {"calls": [call]}}
    return {"plan": stated(plan, Stage.PLAN), "steps": [step], "outcome": outcome}


def distilled(attempt: dict[str, Json], accuracy: float = 1.0) -> dict[Stage, str]:
    """The rule that was written down for each stage."""
    schema = ("distillation", distillation_schema(GateLimits()))
    found = said("chime/distil", schema, attempt, accuracy)
    return {s: rules_in(found[f"{s}_experience"]["experience"], s)[0] for s in Stage}


def extracted(attempt: dict[str, Json], **lessons: dict[str, str]) -> dict[str, Any]:
    """The extraction, with these lessons in the prompt."""
    shown = [{"id": item.replace("_", "-").removeprefix("m"), **texts} for item, texts in lessons.items()]
    schema = ("extraction", extraction_schema([told["id"] for told in shown], LessonLimits()))
    return said("umem/extract", schema, {**attempt, "lessons": shown})


def test_a_success_speaks_for_every_rule_that_was_used() -> None:
    """Also for one that was wrong, in a case that was won by accident."""
    assert distilled(after(RIGHT[Stage.PLAN], WRONG[Stage.EXEC], "success")) == {
        Stage.PLAN: RIGHT[Stage.PLAN],
        Stage.EXEC: WRONG[Stage.EXEC],
    }


@pytest.mark.parametrize("at_fault", list(Stage))
def test_a_failure_speaks_against_every_rule_also_against_a_right_one(at_fault: Stage) -> None:
    """What attribution would have spared the stage that was not at fault."""
    used = {**RIGHT, at_fault: WRONG[at_fault]}
    found = distilled(after(used[Stage.PLAN], used[Stage.EXEC], "failure"))
    assert found[at_fault] == RIGHT[at_fault]
    assert all(rule != RIGHT[stage] for stage, rule in found.items() if stage is not at_fault)
    blind = distilled(after(used[Stage.PLAN], used[Stage.EXEC], "failure"), accuracy=0.0)
    assert all(rule != RIGHT[stage] for stage, rule in blind.items())


def test_an_extraction_adds_what_is_new_and_leaves_what_is_known() -> None:
    won = after(RIGHT[Stage.PLAN], RIGHT[Stage.EXEC], "success")
    added = extracted(won)
    assert added["operation"] == "ADD"
    assert {s: rules_in(added["experience"], s) for s in Stage} == {s: (rule,) for s, rule in RIGHT.items()}
    assert extracted(won, m3_0=lesson(RIGHT))["operation"] == "NONE"


def test_a_lesson_that_was_followed_into_a_failure_is_rewritten() -> None:
    lost = after(WRONG[Stage.PLAN], WRONG[Stage.EXEC], "failure")
    updated = extracted(lost, m3_0=lesson({Stage.PLAN: "load heavy goods first"}), m4_1=lesson(WRONG))
    assert (updated["operation"], updated["target"]) == ("UPDATE", "4-1")
    assert {s: rules_in(updated["experience"], s) for s in Stage} == {s: (rule,) for s, rule in RIGHT.items()}


def test_a_lesson_about_other_cases_is_neither_rewritten_nor_taken_for_this_one() -> None:
    """It may be right where it belongs, however it fared here."""
    lost = after(WRONG[Stage.PLAN], WRONG[Stage.EXEC], "failure")
    foreign = {**lesson(WRONG), "scenario": scenario(CASE.family + 1, 0)}
    added = extracted(lost, m4_1=foreign)
    assert (added["operation"], added["target"]) == ("ADD", "none")
    assert family_in(added["scenario"]) == CASE.family
    updated = extracted(lost, m4_1=foreign, m5_0=lesson(WRONG))
    assert (updated["operation"], updated["target"]) == ("UPDATE", "5-0")
    won = after(WRONG[Stage.PLAN], WRONG[Stage.EXEC], "success")
    assert extracted(won, m4_1=foreign)["operation"] == "ADD"


def test_of_two_texts_of_one_lesson_the_newer_rules_come_first() -> None:
    combined = said(
        "umem/combine",
        ("combination", lesson_schema(LessonLimits())),
        {"current": lesson(WRONG), "new": lesson(RIGHT)},
    )
    assert {s: rules_in(combined["experience"], s) for s in Stage} == {s: (RIGHT[s], WRONG[s]) for s in Stage}
    assert combined["scenario"] == scenario(CASE.family, 0)
