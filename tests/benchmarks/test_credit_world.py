"""The simulated world: causes are known, views tell nothing, the agent double is right when it should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import combinations, product
from pathlib import Path
from typing import Literal

import pytest
from pydantic import ValidationError

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.directory.episode_store import EpisodeStore
from chime_dist.adapters.directory.file_journal import FileJournal
from chime_dist.adapters.embedding.hashing import hashed_vector
from chime_dist.adapters.local.change_feed import ChangeFeed
from chime_dist.adapters.local.memory_store import MemoryStore
from chime_dist.adapters.local.queue import LocalQueue
from chime_dist.adapters.models.credit_world_agent import CreditWorldAgent, CreditWorldAgentSettings
from chime_dist.adapters.models.scripted import ScriptedBackbone
from chime_dist.benchmarks.credit_world.benchmark import CreditWorld, CreditWorldOptions
from chime_dist.benchmarks.credit_world.environment import CreditEnvironment, tool_definition
from chime_dist.config.cluster import ClusterConfig, ScriptedEndpoint
from chime_dist.config.models import BackboneModel, ScriptedModel
from chime_dist.core.canonical import canonical_json
from chime_dist.core.credit_world import (
    FAMILIES,
    RULES,
    Case,
    all_right,
    family_in,
    hidden_rule,
    interfered,
    read_case,
    rules_in,
    scenario,
    stated,
    true_label,
    wrong_rule,
)
from chime_dist.core.episode import EndReason, EpisodeTrace, Json, Outcome, Recalled
from chime_dist.core.memory import Stage
from chime_dist.core.model_call import ChatReply, ChatRequest, ToolCall, Turn
from chime_dist.core.retry import RetryPolicy
from chime_dist.core.split import PROTOCOLS, order_tasks
from chime_dist.core.vector import similarities, unit_rows
from chime_dist.core.verdict import Diagnosis, GateLimits, Label, gate_schema, parse_verdict
from chime_dist.core.window import StreamShape
from chime_dist.engine.action import action_schema, json_action, native_action
from chime_dist.engine.driver import Ending
from chime_dist.engine.plan import RunPlan
from chime_dist.errors import BenchmarkError
from chime_dist.ports import Action
from chime_dist.wiring import services
from chime_dist.wiring.registry import prompts
from tests.integration.launching import RUN, Launched, new_directory

CASES = [Case(0, family, number) for family in range(len(FAMILIES)) for number in range(40)]
CASE = CASES[0]
PROMPTS = prompts(["chime", "no_plan"])
Mode = Literal["tools", "json_schema"]


def similarity(a: str, b: str) -> float:
    return similarities(hashed_vector(a, 256), unit_rows([hashed_vector(b, 256)]))[0]


def call(plan_rule: Json, detail: Json, name: str = "act") -> ToolCall:
    arguments = {"plan_rule": plan_rule, "detail": detail}
    return ToolCall(id="c", name=name, arguments=arguments, raw=canonical_json(arguments))


def choice(case: Case, plan_right: bool, exec_right: bool) -> ToolCall:
    """A call that keeps or breaks each hidden rule."""
    rights = {Stage.PLAN: plan_right, Stage.EXEC: exec_right}
    return call(*(hidden_rule(case, s) if right else wrong_rule(case, s) for s, right in rights.items()))


def environment(case: Case = CASE, steps: int = 2, noise: float = 0.0, mode: Mode = "tools") -> CreditEnvironment:
    return CreditEnvironment(case, steps, noise, mode)


def lesson(case: Case, stage: Stage, item: str = "3-0", rule: str | None = None) -> Recalled:
    """A memory of the case's family, right unless ``rule`` says otherwise."""
    said = stated(rule or hidden_rule(case, stage), stage)
    return Recalled(id=item, stage=stage, scenario=scenario(case.family, 0), experience=said)


