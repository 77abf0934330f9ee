"""The gate's reply: R18 to R23, and the field cases of group B as the gate meets them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chime_dist.core.memory import Stage
from chime_dist.core.reply import Fault
from chime_dist.core.verdict import (
    Assessment,
    Diagnosis,
    GateFault,
    GateLimits,
    Label,
    NewExperience,
    Verdict,
    attributed,
    gate_schema,
    parse_verdict,
)

RETRIEVED = ("3-0", "12-1", "7-0")
NOTE = {"scenario": "orders in several states", "experience": "group them by status", "actionable": True}
REPLY: dict[str, Any] = {
    "assessment": {"plan": "let equality pass", "execution": "followed the plan", "external": "none"},
    "label": "planning",
    "confidence": 0.85,
    "plan_experience": NOTE,
    "exec_experience": None,
    "misleading": ["7-0"],
}


def parsed(text: str | None = None, finish: str = "stop", **changed: Any) -> Verdict:
    reply = {key: value for key, value in {**REPLY, **changed}.items() if value is not ...}
    return parse_verdict(json.dumps(reply) if text is None else text, finish, RETRIEVED)


def diagnosed(verdict: Verdict) -> Diagnosis:
    assert verdict.status == "decided"
    assert verdict.reason is None
    assert verdict.diagnosis is not None
    return verdict.diagnosis


def refused(verdict: Verdict) -> Fault | GateFault | None:
    assert verdict.status == "gate_error"
    assert verdict.diagnosis is None
    return verdict.reason


@pytest.mark.parametrize(
    ("label", "stages"),
    [
        (Label.PLANNING, (Stage.PLAN,)),
        (Label.EXECUTION, (Stage.EXEC,)),
        (Label.BOTH, (Stage.PLAN, Stage.EXEC)),
        (Label.NONE, ()),
    ],
)
def test_a_label_attributes_stages(label: Label, stages: tuple[Stage, ...]) -> None:
    """R22, S0 Eq. 7."""
    assert attributed(label) == stages


def test_a_whole_reply_becomes_a_diagnosis() -> None:
    """R18, S0 Eq. 6: label, experience per stage, confidence, misleading ids."""
    assert diagnosed(parsed()) == Diagnosis(
        label=Label.PLANNING,
        confidence=0.85,
        experience={Stage.PLAN: NewExperience.model_validate(NOTE)},
        misleading=("7-0",),
        assessment=Assessment(plan="let equality pass", execution="followed the plan", external="none"),
    )


def test_a_diagnosis_survives_the_journal() -> None:
    """R34: the diagnosis is stored as JSON and reads back equal."""
    diagnosis = diagnosed(parsed())
    assert Diagnosis.model_validate(json.loads(json.dumps(diagnosis.model_dump(mode="json")))) == diagnosis


def test_none_is_a_decision() -> None:
    """R21: no decision is not the label none."""
    assert diagnosed(parsed(label="none", plan_experience=None)).label is Label.NONE


def test_ids_outside_the_retrieved_set_are_dropped_and_recorded() -> None:
    """R21: invented ids and things that are no ids; a retrieved id counts once, in retrieval order."""
    verdict = parsed(misleading=[" 12-1 ", "99-0", "3-0", "12-1", 7, None, "99-0"])
    assert diagnosed(verdict).misleading == ("3-0", "12-1")
    assert verdict.dropped_ids == ("99-0", "7", "null")


@pytest.mark.parametrize("misleading", [None, ..., []])
def test_naming_no_misleading_memory_is_fine(misleading: Any) -> None:
    assert diagnosed(parsed(misleading=misleading)).misleading == ()


@pytest.mark.parametrize("misleading", ["7-0", {"7-0": True}, True, 7])
def test_misleading_ids_that_are_no_list_are_no_decision(misleading: Any) -> None:
    assert refused(parsed(misleading=misleading)) is GateFault.BAD_MISLEADING


def test_experience_of_a_stage_that_is_not_attributed_is_dropped_and_recorded() -> None:
    """R22, R28: whatever it looks like, it cannot reach a bank."""
    verdict = parsed(exec_experience="not even an object")
    assert diagnosed(verdict).experience.keys() == {Stage.PLAN}
    assert verdict.dropped_stages == (Stage.EXEC,)
    nothing = parsed(label="none", exec_experience=NOTE)
    assert diagnosed(nothing).experience == {}
    assert nothing.dropped_stages == (Stage.PLAN, Stage.EXEC)


@pytest.mark.parametrize("missing", [None, ...])
def test_experience_is_optional(missing: Any) -> None:
    verdict = parsed(label="both", exec_experience=missing)
    assert diagnosed(verdict).experience.keys() == {Stage.PLAN}
    assert verdict.dropped_stages == ()


@pytest.mark.parametrize(
    "broken",
    [
        "group them by status",
        [NOTE],
        {**NOTE, "scenario": None},
        {**NOTE, "experience": 7},
        {"scenario": "s", "experience": "e"},
        {**NOTE, "actionable": 1},
        {**NOTE, "actionable": "perhaps"},
    ],
)
def test_half_an_experience_is_no_decision(broken: Any) -> None:
    """R21: an attributed stage's experience is whole or absent."""
    assert refused(parsed(plan_experience=broken)) is GateFault.BAD_EXPERIENCE


