"""The numbers of value evolution, and what experience is accepted: R24 to R29."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chime_dist.core.credit import (
    EvolutionParams,
    Rejection,
    accepted,
    averaged,
    delta,
    is_placeholder,
    prunable,
    rejection,
)
from chime_dist.core.memory import Stage
from chime_dist.core.verdict import Diagnosis, Label, NewExperience

DEFAULTS = EvolutionParams()


def test_defaults_are_those_of_table_7() -> None:
    """R26 to R32: the printed numbers, and our reading where the paper is silent."""
    assert DEFAULTS.model_dump() == {
        "conf_threshold": 0.5,
        "accept": "checked",
        "conf_gates_values": False,
        "merge_threshold": 0.88,
        "prune_min_count": 3,
        "prune_threshold": -0.1,
        "value_update": "retrieved",
        "merge": "llm",
        "rewrite_scenario": False,
        "addition": "content_novelty",
        "addition_threshold": 0.1,
    }


@pytest.mark.parametrize(
    ("success", "in_attributed", "misleading", "expected"),
    [
        (True, True, False, 0.8),
        (True, False, False, 0.0),
        (True, True, True, -0.8),
        (False, True, False, 0.0),
        (False, False, True, -0.8),
    ],
)
def test_delta_of_equation_8(success: bool, in_attributed: bool, misleading: bool, expected: float) -> None:
    """R24: misleading first, then credited success, else 0; gamma = 0.8."""
    assert delta(0.8, success, in_attributed, misleading) == expected


def test_a_penalty_of_no_confidence_is_plain_zero() -> None:
    """R24: -0.0 would be another spelling in the journal."""
    assert str(delta(0.0, False, False, True)) == "0.0"


def test_a_value_is_the_online_average_of_its_feedback() -> None:
    """R25: from (0, 0), delta 0.8, -0.6, 0, 0.9."""
    value, count, seen = 0.0, 0, []
    for feedback in (0.8, -0.6, 0.0, 0.9):
        value, count = averaged(value, count, feedback)
        seen.append((value, count))
    expected = [(0.8, 1), (0.1, 2), (0.066667, 3), (0.275, 4)]
    assert [n for _, n in seen] == [n for _, n in expected]
    assert [v for v, _ in seen] == pytest.approx([v for v, _ in expected], abs=1e-6)


@pytest.mark.parametrize(
    ("value", "count", "feedback", "expected"),
    [(0.5, 3, -0.8, 0.175), (0.2, 2, -0.8, -0.133333), (0.5, 3, 0.0, 0.375)],
)
def test_worked_averages(value: float, count: int, feedback: float, expected: float) -> None:
    """R25."""
    moved, reuses = averaged(value, count, feedback)
    assert moved == pytest.approx(expected, abs=1e-6)
    assert reuses == count + 1


@settings(deadline=None)
@given(st.floats(-1, 1), st.integers(0, 10_000), st.floats(-1, 1))
def test_a_value_never_leaves_its_range(value: float, count: int, feedback: float) -> None:
    """R25: clip to [-1, 1]."""
    assert -1.0 <= averaged(value, count, feedback)[0] <= 1.0


@pytest.mark.parametrize(
    ("count", "value", "gone"),
    [(3, -0.1, False), (3, -0.1001, True), (2, -0.9, False), (4, -0.1001, True), (3, 0.5, False)],
)
def test_pruning_is_strict_below_the_threshold_from_three_uses(count: int, value: float, gone: bool) -> None:
    """R27."""
    assert prunable(value, count, DEFAULTS) is gone


def test_float_noise_at_the_threshold_prunes_nothing() -> None:
    """R27: deltas 0.6, -0.9, 0 give -0.1, in floats -0.10000000000000002: kept."""
    value, count = 0.0, 0
    for feedback in (0.6, -0.9, 0.0):
        value, count = averaged(value, count, feedback)
    assert value < -0.1
    assert not prunable(value, count, DEFAULTS)


def diagnosis(
    scenario: str = "returns of two orders",
    experience: str = "check each status first",
    actionable: bool = True,
    confidence: float = 0.8,
    label: Label = Label.PLANNING,
) -> Diagnosis:
    new = NewExperience(scenario=scenario, experience=experience, actionable=actionable)
    return Diagnosis(label=label, confidence=confidence, experience={Stage.PLAN: new})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (diagnosis(), None),
        (diagnosis(confidence=0.5), None),
        (diagnosis(confidence=0.5 - 1e-10), None),
        (diagnosis(confidence=0.49), Rejection.LOW_CONFIDENCE),
        (diagnosis(actionable=False), Rejection.NOT_ACTIONABLE),
        (diagnosis(scenario="  "), Rejection.EMPTY),
        (diagnosis(experience="..."), Rejection.EMPTY),
        (diagnosis(experience="TODO: fill in"), Rejection.PLACEHOLDER),
        (diagnosis(scenario="<scenario>"), Rejection.PLACEHOLDER),
    ],
)
def test_experience_is_accepted_or_rejected_with_a_reason(given: Diagnosis, reason: Rejection | None) -> None:
    """R29: gamma >= 0.5 inclusive, both fields non-empty, no placeholder, actionable."""
    assert rejection(given, Stage.PLAN, DEFAULTS) is reason


def test_a_stage_without_experience_has_nothing_to_accept() -> None:
    """R28."""
    assert rejection(diagnosis(), Stage.EXEC, DEFAULTS) is Rejection.NO_EXPERIENCE


def test_only_accepted_experience_of_attributed_stages_needs_vectors() -> None:
    """R28, R29, F7: an empty text never reaches the encoder."""
    both = diagnosis(label=Label.BOTH)
    assert accepted(both, DEFAULTS) == {Stage.PLAN: both.experience[Stage.PLAN]}
    assert accepted(diagnosis(label=Label.EXECUTION), DEFAULTS) == {}
    assert accepted(diagnosis(experience=""), DEFAULTS) == {}


def test_without_a_filter_only_text_is_asked_for() -> None:
    """R44 no_gate, R29: a placeholder, an unsure or an unactionable text is kept; no text is not."""
    anything = EvolutionParams(accept="any")
    for kept in (diagnosis(confidence=0.0), diagnosis(experience="N/A"), diagnosis(actionable=False)):
        assert rejection(kept, Stage.PLAN, DEFAULTS) is not None
        assert rejection(kept, Stage.PLAN, anything) is None
    assert rejection(diagnosis(experience=" ."), Stage.PLAN, anything) is Rejection.EMPTY


def both_stages(plan_actionable: bool = True) -> Diagnosis:
    return Diagnosis(
        label=Label.BOTH,
        confidence=0.8,
        experience={
            Stage.PLAN: NewExperience(scenario="returns", experience="split by order", actionable=plan_actionable),
            Stage.EXEC: NewExperience(scenario="refunds", experience="give cents", actionable=True),
        },
    )


def test_stages_that_share_a_bank_write_one_experience() -> None:
    """R44 no_hierarchy: both texts under the plan's scenario; where only one is accepted, that one."""
    shared = dict.fromkeys(Stage, "shared")
    joined = NewExperience(scenario="returns", experience="split by order\ngive cents", actionable=True)
    assert accepted(both_stages(), DEFAULTS, shared) == {Stage.PLAN: joined}
    half = both_stages(plan_actionable=False)
    assert accepted(half, DEFAULTS, shared) == {Stage.EXEC: half.experience[Stage.EXEC]}


def test_a_stage_without_a_bank_has_nothing_accepted() -> None:
    """R44 no_plan_memory, no_exec_memory, no_memory."""
    for stages in ([Stage.PLAN], [Stage.EXEC], []):
        banks = {stage: stage.value for stage in stages}
        assert list(accepted(both_stages(), DEFAULTS, banks)) == stages


@pytest.mark.parametrize(
    "text", ["N/A", "none.", "TBD", "<experience>", "{{ text }}", "[insert here]", "暂无", "“string”", "todo : x"]
)
def test_placeholders_are_recognised_as_a_whole(text: str) -> None:
    """R29."""
    assert is_placeholder(text)


@pytest.mark.parametrize(
    "text",
    [
        "call get_user(<user_id>) first",
        "none of the orders may be open",
        "[a] before [b]",
        "todo lists need dates",
    ],
)
def test_sentences_that_hold_such_words_are_no_placeholders(text: str) -> None:
    """R29: experience names arguments in angle brackets."""
    assert not is_placeholder(text)