def request(case: Case, template: str, session: str = "s", **turn: Json) -> ChatRequest:
    """What the backbone receives for a prompt of the shipped methods."""
    view = environment(case).view
    shown = {"view": view.model_dump(mode="json"), "list_tools": True, "repair": None, "memories": []}
    given = {**shown, **turn.pop("variables", {})}
    rendered = PROMPTS.render(Turn(template=template, variables=given, conversation=view.messages))
    return ChatRequest(messages=(*rendered, *turn.pop("history", ())), session_id=session, **turn)


def planned(case: Case, *memories: Recalled, agent: CreditWorldAgent | None = None) -> str:
    """The rule of the agent's plan."""
    shown = [memory.model_dump(mode="json") for memory in memories]
    reply = said(agent, request(case, "chime/plan", variables={"memories": shown}))
    (rule,) = rules_in(reply.text, Stage.PLAN)
    return rule


def executed(case: Case, plan: str, *memories: Recalled, mode: Mode = "tools") -> ToolCall:
    """The agent's one call."""
    shown = [memory.model_dump(mode="json") for memory in memories]
    tools = (tool_definition(),)
    variables = {"memories": shown, "plan": plan, "list_tools": mode == "json_schema"}
    if mode == "tools":
        reply = said(None, request(case, "chime/execute", variables=variables, tools=tools))
        action = native_action(reply)
    else:
        schema = action_schema(tools)
        asked = request(case, "chime/execute", variables=variables, response_schema=schema, schema_name="action")
        action = json_action(said(None, asked))
    assert action.malformed is None
    (made,) = action.tool_calls
    return made


def said(agent: CreditWorldAgent | None, asked: ChatRequest) -> ChatReply:
    reply = (agent or CreditWorldAgent())(asked)
    assert reply is not None
    return reply


def review(case: Case, made: ToolCall, outcome: Outcome, memories: Sequence[Recalled] = ()) -> ChatRequest:
    """What the gate is asked after one step."""
    step = {
        "index": 1,
        "kind": "action",
        "content": "",
        "data": {"calls": [{"name": "act", "arguments": made.arguments}]},
    }
    variables = {
        "plan": f"1. {stated(str((made.arguments or {})['plan_rule']), Stage.PLAN)}",
        "steps": [step],
        "outcome": outcome.value,
        "memories": [memory.model_dump(mode="json") for memory in memories],
    }
    schema = gate_schema([memory.id for memory in memories], GateLimits())
    return request(case, "chime/review", variables=variables, response_schema=schema, schema_name="diagnosis")


def judged(
    case: Case,
    made: ToolCall,
    outcome: Outcome,
    memories: Sequence[Recalled] = (),
    agent: CreditWorldAgent | None = None,
) -> Diagnosis:
    """The gate's diagnosis, read as CHIME reads it: nothing may be dropped from it."""
    reply = said(agent, review(case, made, outcome, memories))
    verdict = parse_verdict(reply.text, reply.finish_reason, [memory.id for memory in memories])
    assert verdict.diagnosis is not None
    assert (verdict.dropped_ids, verdict.dropped_stages) == ((), ())
    return verdict.diagnosis


# --- the world ------------------------------------------------------------------------------------------


def test_every_family_of_a_world_has_rules_of_its_own_and_worlds_differ() -> None:
    for stage in Stage:
        dealt = [[hidden_rule(Case(world, f, 0), stage) for f in range(len(FAMILIES))] for world in range(5)]
        assert all(len(set(rules)) == len(FAMILIES) for rules in dealt)
        assert len({tuple(rules) for rules in dealt}) == 5
        assert all(wrong_rule(case, stage, "any") != hidden_rule(case, stage) for case in CASES)


def test_a_case_is_read_from_its_words() -> None:
    for case in CASES:
        assert read_case(f"Some header.\n{case.request}\n\nYou are the planner.") == case
        assert family_in(scenario(case.family, case.number)) == case.family
    assert read_case("Desk 1, case 2: unheard of. Something.") is None
    assert family_in("something else") is None


