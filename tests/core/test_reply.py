"""Reading replies: the field cases of group B, for every judge; the gate's own are in test_verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chime_dist.core.reply import EXCERPT_CHARS, Fault, confidence, excerpt, flag, sole_object, word

HELPFUL = {"helpful": True, "有帮助": True, "harmful": False, "无帮助": False}
"""A judge's closed list."""


@pytest.mark.parametrize(
    "text",
    [
        '{"label": "x"}',
        '\ufeff \n{"label": "x"}\n\n',
        '```json\n{"label": "x"}\n```',
        '```{"label": "x"}```',
        'My verdict follows.\n\n```json\n{"label": "x"}\n```\nThat is [1] all.',
        'Verdict: {"label": "x"}',
        '```json\n{"label": "x"}',
    ],
)
def test_fences_and_prose_around_an_object_do_not_matter(text: str) -> None:
    """B1: fenced, and prose + fenced, read like the plain object."""
    assert sole_object(text, "stop") == {"label": "x"}


@pytest.mark.parametrize("around", ["{}", "```json\n{}\n```", "So:\n```\n{}\n```"])
def test_backticks_and_braces_inside_a_string_stay_what_they_are(around: str) -> None:
    """B1: the text is read as it is first, so a reason that holds a fenced snippet survives."""
    reply = {"reason": 'it called ```json\n{"a": [1]}\n``` twice', "label": "x"}
    assert sole_object(around.replace("{}", json.dumps(reply)), "stop") == reply


def test_line_breaks_inside_a_string_need_no_escape() -> None:
    assert sole_object('{"reason": "one\ntwo"}', "stop") == {"reason": "one\ntwo"}


@pytest.mark.parametrize(
    "text",
    [
        "```json\n```",
        "``` ```",
        '["helpful"]',
        '[{"label": "x"}]',
        'Here: [ {"label": "x"}, 2]',
        'Here: [1, {"label": "x"} ]',
        "null",
        '"helpful"',
        "I cannot help with that",
        "抱歉\uff0c我无法评估",
        '{"label": "x", "confidence": 0.9',
        '{"label": "x',
        '{"label": "x"} }',
        '{"reason": "see {"label": "x"} above"}',
        'use {id} and answer {"label": "x"}',
        '{"label": "x",}',
        "{'label': 'x'}",
        '{"a":' * 100_000,
        "[" * 100_000,
        '{"n": ' + "9" * 5000 + "}",
    ],
)
def test_text_without_a_whole_object_of_its_own_is_no_decision(text: str) -> None:
    """B1, B8: empty fences, refusals, cut and wrapped objects; an inner object never stands for a cut one."""
    assert sole_object(text, "stop") is Fault.NOT_JSON


@pytest.mark.parametrize("text", ["", "  \n\t", "\u200b", None, "\n" * 900])
def test_an_empty_reply_is_no_decision(text: str | None) -> None:
    """B8: "" and null."""
    assert sole_object(text, "stop") is Fault.EMPTY


def test_a_cut_or_filtered_reply_is_no_decision_even_if_it_reads_well() -> None:
    """B8: at the output limit 0.9 may be a cut 0.95."""
    whole = '{"label": "x"}'
    assert sole_object(whole, "length") is Fault.TRUNCATED
    assert sole_object(whole, "content_filter") is Fault.REFUSED


@pytest.mark.parametrize(
    "text",
    [
        '{"label": "x", "label": "y"}',
        '{"inner": {"a": 1, "a": true}}',
        '{"a": 1, "a": 1.0}',
        '{"label": "x"}{"label": "y"}',
        '{"label": "x"} or rather {"label": "y"}',
        '```\n{"label": "x"}\n```\n```\n{"label": "y"}\n```',
        'first {"label": "x", "label": "y"}',
    ],
)
def test_disagreement_is_no_decision(text: str) -> None:
    """B1, B7: doubled keys and several objects that differ; the last one does not win, nor the first."""
    assert sole_object(text, "stop") is Fault.CONFLICTING


@pytest.mark.parametrize(
    "text",
    [
        '{"label": "x", "label": "x"}',
        '{"label": "x"}{"label": "x"}',
        '{"label": "x"}\n\n{ "label":"x" }',
        '```\n{"label": "x"}\n```\n```\n{"label": "x"}\n```',
    ],
)
def test_identical_repetition_is_accepted(text: str) -> None:
    """B7: identical = accepted."""
    assert sole_object(text, "stop") == {"label": "x"}


