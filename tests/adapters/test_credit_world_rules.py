"""The agent double of ``credit_world`` as A-MapReduce's planner and keeper of rules."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from chime_dist.adapters.models.credit_world_agent import CreditWorldAgent
from chime_dist.adapters.models.scripted import ScriptedBackbone
from chime_dist.benchmarks.credit_world.environment import CreditEnvironment
from chime_dist.core.credit_world import FAMILIES, Case, hidden_rule, rules_in, stated, wrong_rule
from chime_dist.core.episode import Json
from chime_dist.core.memory import Stage
from chime_dist.core.model_call import ChatRequest, Turn
from chime_dist.core.rule_book import Case as Compared
from chime_dist.core.rule_book import Review, Rule, RuleParams
from chime_dist.core.rule_reply import list_schema, operations_schema
from chime_dist.wiring.registry import prompts

PROMPTS = prompts(["a_mapreduce"])
CASE = Case(0, 0, 5)
OTHER = Case(0, 3, 5)


def plan(case: Case, right: bool = True) -> str:
    rules = {stage: hidden_rule(case, stage) if right else wrong_rule(case, stage) for stage in Stage}
    return "\n".join(f"{n}. {stated(rule, stage)}" for n, (stage, rule) in enumerate(rules.items(), 1))


def rule(case: Case, right: bool = True) -> str:
    said = " ".join(line[3:] for line in plan(case, right).split("\n"))
    return f"{FAMILIES[case.family].title}: {said}"


def record(case: Case, outcome: str, right: bool = True) -> dict[str, Json]:
    return {"task": case.request, "plan": plan(case, right), "outcome": outcome}


async def said(turn: Turn) -> str:
    """The double's words, or those of the hash."""
    request = ChatRequest(
        messages=PROMPTS.render(turn),
        response_schema=turn.response_schema,
        schema_name=turn.schema_name,
        session_id="s",
    )
    return (await ScriptedBackbone(script=CreditWorldAgent()).complete(request, 10.0)).text


async def asked(prompt: str, name: str, schema: dict[str, Json] | None = None, **variables: Json) -> str:
    view = CreditEnvironment(CASE, 2, 0.0, "tools").view
    known = {"view": view.model_dump(mode="json"), "list_tools": True, "records": [], "hints": [], "limit": 3}
    return await said(
        Turn(
            template=f"a_mapreduce/{prompt}",
            variables={**known, **variables},
            conversation=view.messages,
            response_schema=schema,
            schema_name=name,
        )
    )


async def compared(cases: Sequence[tuple[str, Case, bool | None]], rules: dict[str, str]) -> list[dict[str, Any]]:
    """What is done to the rules after these (name, case, whether its plan is right, None without a plan)."""
    told = [
        Compared(
            name=name,
            node="0-0",
            outcome="success" if name[0] == "S" else "failure",
            task=c.request,
            plan="" if r is None else plan(c, r),
        )
        for name, c, r in cases
    ]
    review = Review(
        position=1,
        rules={item: Rule(rule=text, score=2, tasks=("0-0",)) for item, text in rules.items()},
        cases=tuple(told),
        merge=False,
        types={},
    )
    turn = Turn(
        template="a_mapreduce/compare",
        variables={
            "cases": [case.model_dump(mode="json") for case in told],
            "rules": [{"id": item, "rule": text} for item, text in rules.items()],
            "crowded": False,
            "max_operations": 8,
        },
        response_schema=operations_schema(review, RuleParams()),
        schema_name="rule_operations",
    )
    operations: list[dict[str, Any]] = json.loads(await said(turn))["operations"]
    return operations


async def test_hints_repeat_what_rules_say_of_the_cases_family() -> None:
    both = f"{rule(OTHER)} {rule(CASE)}"
    schema = list_schema("hints", 3, 400)
    assert json.loads(await asked("project", "hints", schema, rules=[rule(OTHER), both])) == {
        "hints": [rule(CASE)]
    }
    nothing = json.loads(await asked("project", "hints", schema, rules=[rule(OTHER)]))
    assert nothing == {"hints": ["Nothing is known of berth booking"]}


async def test_each_subtask_is_guided_by_its_stage_of_hints_then_of_successes() -> None:
    """A failed task's plan is not followed; without any word the agent guesses, always alike."""
    schema = list_schema("subtasks", 3, 400)
    subtasks = json.loads(await asked("split", "subtasks", schema))["subtasks"]
    assert len(subtasks) == 2
    for number, stage in enumerate(Stage, 1):
        failed, went_well = record(CASE, "failure", right=False), record(CASE, "success")
        told = [failed, went_well]
        at = {"subtasks": subtasks, "number": number}
        assert stated(hidden_rule(CASE, stage), stage) == await asked("map", "guidance", records=told, **at)
        hinted = await asked("map", "guidance", records=told, hints=[rule(CASE, right=False)], **at)
        assert hinted == stated(wrong_rule(CASE, stage), stage)
        assert await asked("map", "guidance", **at) == await asked("map", "guidance", records=[failed], **at)