def test_lessons_are_told_apart_and_found_by_cases_of_their_family() -> None:
    """R12, R32: with the hashing embedder no lesson counts as another's double, and every lesson's scenario is
    nearer to its own family's cases than any other family's, above the candidate threshold."""
    for stage, rules in RULES.items():
        assert max(similarity(stated(a, stage), stated(b, stage)) for a, b in combinations(rules, 2)) < 0.9
    for case in CASES[::8]:
        near = [similarity(case.request, scenario(family, 0)) for family in range(len(FAMILIES))]
        assert max(near) == near[case.family] > 0.6


def test_interference_meets_its_share_of_cases_whatever_their_order() -> None:
    many = [Case(0, family, number) for family in range(len(FAMILIES)) for number in range(200)]
    for noise in (0.0, 0.05, 0.3, 1.0):
        met = sum(interfered(case, noise) for case in many) / len(many)
        assert met == pytest.approx(noise, abs=0.02)


@pytest.mark.parametrize(
    ("success", "plan_right", "exec_right", "label"),
    [
        (True, True, True, Label.BOTH),
        (False, False, True, Label.PLANNING),
        (False, True, False, Label.EXECUTION),
        (False, False, False, Label.BOTH),
        (False, True, True, Label.NONE),
        (True, False, True, Label.NONE),
        (True, True, False, Label.NONE),
        (True, False, False, Label.NONE),
    ],
)
def test_the_right_attribution_is_known(success: bool, plan_right: bool, exec_right: bool, label: Label) -> None:
    """R19, R20: what outside causes decided is credited to no stage."""
    assert true_label(success, plan_right, exec_right) is label


# --- the benchmark --------------------------------------------------------------------------------------


def test_the_tasks_are_the_families_cases_in_order() -> None:
    """R3: one domain per family, split 7 to 3 in each."""
    world = CreditWorld(CreditWorldOptions(families=3, tasks_per_family=10))
    assert [task.id for task in world.tasks()][8:11] == [
        "berth_booking-008",
        "berth_booking-009",
        "berth_release-000",
    ]
    assert Counter(task.domain for task in world.tasks()) == dict.fromkeys(
        ("berth_booking", "berth_release", "loan_extension"), 10
    )
    ordering = order_tasks(world.tasks(), PROTOCOLS["paper_numbers"], 0)
    assert (len(ordering.train), len(ordering.eval)) == (21, 9)
    assert (world.name, world.action_mode, world.max_steps) == ("credit_world", "tools", 10)
    assert (world.usual_steps, CreditWorld(CreditWorldOptions(steps=3)).usual_steps) == (2, 3)
    assert world.fingerprint() == CreditWorld(CreditWorldOptions()).fingerprint()


async def test_unknown_tasks_and_impossible_options_are_refused() -> None:
    world = CreditWorld(CreditWorldOptions(families=2, tasks_per_family=3))
    with pytest.raises(BenchmarkError, match=r"no task 'berth_booking-003'.*2 families of 3"):
        await world.open("berth_booking-003")
    with pytest.raises(ValidationError, match="raise max_steps"):
        CreditWorldOptions(steps=3, max_steps=2)


@pytest.mark.parametrize("mode", ["tools", "json_schema"])
async def test_nothing_an_agent_is_shown_holds_a_rule(mode: Mode) -> None:
    """R8: the hidden rules are the canary; observations are the same for right and wrong steps."""
    told = set()
    for case in CASES[::5]:
        for rights in product((True, False), repeat=2):
            opened = environment(case, mode=mode)
            shown = [opened.view.model_dump_json()]
            for _ in range(2):
                shown.append(
                    canonical_json((await opened.act(Action(tool_calls=(choice(case, *rights),)))).messages)
                )
            told.add(tuple(shown[1:]))
            for text in shown:
                assert not [rule for rules in RULES.values() for rule in rules if rule in text]
                assert "success" not in text
                assert "failure" not in text
    assert len(told) == 1