def test_half_a_surrogate_pair_is_no_text() -> None:
    """A cut emoji could be neither hashed nor stored."""
    assert sole_object('{"label": "\\ud83d"}', "stop") is Fault.BAD_TEXT


@pytest.mark.parametrize(
    "value", [" Helpful. ", "(helpful)", "**helpful**", "「有帮助」", "\uff28elpful", "helpful\u200b"]
)
def test_a_word_is_matched_after_normalisation(value: str) -> None:
    """B5: case, white space, brackets, emphasis, full-width forms."""
    assert word(value, HELPFUL) is True


@pytest.mark.parametrize(
    "value",
    [
        "INCORRECT",
        "not helpful",
        "unhelpful",
        "没有害处",
        "没有帮助",
        "!helpful",
        "helpful?",
        "helpful or harmful",
        "it looks helpful ... final: harmful",
        ["helpful"],
        {"helpful": 1},
        None,
        1,
        True,
        "",
    ],
)
def test_negations_and_unknown_words_are_no_decision(value: Any) -> None:
    """B5: exact match; no substring, no first match, no default."""
    assert word(value, HELPFUL) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (False, False),
        ("false", False),
        (" No. ", False),
        ("否", False),
        ("TRUE", True),
        ("是", True),
        (1, None),
        (0, None),
        ("maybe", None),
        ("not true", None),
        (None, None),
        ([], None),
    ],
)
def test_a_flag_is_a_boolean_or_a_listed_word(value: Any, expected: bool | None) -> None:
    """B5: "false" is not truthy."""
    assert flag(value) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.85, 0.85),
        ("0.85", 0.85),
        (85, 0.85),
        ("85", 0.85),
        ("85%", 0.85),
        ("85\uff05", 0.85),
        ("\uff18\uff15\uff05", 0.85),
        (" 85 % ", 0.85),
        ("85.5%", 0.855),
        (85.5, 0.855),
        (1, 1.0),
        (1.0, 1.0),
        ("1", 1.0),
        ("1%", 0.01),
        ("0.5%", 0.005),
        (100, 1.0),
        ("100%", 1.0),
        (0, 0.0),
        ("0%", 0.0),
        (".5", 0.5),
        (2, 0.02),
    ],
)
def test_one_written_rule_scales_a_confidence(value: Any, expected: float) -> None:
    """B4: 0 to 1 as it is, 2 to 100 and anything with a percent sign as a percentage."""
    assert confidence(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        101,
        -0.1,
        "-0.1",
        "101%",
        1.05,
        "1.5",
        1.999,
        100.1,
        10**400,
        "9" * 400,
        "high",
        "八成",
        "0.8 or 0.9",
        "8e-1",
        "+0.8",
        "0.",
        "",
        None,
        True,
        False,
        [0.8],
        float("nan"),
        float("inf"),
        "NaN",
        "Infinity",
    ],
)
def test_any_other_confidence_is_no_decision(value: Any) -> None:
    """B3, B4, R21: words, out of range, non-finite, boolean; never clamped into a number."""
    assert confidence(value) is None


def test_negative_zero_is_zero() -> None:
    """One spelling per value: -0.0 would hash differently."""
    assert str(confidence(-0.0)) == "0.0"


@settings(deadline=None)
@given(st.one_of(st.floats(), st.integers(), st.text()))
def test_a_confidence_is_in_range_or_absent(value: Any) -> None:
    """B3, R21, for any value at all."""
    number = confidence(value)
    assert number is None or 0.0 <= number <= 1.0


@settings(deadline=None)
@given(st.text(), st.sampled_from(["stop", "length", "tool_calls"]))
def test_any_text_gives_an_object_or_a_fault(text: str, finish: str) -> None:
    assert isinstance(sole_object(text, finish), dict | Fault)


def test_an_excerpt_holds_no_white_space_runs_and_ends_soon() -> None:
    """B8: 900 line breaks are not dumped into logs."""
    assert excerpt('{"label":' + "\n" * 900 + "x") == '{"label": x'
    assert len(excerpt("word " * 1000)) == EXCERPT_CHARS
    assert excerpt(None) == ""
    assert excerpt("cut \ud83d") == "cut ?"