async def test_a_success_is_not_followed_where_its_plan_failed_in_a_case_of_the_family() -> None:
    """The prompt shows both. A failure of another family, or by another plan, says nothing against it."""

    async def guided(*records: dict[str, Json]) -> str:
        return await asked("map", "guidance", records=list(records), subtasks=["one", "two"], number=1)

    def told(case: Case, outcome: str) -> dict[str, Json]:
        return {**record(case, outcome), "plan": plan(OTHER)}

    foreign = stated(hidden_rule(OTHER, Stage.PLAN), Stage.PLAN)
    success = told(OTHER, "success")
    assert await guided(success) == foreign
    assert await guided(success, told(CASE, "failure")) == await guided() != foreign
    assert await guided(success, told(OTHER, "failure")) == foreign
    assert await guided(success, record(CASE, "failure", right=False)) == foreign


async def test_the_plan_states_what_the_parts_state() -> None:
    parts = [{"subtask": "x", "guidance": stated(hidden_rule(CASE, stage), stage)} for stage in Stage]
    assert await asked("reduce", "reduced", records=[record(CASE, "success", False)], parts=parts) == plan(CASE)
    guessed = await asked("reduce", "reduced", parts=parts[:1])
    assert rules_in(guessed, Stage.PLAN) == (hidden_rule(CASE, Stage.PLAN),)
    assert len(rules_in(guessed, Stage.EXEC)) == 1


async def test_successes_write_rules_and_failures_unwrite_them() -> None:
    """ADD where nothing is said of the family, AGREE where the same is said, EDIT where something else is."""
    cases = [("S1", CASE, True), ("S2", Case(0, 0, 6), True), ("F1", OTHER, False)]
    [add] = await compared(cases, {})
    assert add == {"op": "ADD", "rule": "", "text": rule(CASE), "cases": ["S1", "S2"]}
    [agree] = await compared(cases, {"3-1": rule(CASE)})
    assert agree == {"op": "AGREE", "rule": "3-1", "text": "", "cases": ["S1", "S2"]}
    [edit, remove] = await compared(cases, {"3-1": rule(CASE, right=False), "3-2": rule(OTHER, right=False)})
    assert edit == {"op": "EDIT", "rule": "3-1", "text": rule(CASE), "cases": ["S1", "S2"]}
    assert remove == {"op": "REMOVE", "rule": "3-2", "text": "", "cases": ["F1"]}


async def test_what_counts_is_whether_more_successes_or_more_failures_went_by_a_plan() -> None:
    """A case that was won by accident teaches nothing where the same plan lost others of its family."""
    won, lost = ("S1", CASE, False), [("F1", CASE, False), ("F2", CASE, False)]
    wrong = rule(CASE, right=False)
    assert await compared([won, *lost], {}) == []
    assert await compared([won, lost[0]], {"3-1": wrong}) == []
    [remove] = await compared([won, *lost], {"3-1": wrong})
    assert remove == {"op": "REMOVE", "rule": "3-1", "text": "", "cases": ["F1", "F2"]}
    [edit] = await compared([won, ("S2", Case(0, 0, 8), True), *lost], {"3-1": wrong})
    assert edit == {"op": "EDIT", "rule": "3-1", "text": rule(CASE), "cases": ["S2"]}


async def test_what_a_merged_rule_says_of_other_families_stays() -> None:
    """EDIT gives the whole new text: cases of one family say nothing about another."""
    third = rule(Case(0, 5, 0))
    merged = f"{rule(CASE, right=False)} {rule(OTHER)} {third}"
    lost, won = ("F1", CASE, False), ("S1", OTHER, True)
    assert await compared([lost], {"3-1": merged}) == [
        {"op": "EDIT", "rule": "3-1", "text": f"{rule(OTHER)} {third}", "cases": ["F1"]}
    ]
    assert await compared([won, lost], {"3-1": merged}) == [
        {"op": "EDIT", "rule": "3-1", "text": f"{rule(OTHER)} {third}", "cases": ["F1", "S1"]}
    ]
    assert await compared([("S2", CASE, True), won], {"3-1": merged}) == [
        {"op": "EDIT", "rule": "3-1", "text": f"{rule(CASE)} {rule(OTHER)} {third}", "cases": ["S2", "S1"]}
    ]


async def test_a_failure_that_did_not_go_by_a_rule_says_nothing_against_it() -> None:
    """Neither does one that never came to a plan."""
    assert await compared([("F1", OTHER, None)], {"3-2": rule(OTHER)}) == []
    assert await compared([("F1", OTHER, False)], {"3-2": rule(OTHER)}) == []


async def test_merged_rules_say_everything_once_in_as_many_rules_as_there_may_be() -> None:
    def merge(rules: list[str], limit: int) -> Turn:
        return Turn(
            template="a_mapreduce/merge",
            variables={"rules": rules, "limit": limit},
            response_schema=list_schema("rules", limit, 400),
            schema_name="merged_rules",
        )

    rules = [rule(CASE), f"{rule(OTHER)} {rule(CASE)}"]
    assert json.loads(await said(merge(rules, 1))) == {"rules": [f"{rule(CASE)} {rule(OTHER)}"]}
    assert json.loads(await said(merge(rules, 2))) == {"rules": [rule(CASE), rule(OTHER)]}
    assert json.loads(await said(merge([rule(CASE)], 3))) == {"rules": [rule(CASE)]}
    foreign = json.loads(await said(merge(["Think first.", "Be brief."], 1)))["rules"]
    assert len(foreign) == 1, "what is no rule of this world is left to the hash"
