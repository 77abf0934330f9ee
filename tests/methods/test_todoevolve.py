"""TodoEvolve: an architecture is designed, interpreted, and its list kept up to date (R43)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.benchmarks.credit_world.benchmark import CreditWorld, CreditWorldOptions
from chime_dist.core.episode import EndReason, Role
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.errors import BackboneError
from chime_dist.methods.todoevolve.method import TodoEvolve, TodoEvolveOptions
from tests.methods.single_episode import Told, Words, episode
from tests.methods.test_todo_lists import DESIGN
from tests.spec.sweeps import journal_of, launched, records_of, runs_of


def planner(**replies: Any) -> Words:
    said = {
        "design": DESIGN,
        "outline": {"todos": [{"text": "gather", "after": []}, {"text": "deliver", "after": [1]}]},
        "revise": {"assessment": "gathered", "done": [1], "add": [{"text": "thank", "after": [2]}]},
    } | replies

    def words(request: ChatRequest) -> str:
        reply = said[request.schema_name]
        return reply if isinstance(reply, str) else json.dumps(reply)

    return words


async def planned(
    steps: int, mode: Literal["tools", "json_schema"] = "tools", words: Words | None = None, every: int = 8
) -> Told:
    world = CreditWorld(CreditWorldOptions(steps=steps, max_steps=30, action_mode=mode))
    method = TodoEvolve(TodoEvolveOptions(adapt_every=every))
    return await episode(method, world, {Role.PLANNER: words or planner()})


@pytest.mark.parametrize(("steps", "calls"), [(1, 2), (8, 2), (9, 3), (16, 3), (17, 4)])
async def test_an_episode_costs_two_planner_calls_and_one_before_each_eighth_step(steps: int, calls: int) -> None:
    """R43: 2 + (n - 1) // 8, and one executor call per step; the double's own planner costs the same."""
    assert calls == 2 + (steps - 1) // 8
    assert (await planned(steps)).calls == {"executor": steps, "planner": calls}
    doubled = await planned(steps, words=lambda request: None)
    assert doubled.calls == {"executor": steps, "planner": calls}
    assert TodoEvolve(TodoEvolveOptions()).calls(steps) == {Role.PLANNER: calls}


@pytest.mark.parametrize("mode", ["tools", "json_schema"])
async def test_the_executor_works_from_the_list_and_reads_each_revision(
    mode: Literal["tools", "json_schema"],
) -> None:
    told = await planned(9, mode)
    executor = told.requests(Role.EXECUTOR)
    assert "1. gather\n2. deliver (after 1)\nNext: 1" in str(executor[0].messages[1]["content"])
    assert not any("thank" in str(request.messages) for request in executor[:8])
    last = executor[8].messages[-1]
    assert last["role"] == "user"
    assert str(last["content"]).endswith("2. deliver (after 1)\n3. thank (after 2)\nDone: 1\nNext: 2")


async def test_design_list_and_revisions_are_steps_of_the_trajectory() -> None:
    told = await planned(17)
    design, *revisions = told.events
    assert design.data == {"architecture": DESIGN}
    assert told.trace.trajectory.plan == "1. gather\n2. deliver (after 1)\nNext: 1"
    first, said, second, _ = revisions
    assert first.content == "the todo list is revised after 8 steps"
    assert (first.data, said.data) == (
        {"assessment": "gathered", "done": [1], "dropped": []},
        {"before_step": 8},
    )
    # The second revision ticks off what is done already, and adds once more.
    assert (second.content, second.data["dropped"]) == ("the todo list is revised after 16 steps", [1])


async def test_a_revision_is_shown_what_happened_since_the_last_one() -> None:
    told = await planned(5, every=2)
    first, second = [str(request.messages) for request in told.requests(Role.PLANNER, "revise")]
    assert all(f"Step {number} of 5" in first for number in (1, 2))
    assert not any(f"Step {number} of 5" in second for number in (1, 2))
    assert all(f"Step {number} of 5" in second for number in (3, 4))
    assert "tool act: " in first
    assert "2. deliver" in first
    assert "The first one gets number 3." in first
    assert "3. thank" in second


