"""What A-MapReduce's models answer: read as a whole or not at all, and never mended."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from chime_dist.core.reply import Fault
from chime_dist.core.rule_book import Case, Operation, Review, Rule, RuleParams
from chime_dist.core.rule_reply import list_schema, operations_schema, read_list, read_operations

CASES = tuple(Case(name=name, node="0-0", outcome="success", task="t", plan="p") for name in ("S1", "S2"))


def review(**rules: Rule) -> Review:
    return Review(position=3, rules=rules, cases=CASES, merge=False, types={"0-0": "0-0"})


def said(value: Any) -> tuple[Operation, ...] | Fault:
    return read_operations(json.dumps(value), "stop", RuleParams(max_operations=3))


def test_a_list_is_bounded_without_blanks_and_repeats() -> None:
    texts = ["  a ", "", "\u200b", 7, "b", "a", None, "c", "d"]
    assert read_list(json.dumps({"hints": texts}), "stop", "hints", 3) == ("a", "b", "c")


@pytest.mark.parametrize(
    ("text", "finish"),
    [('{"hints": ["a"]', "stop"), ('{"hints": ["a"]}', "length"), ('{"hints": "a"}', "stop"), ("{}", "stop")],
)
def test_a_reply_without_the_list_has_no_texts(text: str, finish: str) -> None:
    """B1, B8: cut, wrapped or something else."""
    assert read_list(text, finish, "hints", 3) == ()


def test_the_schema_of_a_list_asks_for_at_least_one_text() -> None:
    schema = list_schema("hints", 2, 5)
    jsonschema.validate({"hints": ["abcde"]}, schema)
    wrongs: tuple[dict[str, Any], ...] = (
        {"hints": []},
        {"hints": ["a", "b", "c"]},
        {"hints": ["abcdef"]},
        {"hints": ["a"], "x": 1},
    )
    for wrong in wrongs:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_operations_are_read_by_word_and_bounded() -> None:
    entry = {"op": " Agree.", "rule": " 3-1 ", "text": "", "cases": ["S1", "S1", 4]}
    read = said({"operations": [entry] * 5})
    assert read == (Operation(op="AGREE", rule="3-1", cases=("S1",)),) * 3


def test_operations_that_say_nothing_are_left_out() -> None:
    """An unknown word, a new text that nobody could see, something else than an object."""
    wrong = [
        {"op": "KEEP", "rule": "3-1"},
        {"op": "ADD", "text": " \u200b"},
        {"op": "EDIT", "rule": "3-1"},
        "ADD",
        3,
    ]
    assert said({"operations": wrong}) == ()
    right = {"op": "ADD", "text": " a rule ", "cases": "S1"}
    assert said({"operations": [*wrong, right]}) == (Operation(op="ADD", text="a rule"),)


def test_a_comparison_without_operations_says_why() -> None:
    assert said({"operations": {"op": "ADD"}}) is Fault.NOT_JSON
    assert read_operations("", "stop", RuleParams()) is Fault.EMPTY
    assert said({"operations": []}) == ()


def test_a_comparison_can_name_only_what_there_is() -> None:
    """An empty book can only be added to."""
    params = RuleParams()
    full = operations_schema(review(**{"3-1": Rule(rule="a", score=1, tasks=())}), params)
    empty = operations_schema(review(), params)
    add = {"op": "ADD", "rule": "", "text": "x", "cases": ["S2"]}
    agree = {"op": "AGREE", "rule": "3-1", "text": "", "cases": []}
    jsonschema.validate({"operations": [add, agree]}, full)
    jsonschema.validate({"operations": [add]}, empty)
    for schema, wrong in (
        (empty, agree),
        (full, {**agree, "rule": "4-1"}),
        (full, {**add, "cases": ["S3"]}),
        (full, {**add, "text": "x" * (params.rule_chars + 1)}),
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"operations": [wrong]}, schema)
