"""What credit_world knows to be true, told from a trace and from a memory."""

from __future__ import annotations

import pytest

from chime_dist.analyses.credit_world_truth import is_right, right_label
from chime_dist.core.bank import Record
from chime_dist.core.credit_world import ARGUMENTS, Case, hidden_rule, scenario, stated, wrong_rule
from chime_dist.core.episode import EndReason, EpisodeRecord, EpisodeTrace, Outcome, Step, Trajectory, Unit
from chime_dist.core.memory import MemoryPayload, Stage
from chime_dist.core.task import TaskView
from chime_dist.core.verdict import Label
from chime_dist.errors import ConfigError

CASE = Case(world=3, family=2, number=5)
RIGHT = {stage: hidden_rule(CASE, stage) for stage in Stage}
WRONG = {stage: wrong_rule(CASE, stage) for stage in Stage}


def trace_of(request: str, success: bool, *used: dict[Stage, str]) -> EpisodeTrace:
    """An episode that acted by these rules, one step each."""
    unit = Unit(run_id="r", phase="train", epoch=0, position=0, task=CASE.id, read_version=0)
    record = EpisodeRecord(
        unit=unit,
        attempt="a",
        delivery=1,
        final=True,
        outcome=Outcome.SUCCESS if success else Outcome.FAILURE,
        end_reason=EndReason.SCORED,
        started_at="2026-01-01T00:00:00+00:00",
        duration_s=0.0,
        steps=len(used),
    )
    steps = [
        Step(
            index=index,
            kind="action",
            data={"calls": [{"name": "act", "arguments": {ARGUMENTS[s]: rule for s, rule in rules.items()}}]},
        )
        for index, rules in enumerate(used)
    ]
    view = TaskView(request=request, messages=(), policy="", tools=())
    return EpisodeTrace(record=record, trajectory=Trajectory(view=view, steps=tuple(steps)))


@pytest.mark.parametrize(
    ("success", "plan", "exec_", "label"),
    [
        (False, WRONG, RIGHT, Label.PLANNING),
        (False, RIGHT, WRONG, Label.EXECUTION),
        (False, WRONG, WRONG, Label.BOTH),
        (False, RIGHT, RIGHT, Label.NONE),
        (True, RIGHT, RIGHT, Label.BOTH),
        (True, WRONG, RIGHT, Label.NONE),
    ],
)
def test_the_right_label_follows_from_the_rules_that_were_used(
    success: bool, plan: dict[Stage, str], exec_: dict[Stage, str], label: Label
) -> None:
    """R19, R20: an outcome that the stages do not explain came from outside."""
    used = {Stage.PLAN: plan[Stage.PLAN], Stage.EXEC: exec_[Stage.EXEC]}
    assert right_label(trace_of(CASE.request, success, used)) is label


def test_one_wrong_step_breaks_a_rule() -> None:
    """R19: all steps of a case must keep it."""
    slip = {Stage.PLAN: RIGHT[Stage.PLAN], Stage.EXEC: WRONG[Stage.EXEC]}
    assert right_label(trace_of(CASE.request, False, RIGHT, slip)) is Label.EXECUTION


def test_an_episode_that_never_acted_broke_both_rules() -> None:
    """R19: words without a call give a case up."""
    assert right_label(trace_of(CASE.request, False)) is Label.BOTH


def test_an_episode_of_another_benchmark_has_no_known_label() -> None:
    with pytest.raises(ConfigError, match="r:train:0 is no case of credit_world"):
        right_label(trace_of("Book a table", True))


def memory(experience: str, about: str = scenario(CASE.family, 1)) -> Record:
    """A memory of the case's family."""
    payload = MemoryPayload(scenario=about, experience=experience).to_json()
    return Record(collection="plan", id="0-0", version=0, payload=payload, vectors={})


def test_a_memory_is_right_if_the_first_rule_of_each_stage_is_the_hidden_one() -> None:
    """The agent goes by the first rule that it is shown."""
    good, bad = (stated(rules[Stage.PLAN], Stage.PLAN) for rules in (RIGHT, WRONG))
    worse = stated(WRONG[Stage.EXEC], Stage.EXEC)
    assert is_right(memory(good), CASE.world)
    assert is_right(memory(f"{good}\n{bad}"), CASE.world)
    assert not is_right(memory(f"{bad}\n{good}"), CASE.world)
    assert not is_right(memory(f"{good}\n{worse}"), CASE.world)


def test_a_memory_that_states_nothing_or_no_family_is_not_right() -> None:
    assert not is_right(memory("Try harder."), CASE.world)
    assert not is_right(memory(stated(RIGHT[Stage.PLAN], Stage.PLAN), about="anything"), CASE.world)