@pytest.mark.parametrize(("plan_right", "exec_right"), list(product((True, False), repeat=2)))
@pytest.mark.parametrize("mode", ["tools", "json_schema"])
async def test_the_outcome_is_the_known_cause(mode: Mode, plan_right: bool, exec_right: bool) -> None:
    """Success is both rules kept in every step; noise turns it into its opposite."""
    for noise in (0.0, 1.0):
        opened = environment(noise=noise, mode=mode)
        action = Action(tool_calls=(choice(CASE, plan_right, exec_right),))
        first = await opened.act(action)
        assert (first.done, first.end_reason) == (False, None)
        second = await opened.act(action)
        assert (second.done, second.end_reason) == (True, EndReason.SCORED)
        assert second.messages[0]["content"] == "Step 2 of 2 is on file."
        assert second.messages[0]["role"] == ("tool" if mode == "tools" else "user")
        assert await opened.score() == ((plan_right and exec_right) != bool(noise))
        await opened.close()


async def test_one_wrong_step_spoils_a_case() -> None:
    opened = environment()
    await opened.act(Action(tool_calls=(choice(CASE, True, True),)))
    await opened.act(Action(tool_calls=(choice(CASE, True, False),)))
    assert not await opened.score()


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (Action(text="I give up."), EndReason.SCORED),
        (Action(), EndReason.EMPTY_OUTPUT),
        (Action(text="{", malformed="no JSON"), EndReason.MALFORMED_OUTPUT),
        (Action(tool_calls=(call("a", "b", name="other"),)), EndReason.MALFORMED_OUTPUT),
        (Action(tool_calls=(call("a", 7),)), EndReason.MALFORMED_OUTPUT),
        (
            Action(tool_calls=(ToolCall(id="c", name="act", arguments=None, raw="{", error="cut"),)),
            EndReason.MALFORMED_OUTPUT,
        ),
        (Action(tool_calls=(choice(CASE, True, True),) * 3), EndReason.SCORED),
    ],
)
async def test_a_case_that_was_not_worked_off_is_lost(action: Action, reason: EndReason) -> None:
    """Also under noise: nothing outside wins a case for an agent that did not finish it."""
    opened = environment(noise=1.0)
    observation = await opened.act(action)
    assert (observation.done, observation.end_reason) == (True, reason)
    assert not await opened.score()
    with pytest.raises(BenchmarkError, match="is over"):
        await opened.act(action)


# --- the agent ------------------------------------------------------------------------------------------


def test_replies_depend_on_the_request_alone() -> None:
    """The session id, and so timing and redelivery, is no part of a reply."""
    made = choice(CASE, True, False)
    for asked in (
        request(CASE, "chime/plan"),
        request(CASE, "no_plan/execute", tools=(tool_definition(),)),
        review(CASE, made, Outcome.FAILURE),
    ):
        elsewhere = asked.model_copy(update={"session_id": "another"})
        assert said(None, asked) == said(None, elsewhere)
    different = [planned(case, agent=CreditWorldAgent(CreditWorldAgentSettings(seed=1))) for case in CASES]
    assert different != [planned(case) for case in CASES]


def test_without_memories_the_agent_is_right_at_the_base_rate() -> None:
    for rate in (0.0, 0.25, 1.0):
        agent = CreditWorldAgent(CreditWorldAgentSettings(base_rate=rate))
        lucky = sum(planned(case, agent=agent) == hidden_rule(case, Stage.PLAN) for case in CASES) / len(CASES)
        assert lucky == pytest.approx(rate, abs=0.05)


