"""``chime-dist analyze``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from typer.testing import CliRunner, Result

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.cli.app import app
from tests.analyses.launches import other_launch


def analyze(*words: str | Path) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["analyze", *map(str, words)])


def test_the_list_names_every_analysis() -> None:
    result = analyze("--list")
    assert result.exit_code == 0
    assert result.stdout.startswith("gate-accuracy  ")
    [found] = json.loads(analyze("--list", "--json").stdout)["analyses"]
    assert found["name"] == "gate-accuracy"


def test_the_answer_is_a_table_a_picture_and_the_numbers_of_every_run(
    tmp_path: Path, worsening: LaunchDirectory
) -> None:
    """They go into the launch's report folder."""
    copy = LaunchDirectory.open(shutil.copytree(worsening.path, tmp_path / "copy" / worsening.id))
    result = analyze("gate-accuracy", copy.path)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Gate accuracy, mean and range over 2 orderings")
    assert "chime no_hierarchy" in result.stdout
    assert (copy.report / "gate-accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert len((copy.report / "gate-accuracy.csv").read_text().splitlines()) == 1 + len(copy.manifest.runs)


def test_out_names_the_picture_and_json_says_where_all_is(tmp_path: Path, worsening: LaunchDirectory) -> None:
    picture = tmp_path / "new" / "gates.png"
    result = analyze("gate-accuracy", worsening.path, "--out", picture, "--json")
    document = json.loads(result.stdout)
    assert (document["picture"], document["csv"]) == (str(picture), str(picture.with_suffix(".csv")))
    assert picture.is_file()
    assert len(document["finding"]["points"]) == 10
    assert document["finding"]["points"][0]["runs"][0]["wrong"] == 0.0


def test_what_cannot_be_asked_is_a_usage_error_that_says_what_can(
    tmp_path: Path, worsening: LaunchDirectory
) -> None:
    for words, said in (
        ((), "--list has the names"),
        (("gate-accuracy",), "analyze NAME DIR"),
        (("rq1", worsening.path), "there are: gate-accuracy"),
        (("gate-accuracy", worsening.path, "--out", tmp_path / "gates.pdf"), "name it *.png"),
        (("gate-accuracy", other_launch(tmp_path).path), "configs/gate_accuracy.yaml is such a sweep"),
    ):
        result = analyze(*words)
        assert (result.exit_code, result.stdout) == (2, ""), words
        assert said in result.stderr
