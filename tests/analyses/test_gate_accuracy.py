"""``analyze gate-accuracy`` over a launch with a perfect gate, a blind one, and two ways to move values."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.analyses.gate_accuracy import find
from chime_dist.analyses.gate_runs import Point, measured
from chime_dist.errors import ConfigError, RunDirectoryError
from chime_dist.wiring.results import launch_report
from chime_dist.wiring.studies import studied_runs
from tests.analyses.launches import EVAL, TRAIN, other_launch


@pytest.fixture(scope="module")
def points(worsening: LaunchDirectory) -> dict[tuple[str, float], Point]:
    """What was measured, by method and gate accuracy."""
    return {(point.method, point.accuracy): point for point in measured(studied_runs(worsening))}


def test_points_go_by_method_and_from_the_best_gate_to_the_worst(worsening: LaunchDirectory) -> None:
    """Each has its runs by ordering."""
    found = measured(studied_runs(worsening))
    methods = ["chime", "chime no_gate", "chime no_hierarchy", "umem", "no_plan"]
    assert [(point.method, point.accuracy) for point in found] == [(m, a) for m in methods for a in (1.0, 0.0)]
    assert {tuple(run.ordering for run in point.runs) for point in found} == {(0, 1)}


def test_success_and_bank_size_are_those_of_the_report(worsening: LaunchDirectory) -> None:
    """R4, R5: the same episodes, the same version."""
    lines = {line.run_id: line for row in launch_report(worsening).rows for line in row.runs}
    for point in measured(studied_runs(worsening)):
        for run in point.runs:
            line = lines[run.run_id]
            assert run.eval * EVAL == line.eval.success
            assert run.train_first * TRAIN == line.train_first.success
            assert run.train_last * TRAIN == line.train_selected.success
            assert run.size == (line.bank_size or 0)


def test_labels_are_held_against_the_true_causes(points: dict[tuple[str, float], Point]) -> None:
    """R19, R20: a gate that sees every cause errs never, one that sees none always; without a gate no label."""
    for method in ("chime", "chime no_hierarchy"):
        assert {run.wrong for run in points[method, 1.0].runs} == {0}
        assert {run.wrong for run in points[method, 0.0].runs} == {1}
    assert {run.wrong for run in points["chime no_gate", 1.0].runs} == {None}


def test_memories_are_held_against_the_hidden_rules(points: dict[tuple[str, float], Point]) -> None:
    """What a gate writes that sees every cause helps; of what a blind one writes, not all does."""
    assert {run.right for run in points["chime", 1.0].runs} == {1}
    assert {run.right for method in ("umem", "no_plan") for run in points[method, 1.0].runs} == {None}
    assert all(run.right is not None and run.right < 1 for run in points["chime", 0.0].runs)


def test_the_finding_has_a_row_per_point_and_a_line_per_run(worsening: LaunchDirectory) -> None:
    finding = find(studied_runs(worsening))
    assert len(finding.table.rows) == 10
    assert finding.table.header[5:9] == ("Bank: plan", "Bank: exec", "Bank: shared", "Bank: memory")
    assert {row[5:9] for row in finding.table.rows if row[0] == "no_plan"} == {("-", "-", "-", "-")}
    lines = list(csv.DictReader(io.StringIO(finding.lines.to_csv())))
    assert {line["run_id"] for line in lines} == set(worsening.manifest.runs)
    assert {line["wrong_labels"] for line in lines if line["method"] == "chime no_gate"} == {""}
    assert [panel.title for panel in finding.chart.panels] == ["Eval success", "Bank size"]
    for panel in finding.chart.panels:
        for series in panel.series:
            assert series.x == (1.0, 0.0)
            assert all(low <= y <= high for low, y, high in zip(series.low, series.y, series.high, strict=True))


def test_a_launch_without_known_causes_is_refused(tmp_path: Path) -> None:
    """The message names the run, and a sweep that would do."""
    with pytest.raises(ConfigError, match=r"credit_world-chime-m-o0.*configs/gate_accuracy.yaml"):
        find(studied_runs(other_launch(tmp_path)))


def test_a_launch_that_is_not_complete_is_refused(tmp_path: Path, worsening: LaunchDirectory) -> None:
    """H1: no number out of a part of the episodes."""
    copy = LaunchDirectory.open(shutil.copytree(worsening.path, tmp_path / "part" / worsening.id))
    run = next(iter(copy.manifest.runs))
    rows = copy.run(run).episodes.read_bytes().splitlines(keepends=True)
    copy.run(run).episodes.write_bytes(b"".join(rows[:-1]))
    with pytest.raises(RunDirectoryError, match=rf"{run}.*of {EVAL} eval episodes are scored.*resume"):
        find(studied_runs(copy))