@pytest.mark.parametrize("stage", list(Stage))
def test_a_memory_in_the_prompt_decides_what_is_done(stage: Stage) -> None:
    """Right ones help, wrong ones mislead, the better-ranked one counts, and the other stage's say nothing."""
    for case in CASES[::6]:
        wrong = wrong_rule(case, stage, "a lesson")
        right, misled = lesson(case, stage), lesson(case, stage, "4-0", wrong)

        def done(*memories: Recalled, case: Case = case) -> str:
            if stage is Stage.PLAN:
                return planned(case, *memories)
            return str((executed(case, "no rule", *memories).arguments or {})["detail"])

        other = lesson(case, Stage.EXEC if stage is Stage.PLAN else Stage.PLAN, "5-0")
        assert done(right) == done(right, misled) == done(other, right) == hidden_rule(case, stage)
        assert done(misled) == done(misled, right) == wrong
        assert done(other) == done()


@pytest.mark.parametrize("mode", ["tools", "json_schema"])
def test_the_executor_keeps_the_plan_in_both_action_modes(mode: Mode) -> None:
    rule = wrong_rule(CASE, Stage.PLAN, "planned")
    made = executed(CASE, f"1. {stated(rule, Stage.PLAN)}", lesson(CASE, Stage.EXEC), mode=mode)
    assert made.arguments == {"plan_rule": rule, "detail": hidden_rule(CASE, Stage.EXEC)}


def test_every_call_of_an_episode_has_an_id_of_its_own() -> None:
    tools = (tool_definition(),)
    first = said(None, request(CASE, "no_plan/execute", tools=tools))
    history = ({"role": "assistant", "content": ""}, {"role": "tool", "tool_call_id": "act_0", "content": "filed"})
    second = said(None, request(CASE, "no_plan/execute", tools=tools, history=history))
    assert [reply.tool_calls[0].id for reply in (first, second)] == ["act_0", "act_1"]
    assert first.tool_calls[0].arguments == second.tool_calls[0].arguments


def verdicts(agent: CreditWorldAgent) -> list[tuple[Case, Label, Diagnosis]]:
    """(case, true label, diagnosis) over all causes and outcomes."""
    found = []
    causes = list(product((True, False), (True, False), (Outcome.SUCCESS, Outcome.FAILURE)))
    for case in CASES[:300]:
        plan_right, exec_right, outcome = causes[case.number % len(causes)]
        truth = true_label(outcome is Outcome.SUCCESS, plan_right, exec_right)
        found.append((case, truth, judged(case, choice(case, plan_right, exec_right), outcome, agent=agent)))
    return found


def test_a_perfect_gate_always_gives_the_true_label_and_the_matching_lessons() -> None:
    """R18 to R22: lessons for the attributed stages and no other, confidence between 0.5 and 1."""
    for case, truth, diagnosis in verdicts(CreditWorldAgent()):
        assert diagnosis.label is truth
        assert 0.5 <= diagnosis.confidence <= 1.0
        wanted = {Label.PLANNING: [Stage.PLAN], Label.EXECUTION: [Stage.EXEC], Label.BOTH: list(Stage)}
        assert list(diagnosis.experience) == wanted.get(truth, [])
        for stage, new in diagnosis.experience.items():
            assert rules_in(new.experience, stage) == (hidden_rule(case, stage),)
            assert family_in(new.scenario) == case.family
            assert new.actionable


def test_an_imperfect_gate_errs_for_its_share_of_requests_and_teaches_what_is_wrong() -> None:
    """The same requests each time, and those of a better gate are among those of a worse one."""

    def erred(accuracy: float) -> set[str]:
        agent = CreditWorldAgent(CreditWorldAgentSettings(gate_accuracy=accuracy))
        return {case.id for case, truth, diagnosis in verdicts(agent) if diagnosis.label is not truth}

    at_70 = erred(0.7)
    assert len(at_70) / 300 == pytest.approx(0.3, abs=0.1)
    assert at_70 == erred(0.7)
    assert erred(0.9) < at_70 < erred(0.0)
    assert len(erred(0.0)) == 300
    blind = CreditWorldAgent(CreditWorldAgentSettings(gate_accuracy=0.0))
    blamed = judged(CASE, choice(CASE, True, True), Outcome.FAILURE, agent=blind)
    assert blamed.label is not Label.NONE
    for stage, new in blamed.experience.items():
        assert rules_in(new.experience, stage) != (hidden_rule(CASE, stage),)


