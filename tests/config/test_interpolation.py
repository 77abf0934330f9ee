"""``${NAME}`` in values."""

from __future__ import annotations

from typing import Any

import pytest

from chime_dist.config.interpolation import Filled, fill
from chime_dist.config.yaml_reader import parse_document

ENVIRON = {"N": "7", "F": "1e-3", "T": "true", "W": "no", "Z": "010", "S": "a b", "EMPTY": "", "U": "h"}


def filled(text: str) -> Filled:
    return fill(parse_document(text, "a.yaml"), ENVIRON)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${S}", "a b"),
        ("x-${S}-${N}", "x-a b-7"),
        ("${N}", 7),
        ("'${N}'", "7"),
        ("${N}${N}", "77"),
        ("${F}", 0.001),
        ("${T}", True),
        ("${W}", "no"),
        ("${Z}", "010"),
        ("${MISSING:-5}", 5),
        ("${MISSING:-no}", "no"),
        ("${MISSING:-}", ""),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY}", ""),
        ("http://${U}:80/${MISSING:-v1}", "http://h:80/v1"),
        ("$${N}", "${N}"),
        ("a $${N} ${N}", "a ${N} 7"),
        ("$N", "$N"),
    ],
)
def test_a_reference_is_filled_and_typed_only_when_it_stands_alone_and_bare(written: str, value: Any) -> None:
    result = filled(f"a: {written}")
    assert result.problems == []
    assert result.root == {"a": value}
    assert type(result.root["a"]) is type(value)


def test_references_are_filled_at_every_depth_and_what_was_written_is_remembered() -> None:
    result = filled("a:\n  - b: ${N}\n    c: {d: '${S}'}\n")
    assert result.root == {"a": [{"b": 7, "c": {"d": "a b"}}]}
    assert result.templates == {("a", 0, "b"): "${N}", ("a", 0, "c", "d"): "${S}"}


def test_every_unset_variable_is_a_problem_with_its_place() -> None:
    """H6: an unset variable is an error that names it; the text is never taken as it stands."""
    result = filled("a: ${X}\nb:\n  c: ${Y} ${Z}\n")
    assert [str(problem) for problem in result.problems] == [
        "a.yaml:1: a: the environment variable X is not set; set it, or write ${X:-default}",
        "a.yaml:3: b.c: the environment variable Y is not set; set it, or write ${Y:-default}",
    ]


@pytest.mark.parametrize("written", ["${}", "${1X}", "${X", "${X-Y}", "${X:+y}"])
def test_a_malformed_reference_is_a_problem(written: str) -> None:
    (problem,) = filled(f"a: '{written}'").problems
    assert "malformed reference" in problem.message
