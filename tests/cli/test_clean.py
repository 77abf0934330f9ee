"""``clean``: it shows, asks and removes; ``tests/wiring/test_cleaning.py`` has what there is to remove."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.cli.app import app
from tests.cli.conftest import Program, run_of


@pytest.fixture
def state(program: Program, launch: LaunchDirectory) -> Path:
    """Embedded state that the launch left behind."""
    folder = program.folder / "state" / "chime_dist" / launch.id
    folder.mkdir(parents=True)
    (folder / "appendonly.aof").write_bytes(b"x" * 3_000_000)
    return folder


def test_what_would_go_is_shown_and_nothing_is_removed(
    program: Program, launch: LaunchDirectory, state: Path
) -> None:
    told = program("clean", launch.path, "--dry-run")
    assert (told.exit_code, told.stdout) == (0, "")
    assert f"  embedded state: 2.9 MiB, {state}\n" in told.stderr
    assert state.exists()


@pytest.mark.parametrize(("answer", "code", "there"), [("n\n", 1, True), ("", 1, True), ("y\n", 0, False)])
def test_it_asks_first(launch: LaunchDirectory, state: Path, answer: str, code: int, there: bool) -> None:
    told = CliRunner().invoke(app, ["clean", str(launch.path)], input=answer)
    assert "Remove all this? [y/N]" in told.stderr
    assert (told.exit_code, state.exists()) == (code, there)
    assert ("nothing was removed" in told.stderr) is there
    assert ("say --yes" in told.stderr) is (answer == "")


def test_results_stay_readable_and_a_second_time_finds_nothing(
    program: Program, launch: LaunchDirectory, state: Path
) -> None:
    told = program("clean", "runs/latest", "--yes")
    assert told.exit_code == 0
    assert told.stdout.endswith(": embedded state (2.9 MiB)\n")
    assert not state.exists()
    again = program("clean", "runs/latest", "--yes")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "nothing to remove" in again.stderr
    for words in (["show"], ["report"], ["bank", "at"], ["bank", "verify"], ["resume"]):
        run = [run_of(launch, "chime")] if words == ["bank", "at"] else []
        assert program(*words, launch.path, *run).exit_code == 0


def test_a_launch_and_its_results_go_on_demand(program: Program, launch: LaunchDirectory, state: Path) -> None:
    with pytest.raises(AssertionError, match="say --yes, or --dry-run"):
        program.json("clean", launch.path, "--results")
    document = program.json("clean", launch.path, launch.path, "--results", "--yes")
    [cleaned] = document["launches"]
    assert [one["what"] for one in cleaned["removed"]] == ["state", "results"]
    assert cleaned["found"] == cleaned["removed"]
    assert not launch.path.exists()
    gone = program("clean", launch.path, "--yes")
    assert gone.exit_code == 1
    assert "is not a launch" in gone.stderr


def test_a_launch_that_runs_is_refused_before_anything_is_removed(
    program: Program, launch: LaunchDirectory, state: Path
) -> None:
    with launch.driver_lock() as lock:
        lock.acquire(datetime.now(UTC))
        refused = program("clean", launch.path, "--yes", "--results")
    assert refused.exit_code == 1
    assert "drives this launch since" in refused.stderr
    assert state.exists()
    assert launch.path.exists()