def test_misleading_is_what_was_followed_and_wrong() -> None:
    """R18: neither lessons that were not followed nor those of a stage that went right."""
    foreign = lesson(CASES[41], Stage.PLAN, "13-0")
    memories = [foreign, lesson(CASE, Stage.PLAN, "3-0"), lesson(CASE, Stage.EXEC, "3-1")]
    followed = call(hidden_rule(CASES[41], Stage.PLAN), hidden_rule(CASE, Stage.EXEC))
    diagnosis = judged(CASE, followed, Outcome.FAILURE, memories)
    assert (diagnosis.label, diagnosis.misleading) == (Label.PLANNING, ("13-0",))
    assert judged(CASE, choice(CASE, True, True), Outcome.SUCCESS, memories).misleading == ()
    blind = CreditWorldAgent(CreditWorldAgentSettings(gate_accuracy=0.0))
    assert judged(CASE, followed, Outcome.FAILURE, memories, blind).misleading == ()


@pytest.mark.parametrize("rewrite", [False, True])
def test_a_merge_keeps_every_rule_once_and_the_newest_first(rewrite: bool) -> None:
    """R31: two lessons become one."""
    first, second = (stated(rule, Stage.PLAN) for rule in RULES[Stage.PLAN][:2])
    third = stated(RULES[Stage.EXEC][0], Stage.EXEC)
    properties = {"experience": {"type": "string"}} | ({"scenario": {"type": "string"}} if rewrite else {})
    asked = Turn(
        template="chime/merge",
        variables={
            "scenario": scenario(4, 0),
            "old": f"{first}\n{second}\n{third}",
            "new": second,
            "new_scenario": scenario(4, 1),
            "rewrite_scenario": rewrite,
        },
    )
    reply = said(
        None,
        ChatRequest(
            messages=PROMPTS.render(asked),
            response_schema={"type": "object", "properties": properties},
            schema_name="merge",
            session_id="merge",
        ),
    )
    merged = {"experience": f"{second}\n{first}\n{third}"} | ({"scenario": scenario(4, 0)} if rewrite else {})
    assert reply.text == canonical_json(merged)


async def test_a_prompt_of_no_case_is_left_to_the_hash() -> None:
    """A launch probes its backbones with a plain greeting."""
    hello = ChatRequest(messages=({"role": "user", "content": "hi"},), session_id="probe")
    assert CreditWorldAgent()(hello) is None
    reply = await ScriptedBackbone(script=CreditWorldAgent()).complete(hello, 1.0)
    assert reply.text == "hi"


async def test_a_scripted_endpoint_can_be_this_agent(tmp_path: Path) -> None:
    cluster = ClusterConfig(endpoints={"double": ScriptedEndpoint(kind="scripted")})
    spec = services.LaunchSpec("launch", tmp_path, tmp_path, {}, cluster, {})
    scripted = ScriptedModel(script="credit_world", gate_accuracy=0.0)
    model = BackboneModel(name="double", model="double", scripted=scripted)
    backbone = services.backbone(spec, model, RetryPolicy())
    asked = review(CASE, choice(CASE, True, True), Outcome.SUCCESS)
    blind = CreditWorldAgent(CreditWorldAgentSettings(gate_accuracy=0.0))
    assert await backbone.complete(asked, 1.0) == said(blind, asked)


# --- the whole loop -------------------------------------------------------------------------------------


