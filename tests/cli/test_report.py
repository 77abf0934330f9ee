"""``report`` on the command line: what is compared, and what ends up in the launch's folder."""

from __future__ import annotations

import csv
import io

import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from tests.cli.conftest import Program


def test_a_report_compares_chime_with_every_other_method(program: Program, launch: LaunchDirectory) -> None:
    result = program("report", launch.path)
    assert result.exit_code == 0
    assert "Paired comparison" in result.stdout
    assert "2 paired comparisons were made; no p value is adjusted for that." in " ".join(result.stdout.split())
    lines = list(csv.DictReader(io.StringIO((launch.report / "comparisons.csv").read_text())))
    assert [(line["split"], line["first"], line["second"]) for line in lines] == [
        ("eval", "chime", "no_plan"),
        ("train", "chime", "no_plan"),
    ]


def test_compare_names_two_methods_and_their_order(program: Program, launch: LaunchDirectory) -> None:
    """As CSV it is the comparisons alone; the difference is the first's accuracy minus the second's."""
    found = []
    for words in (("chime", "no_plan"), ("no_plan", "chime")):
        result = program("report", launch.path, "--compare", *words, "--format", "csv")
        assert result.exit_code == 0
        found.append(next(csv.DictReader(io.StringIO(result.stdout))))
    there, back = found
    assert (there["first"], back["first"]) == ("chime", "no_plan")
    assert (there["wins"], there["losses"], there["p_pairs"]) == (back["losses"], back["wins"], back["p_pairs"])
    assert float(there["difference_points"]) == -float(back["difference_points"])
    assert (there["planned"], there["pairs"], there["left_out"]) == ("6", "6", "0")


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_a_comparison_is_printed_without_the_rest_of_the_report(
    program: Program, launch: LaunchDirectory, form: str
) -> None:
    """The report's folder gets the whole one all the same."""
    compared = program("report", launch.path, "--compare", "no_plan", "chime", "--format", form).stdout
    whole = program("report", launch.path, "--format", form).stdout
    assert "Paired comparison" in compared
    assert "2 paired comparisons were made" in " ".join(compared.split())
    assert "[1] " in compared
    for title in ("Results, Avg@", "Spent by the launch", "Orderings"):
        assert title not in compared
    assert "Results, Avg@" in whole
    assert "Results, Avg@" in (launch.report / "report.md").read_text()


def test_json_holds_the_comparison_and_csv_without_compare_the_rows(
    program: Program, launch: LaunchDirectory
) -> None:
    (first, *_) = program.json("report", launch.path, "--compare", "chime", "no_plan")["comparisons"]
    assert first["methods"] == ["chime", "no_plan"]
    header = program("report", launch.path, "--format", "csv").stdout.splitlines()[0]
    assert header.startswith("benchmark,backbone,method,")


def test_a_method_that_the_launch_does_not_have_is_a_usage_error(
    program: Program, launch: LaunchDirectory
) -> None:
    twice = program("report", launch.path, "--compare", "chime", "chime")
    assert twice.exit_code == 2
    assert "has 'chime' in one setting only; compare it with another method" in twice.stderr
    result = program("report", launch.path, "--compare", "chime", "no_gate")
    assert result.exit_code == 2
    assert "has no method 'no_gate' to compare; it has 'chime', 'no_plan'" in result.stderr