async def test_bad_replies_at_every_stage_leave_a_linear_plan_and_no_fault_of_ours() -> None:
    """R43: recorded, at no further call."""
    told = await planned(9, words=planner(design="def plan(): ...", outline="1. gather", revise="looks fine"))
    assert told.calls == {"executor": 9, "planner": 3}
    assert told.trace.record.end_reason is EndReason.SCORED
    assert [step.content for step in told.events] == [
        "the design cannot be used: a linear list is",
        "the todos cannot be used as designed: a linear list is",
        "a revision is refused: the todo list stays",
    ]
    assert {step.data["reason"] for step in told.events} == {"not_json"}
    assert told.trace.trajectory.plan == "1. Do everything that the request asks for.\nNext: 1"
    assert "From now on" not in str(told.requests(Role.EXECUTOR)[-1].messages)


@pytest.mark.parametrize(
    ("code", "end"), [("context_overflow", EndReason.SCORED), ("server_error", EndReason.BACKBONE)]
)
async def test_a_revision_too_long_for_the_model_is_done_without(code: str, end: EndReason) -> None:
    """The executor may still have room; any other failure of the backbone is what it is anywhere."""

    def words(request: ChatRequest) -> ChatReply | str | None:
        if request.schema_name == "revise":
            raise BackboneError("no", code)
        return planner()(request)

    told = await planned(9, words=words)
    assert told.trace.record.end_reason is end
    assert (told.events[-1].content == "a revision is refused: the todo list stays") == (end is EndReason.SCORED)


WORLD = "{name: credit_world, families: 2, tasks_per_family: 10, steps: 9, action_mode: %s}"
SWEEP = f"""\
name: evolved
benchmarks: [{WORLD}]
methods: [todoevolve, no_plan]
backbones: [{{name: m, scripted: {{script: credit_world}}}}]
orderings: [0]
embedder: {{kind: hashing, dim: 64}}
protocol: {{epochs: 2, window: 4}}
cluster:
  slots: 8
  endpoints: {{m: {{kind: scripted}}}}
"""


@pytest.mark.parametrize("mode", ["tools", "json_schema"])
async def test_a_sweep_runs_one_epoch_and_decides_as_a_single_plan_would(tmp_path: Path, mode: str) -> None:
    """R6, R43: no state; in this world a todo list states the same guess that no_plan acts by."""
    launch = await launched(tmp_path, SWEEP % mode)
    [run], [other] = runs_of(launch, "todoevolve"), runs_of(launch, "no_plan")
    for phase, size in (("train", 14), ("eval", 6)):
        records = records_of(launch, run, phase)
        assert [record.outcome for record in records] == [r.outcome for r in records_of(launch, other, phase)]
        assert [(record.usage["planner"].calls, record.usage["executor"].calls) for record in records] == [
            (3, 9)
        ] * size
    assert [(entry.events, entry.empty_reason) for entry in journal_of(launch, run)] == [((), None)] * 14


async def test_well_formed_nonsense_passes_through_bfcl_without_a_fault_of_ours(tmp_path: Path) -> None:
    """R42: real tasks, a model whose words mean nothing; every topology is drawn."""
    text = (SWEEP.replace(WORLD, "bfcl_v4") % ()).replace("{script: credit_world}", "{seed: 1}")
    launch = await launched(tmp_path, text.replace("window: 4", "window: 4, limit: 40"))
    [run] = runs_of(launch, "todoevolve")
    records = [*records_of(launch, run, "train"), *records_of(launch, run, "eval")]
    assert len(records) == 40
    assert {(record.usage["planner"].calls, record.usage["executor"].calls) for record in records} == {(2, 1)}
    traces = [EpisodeArchive(launch).trace(record.unit) for record in records]
    steps = [trace.trajectory.steps[0] for trace in traces if trace is not None]
    assert {step.data["architecture"]["topology"] for step in steps} == {"linear", "tree", "dag", "parallel"}