async def run(
    path: Path, *, mode: Mode = "tools", slots: int = 16, gate_accuracy: float = 1.0
) -> tuple[list[str], list[EpisodeTrace], list[EpisodeTrace]]:
    """CHIME in a world of 120 cases, W=8: the journal's content hashes, the train traces, the eval traces."""
    world = CreditWorld(CreditWorldOptions(tasks_per_family=10, action_mode=mode))
    ordering = order_tasks(world.tasks(), PROTOCOLS["paper_numbers"], 0)
    plan = RunPlan(
        run_id=RUN,
        shape=StreamShape(epoch_size=len(ordering.train), epochs=1, window=8),
        train=tuple(task.id for task in ordering.train),
        eval=tuple(task.id for task in ordering.eval),
    )
    clock, directory = SystemClock(), new_directory(path)
    feed = ChangeFeed(clock)
    launched = Launched(
        directory,
        plan,
        world,
        ScriptedBackbone(script=CreditWorldAgent(CreditWorldAgentSettings(gate_accuracy=gate_accuracy))),
        LocalQueue(clock, feed, 30.0),
        FileJournal(lambda run_id: directory.run(run_id).path, feed),
        MemoryStore(),
        slots=slots,
    )
    assert await launched.run() is Ending.COMPLETE
    records = await EpisodeStore.open(directory, now=datetime.now(UTC))
    units = [plan.train_unit(i) for i in range(len(plan.train))] + [
        plan.eval_unit(i) for i in range(len(plan.eval))
    ]
    traces = [trace for unit in units if (trace := await records.final(unit)) is not None]
    await records.close()
    assert len(traces) == len(units)
    hashes = [entry.content_hash for entry in await launched.entries()]
    return hashes, traces[: len(plan.train)], traces[len(plan.train) :]


def success_rate(traces: Sequence[EpisodeTrace]) -> float:
    return sum(trace.record.outcome is Outcome.SUCCESS for trace in traces) / len(traces)


def kept(trace: EpisodeTrace) -> tuple[Case, dict[Stage, bool]]:
    """The episode's case, and whether each hidden rule was kept."""
    case = read_case(trace.trajectory.view.request)
    assert case is not None
    calls = [made["arguments"] for step in trace.trajectory.steps for made in step.data.get("calls", [])]
    assert len(calls) == 2
    names = {Stage.PLAN: "plan_rule", Stage.EXEC: "detail"}
    return case, {s: all_right(case, s, [arguments[name] for arguments in calls]) for s, name in names.items()}


@pytest.mark.parametrize("mode", ["tools", "json_schema"])
async def test_chime_learns_and_every_outcome_and_label_has_its_known_cause(tmp_path: Path, mode: Mode) -> None:
    """R1, R2, R7, R18: lessons that a perfect gate writes are found again and followed, so success rises; R5:
    the frozen bank serves the held-out cases."""
    _, train, held_out = await run(tmp_path, mode=mode)
    for trace in (*train, *held_out):
        case, right = kept(trace)
        success = trace.record.outcome is Outcome.SUCCESS
        assert success == (all(right.values()) != interfered(case, 0.05))
        for recall in trace.trajectory.recalls:
            stage = Stage(recall.collection)
            if recall.selected:
                first = rules_in(recall.selected[0].experience, stage)[0]
                assert right[stage] == (first == hidden_rule(case, stage))
        if trace.record.unit.phase == "train":
            assert trace.record.label == true_label(success, *right.values())
    quarter = len(train) // 4
    assert success_rate(train[:quarter]) < 0.5 < success_rate(train[-quarter:])
    assert success_rate(held_out) > 0.5


async def test_a_world_runs_the_same_whatever_the_slots(tmp_path: Path) -> None:
    """Design "Reads and the window": slots change how fast, never what; and a worse gate teaches less."""
    hashes, _, held_out = await run(tmp_path / "a", gate_accuracy=0.5)
    again, _, held_out_again = await run(tmp_path / "b", gate_accuracy=0.5, slots=3)
    assert hashes == again
    assert success_rate(held_out) == success_rate(held_out_again) < 0.75