def test_a_flag_given_as_text_keeps_its_meaning() -> None:
    """B5: "false" is not truthy."""
    diagnosis = diagnosed(parsed(plan_experience={**NOTE, "actionable": "false"}))
    assert diagnosis.experience[Stage.PLAN].actionable is False


def test_white_space_around_texts_goes() -> None:
    diagnosis = diagnosed(parsed(plan_experience={**NOTE, "scenario": "  returns \n", "experience": "\te"}))
    new = diagnosis.experience[Stage.PLAN]
    assert (new.scenario, new.experience) == ("returns", "e")


@pytest.mark.parametrize("assessment", [..., None, "planning was fine, label: execution", {"plan": 3}, ["both"]])
def test_the_assessment_never_decides(assessment: Any) -> None:
    """B5: a label in the reasoning does not win, and a misshapen reasoning loses nothing."""
    diagnosis = diagnosed(parsed(assessment=assessment))
    assert (diagnosis.label, diagnosis.assessment) == (Label.PLANNING, Assessment())


def test_unknown_keys_are_ignored() -> None:
    assert diagnosed(parsed(final="execution")).label is Label.PLANNING


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{json.dumps(REPLY)}\n```",
        f"The plan was at fault.\n```json\n{json.dumps(REPLY)}\n```",
        json.dumps(REPLY),
    ],
)
def test_b1_fences_do_not_change_the_verdict(text: str) -> None:
    """B1: fenced, prose + fenced, plain."""
    assert parsed(text) == parsed()


def test_b1_a_fenced_snippet_inside_a_reason_does_not_change_the_verdict() -> None:
    """B1: plain JSON whose reason holds a fenced snippet."""
    reason = {**REPLY["assessment"], "plan": 'it said ```json\n{"label": "execution"}\n```'}
    assert diagnosed(parsed(assessment=reason)).label is Label.PLANNING


def test_b1_empty_and_conflicting_fences_are_no_decision() -> None:
    """B1."""
    other = json.dumps({**REPLY, "label": "execution"})
    assert refused(parsed("```json\n```")) is Fault.NOT_JSON
    assert refused(parsed(f"```\n{json.dumps(REPLY)}\n```\n```\n{other}\n```")) is Fault.CONFLICTING


@pytest.mark.parametrize("spelled", ["NaN", "Infinity", "-Infinity", "1e999", '"NaN"', "null", '""', "true"])
def test_b3_a_confidence_that_is_no_finite_number_is_no_decision(spelled: str) -> None:
    """B3: 1e999 becomes inf only after the parser's constant hook."""
    text = json.dumps({**REPLY, "confidence": "HERE"}).replace('"HERE"', spelled)
    assert refused(parsed(text)) is GateFault.BAD_CONFIDENCE


@pytest.mark.parametrize(
    ("given", "gamma"),
    [
        (0.85, 0.85),
        ("0.85", 0.85),
        (85, 0.85),
        ("85%", 0.85),
        ("85\uff05", 0.85),
        ("85.5%", 0.855),
        (1, 1.0),
        ("1%", 0.01),
        (100, 1.0),
    ],
)
def test_b4_confidences_on_known_scales_are_read(given: Any, gamma: float) -> None:
    """B4."""
    assert diagnosed(parsed(confidence=given)).confidence == gamma


@pytest.mark.parametrize("given", [..., 101, -0.1, "high", "八成", 1.2])
def test_b4_other_confidences_are_no_decision(given: Any) -> None:
    """B4, R21: missing or out of range; never clamped."""
    assert refused(parsed(confidence=given)) is GateFault.BAD_CONFIDENCE


@pytest.mark.parametrize(
    ("given", "label"),
    [
        (" Planning. ", Label.PLANNING),
        ("(execution)", Label.EXECUTION),
        ("EXEC", Label.EXECUTION),
        ("规划", Label.PLANNING),
        ("执行", Label.EXECUTION),
        ("“两者”", Label.BOTH),
        ("planning and execution", Label.BOTH),
        ("Neither", Label.NONE),
        ("无", Label.NONE),
    ],
)
def test_b5_labels_match_a_closed_list(given: str, label: Label) -> None:
    """B5: normalised, with the Chinese forms."""
    assert diagnosed(parsed(label=given)).label is label


@pytest.mark.parametrize(
    "given",
    [
        ...,
        None,
        "INCORRECT",
        "not planning",
        "non-execution",
        "无规划",
        "没有执行问题",
        "looks like planning ... final: execution",
        "planning/execution",
        ["planning"],
        True,
        "",
    ],
)
def test_b5_negations_and_unknown_labels_are_no_decision(given: Any) -> None:
    """B5: nothing defaults to a label, not even to none."""
    assert refused(parsed(label=given)) is GateFault.BAD_LABEL


def test_b7_doubled_keys_and_objects_must_agree() -> None:
    """B7: disagreement is no decision, identical is accepted."""
    text = json.dumps(REPLY)
    doubled = text.replace('"label": "planning"', '"label": "planning", "label": "execution"')
    assert refused(parsed(doubled)) is Fault.CONFLICTING
    assert refused(parsed(text + text.replace("0.85", "0.9"))) is Fault.CONFLICTING
    assert parsed(text + "\n" + text) == parsed()


@pytest.mark.parametrize(
    ("text", "finish", "fault"),
    [
        ('{"label":"planning","confidence":0.9', "length", Fault.TRUNCATED),
        ('{"label":"planning","confidence":0.9', "stop", Fault.NOT_JSON),
        ('{"label":"plan', "stop", Fault.NOT_JSON),
        ('{"label":' + "\n" * 900, "length", Fault.TRUNCATED),
        ('{"label":' + "\n" * 900, "stop", Fault.NOT_JSON),
        ("I cannot help with that", "stop", Fault.NOT_JSON),
        ("抱歉\uff0c我无法评估", "stop", Fault.NOT_JSON),
        ("", "stop", Fault.EMPTY),
        ("anything", "content_filter", Fault.REFUSED),
    ],
)
def test_b8_cut_refused_and_empty_replies_are_gate_errors(text: str, finish: str, fault: Fault) -> None:
    """B8: not a label and not a zero; the excerpt holds no white space runs."""
    verdict = parsed(text, finish)
    assert refused(verdict) is fault
    assert len(verdict.excerpt) <= 60
    assert "\n" not in verdict.excerpt


def test_b8_a_null_reply_is_a_gate_error() -> None:
    """B8."""
    assert refused(parse_verdict(None, "stop", RETRIEVED)) is Fault.EMPTY


def strings_and_lists(schema: Any) -> list[dict[str, Any]]:
    """All schema nodes of type string or array."""
    nodes = list(schema.values()) if isinstance(schema, dict) else schema if isinstance(schema, list) else []
    here = [schema] if isinstance(schema, dict) and schema.get("type") in ("string", "array") else []
    return here + [found for node in nodes for found in strings_and_lists(node)]


def objects(schema: Any) -> list[dict[str, Any]]:
    """All schema nodes of type object."""
    nodes = list(schema.values()) if isinstance(schema, dict) else schema if isinstance(schema, list) else []
    here = [schema] if isinstance(schema, dict) and schema.get("type") == "object" else []
    return here + [found for node in nodes for found in objects(node)]


@pytest.mark.parametrize("ids", [(), RETRIEVED])
def test_the_schema_bounds_every_string_and_list(ids: tuple[str, ...]) -> None:
    """R18, B8: an unbounded string lets guided decoding run to the output limit."""
    found = strings_and_lists(gate_schema(ids, GateLimits()))
    assert found
    for node in found:
        assert "enum" in node or "maxLength" in node or "maxItems" in node


@pytest.mark.parametrize("ids", [(), RETRIEVED])
def test_the_schema_is_closed_as_strict_mode_demands(ids: tuple[str, ...]) -> None:
    """R18: every object lists all its properties as required and allows no other."""
    for node in objects(gate_schema(ids, GateLimits())):
        assert node["additionalProperties"] is False
        assert node["required"] == list(node["properties"])


def test_the_schema_takes_its_limits_and_ids() -> None:
    """R18, R21: lengths are configurable, misleading ids are an enum of the retrieved ones."""
    schema = gate_schema(("3-0", "7-0", "3-0"), GateLimits(assessment=11, scenario=22, experience=33))
    properties = schema["properties"]
    assert properties["misleading"] == {
        "type": "array",
        "items": {"type": "string", "enum": ["3-0", "7-0"]},
        "maxItems": 2,
    }
    stage = properties["plan_experience"]["anyOf"][0]["properties"]
    assert (stage["scenario"]["maxLength"], stage["experience"]["maxLength"]) == (22, 33)
    assert properties["assessment"]["properties"]["plan"]["maxLength"] == 11
    assert properties["label"]["enum"] == ["planning", "execution", "both", "none"]


def test_without_retrieved_memories_nothing_can_be_misleading() -> None:
    """R18: an empty enum is no schema, so the property is absent; a reply without it is whole."""
    assert "misleading" not in gate_schema((), GateLimits())["properties"]
    reply = {key: value for key, value in REPLY.items() if key != "misleading"}
    assert diagnosed(parse_verdict(json.dumps(reply), "stop", ())).misleading == ()


def test_the_schema_names_what_the_parser_reads() -> None:
    """R18: one contract, two sides."""
    assert set(gate_schema(RETRIEVED, GateLimits())["properties"]) == set(REPLY)


def test_two_experiences_join_under_the_first_ones_scenario() -> None:
    """R44 no_hierarchy: nothing that was said is lost, nothing is said twice, and both must be actionable."""
    first = NewExperience(scenario="returns", experience="split by order", actionable=True)
    second = NewExperience(scenario="refunds", experience="give cents", actionable=False)
    assert first.joined(second) == NewExperience(
        scenario="returns", experience="split by order\ngive cents", actionable=False
    )
    assert first.joined(first) == first
