"""The table of the specification: every rule and field case in scope has a test, and every promise a file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent

RULES = [*(f"R{number}" for number in range(1, 39)), "R42", "R43", "R44", "R45"]
"""Rules of the papers that this package implements so far."""

FIELD_CASES = {
    "A": (1, 2, 4, 6, 7, 9),
    "B": (1, 3, 4, 5, 7, 8),
    "C": (1, 2, 3, 4, 7, 8),
    "D": (1, 2, 4, 6, 7, 9, 10, 11),
    "E": (1, 2, 4, 5, 7),
    "F": (1, 3, 4, 5, 7),
    "G": (2, 3, 4, 6, 10),
    "H": (1, 3, 4, 6, 8, 9),
}
"""Failures that real users met, by group: A servers, B replies, C Ray, D Redis, E Qdrant, F embeddings,
G benchmarks, H sweeps."""

IN_SCOPE = [*RULES, *(f"{group}{number}" for group, numbers in FIELD_CASES.items() for number in numbers)]

_ID = re.compile(r"\b(R\d+|[A-H]\d{1,2})\b")


def docstrings_below(folder: Path) -> Iterator[tuple[str, str]]:
    """Every test's name and docstring."""
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield f"{path.relative_to(folder)}::{node.name}", ast.get_docstring(node) or ""


HOLDERS: dict[str, list[str]] = {}
for _name, _docstring in docstrings_below(TESTS):
    for _id in set(_ID.findall(_docstring)):
        HOLDERS.setdefault(_id, []).append(_name)


@pytest.mark.parametrize("rule", IN_SCOPE)
def test_every_rule_and_field_case_in_scope_is_named_by_a_test(rule: str) -> None:
    assert HOLDERS.get(rule), (
        f"no test under tests/ has {rule} in its docstring: write one that would fail without it"
    )


def test_no_docstring_names_a_rule_that_does_not_exist() -> None:
    """A mistyped id would look like a rule that is held. The papers' rules end at 80, a group's cases at 11."""
    beyond = {id_ for id_ in HOLDERS if int(id_[1:]) > (80 if id_[0] == "R" else 11) or id_[1:].startswith("0")}
    assert beyond == set()


def guarantees() -> list[list[str]]:
    """The cells of the README's table, without its head."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split("\n## Guarantees\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_guarantee_of_the_readme_is_backed_by_tests_that_exist() -> None:
    """A renamed or deleted file takes its promise with it."""
    rows = guarantees()
    assert len(rows) == 13
    for _, _, backing in rows:
        files = re.findall(r"`([^`]+)`", backing)
        assert files
        for file in files:
            assert (ROOT / file).is_file(), f"README names {file}"
            assert "def test_" in (ROOT / file).read_text(encoding="utf-8")
