"""What is true of an episode and of a memory in ``credit_world``, which knows every cause. No method sees it."""

from __future__ import annotations

from collections.abc import Mapping

from chime_dist.core.bank import Record
from chime_dist.core.credit_world import (
    ARGUMENTS,
    Case,
    all_right,
    family_in,
    hidden_rule,
    read_case,
    rules_in,
    true_label,
)
from chime_dist.core.episode import EpisodeTrace, Json, Outcome
from chime_dist.core.memory import MemoryPayload, Stage
from chime_dist.core.verdict import Label
from chime_dist.errors import ConfigError


def right_label(trace: EpisodeTrace) -> Label:
    """The attribution that a scored episode deserves (R19, R20).

    Raises ConfigError for an episode of another benchmark.
    """
    case = read_case(trace.trajectory.view.request)
    if case is None:
        raise ConfigError(f"{trace.record.unit.key} is no case of credit_world, so its true causes are not known")
    used: dict[Stage, list[str]] = {stage: [] for stage in Stage}
    for step in trace.trajectory.steps:
        for call in step.data.get("calls", ()) if step.kind == "action" else ():
            given: Mapping[str, Json] = call.get("arguments") or {}
            for stage, name in ARGUMENTS.items():
                used[stage].append(str(given.get(name, "")).strip())
    right = {stage: all_right(case, stage, used[stage]) for stage in Stage}
    return true_label(trace.record.outcome is Outcome.SUCCESS, right[Stage.PLAN], right[Stage.EXEC])


def is_right(record: Record, world: int) -> bool:
    """Whether who follows this memory of CHIME keeps the rule of its family, in the world with this seed.

    The first rule that it states for a stage is the one that is followed. A memory that states none is not right.
    """
    memory = MemoryPayload.of(record)
    family = family_in(memory.scenario)
    if family is None:
        return False
    case = Case(world, family, 0)
    stated = {stage: rules_in(memory.experience, stage) for stage in Stage}
    return any(stated.values()) and all(
        rules[0] == hidden_rule(case, stage) for stage, rules in stated.items() if rules
    )
