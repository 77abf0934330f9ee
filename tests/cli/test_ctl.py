"""``chime-dist ctl``: steering a launch in another process, and what it says where there is nothing to steer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chime_dist.adapters.directory.control_file import ControlFile
from chime_dist.adapters.directory.launch_directory import LaunchDirectory, State
from chime_dist.cli.ctl import asking
from tests.cli.conftest import Program, run_of
from tests.steered import steered

PATIENCE_S = 120.0

SWEEP = steered(families=2, tasks=10, window=2, slots=4, endpoint="latency_s: [0.3, 0.5]")


@contextmanager
def sweeping(program: Program) -> Iterator[subprocess.Popen[str]]:
    """The program in a process of its own, once its launch is there; told to stop if it is still there."""
    with subprocess.Popen(
        [sys.executable, "-m", "chime_dist", "sweep", str(program.write(SWEEP))],
        cwd=program.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            _wait_for_status(program.folder, process)
            yield process
        finally:
            process.kill()


def _wait_for_status(folder: Path, process: subprocess.Popen[str]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not list(folder.glob("runs/*/*/status.json")):
        assert process.poll() is None, "the sweep ended"
        assert time.monotonic() < give_up
        time.sleep(0.05)


def _finished(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=PATIENCE_S)
    return output


def test_a_running_launch_is_paused_slowed_and_goes_on_without_a_cancelled_run(program: Program) -> None:
    """Every command is answered by the driver; the launch ends incomplete (exit code 3) and says why."""
    with sweeping(program) as process:
        paused = program("ctl", "runs/latest", "pause")
        assert paused.exit_code == 0, paused.output
        assert re.fullmatch(r"paused: nothing more is admitted; \d open episodes end\n", paused.stdout)
        [listed] = program.json("ls")["launches"]
        assert (listed["state"], listed["holder"]["pid"]) == ("paused", process.pid)

        assert program("ctl", "runs/latest", "slots", "2").exit_code == 0
        refused = program("ctl", "runs/latest", "slots", "5")
        assert refused.exit_code == 1
        assert "5 slots are more than the 4 that this launch's workers have: ask for 1 to 4" in refused.stderr

        cancelled = program.json("ctl", "runs/latest", "cancel", "chime")
        run = cancelled["command"]["run_id"]
        assert cancelled["answer"]["taken"]
        assert cancelled["text"].startswith(f"{run} is cancelled: nothing more of it is admitted")
        assert program("ctl", "runs/latest", "continue").stdout == "goes on\n"
        output = _finished(process)
        assert process.returncode == 3, output
    assert f"Incomplete: cancelled: {run} by " in output
    owed = {standing["run_id"]: standing["owed"] for standing in program.json("show", "runs/latest")["runs"]}
    assert owed.pop(run) > 0
    assert list(owed.values()) == [0]

    gone = program("ctl", "runs/latest", "pause")
    assert gone.exit_code == 1
    assert "no driver runs this launch, so there is nothing to pause.\nIt ended incomplete, " in gone.stderr
    assert " of 40 not done. Go on with:\n  chime-dist resume runs/" in gone.stderr
    again = program("ctl", "runs/latest", "cancel", "chime")
    assert again.exit_code == 0
    assert again.stdout.startswith(f"{run} is cancelled already, by ")

    revived = program("ctl", "runs/latest", "revive", "chime")
    assert revived.stdout == f"noted: the next resume takes up {run}\n"
    resumed = program("resume", "runs/latest", "--set", "cluster.endpoints.m.latency_s=[0.0, 0.0]")
    assert resumed.exit_code == 0, resumed.output


@pytest.mark.parametrize(
    ("words", "doing"), [(["pause"], "pause"), (["continue"], "continue"), (["slots", "2"], "give slots to")]
)
def test_what_only_a_driver_can_do_is_refused_without_one(
    program: Program, launch: LaunchDirectory, words: list[str], doing: str
) -> None:
    result = program("ctl", launch.path, *words)
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: {launch.path}: no driver runs this launch, so there is nothing to {doing}.\n"
        f"It is complete; its results:\n  chime-dist report {launch.path}\n"
    )
    assert not (launch.path / "control.jsonl").exists()


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        ("running", "", "Nobody drives it: its driver is gone without a word"),
        ("preempted", "", "It ended preempted"),
        ("paused", "an outage", "It ended paused"),
        ("incomplete", "", "It ended incomplete"),
        (None, "", "Nobody drives it, and nobody has begun. Start it with:"),
    ],
)
def test_what_is_refused_without_a_driver_is_answered_with_how_the_launch_stands(
    program: Program, launch: LaunchDirectory, state: State | None, reason: str, said: str
) -> None:
    if state is None:
        (launch.path / "status.json").unlink()
    else:
        launch.set_status(state, now=_now(), reason=reason)
    result = program("ctl", launch.path, "pause")
    assert result.exit_code == 1
    assert f"so there is nothing to pause.\n{said}" in result.stderr
    assert f"\n  chime-dist resume {launch.path}\n" in result.stderr


def test_a_finished_run_is_not_cancelled_nor_one_revived_that_was_not(
    program: Program, launch: LaunchDirectory
) -> None:
    """A complete launch stays complete: a resume would leave out what was noted, and end incomplete."""
    refused = program("ctl", launch.path, "cancel", "chime")
    assert refused.exit_code == 1
    assert refused.stderr.endswith(f"{run_of(launch, 'chime')} is finished; there is nothing to cancel\n")
    revived = program("ctl", launch.path, "revive", "chime")
    assert (revived.exit_code, revived.stdout) == (0, f"{run_of(launch, 'chime')} was not cancelled\n")
    assert not (launch.path / "control.jsonl").exists()


def test_a_command_is_left_for_a_driver_that_is_not_waited_for(program: Program, launch: LaunchDirectory) -> None:
    with launch.driver_lock() as lock:
        lock.acquire(_now())
        said = program("ctl", launch.path, "slots", "2", "--no-wait")
    assert (said.exit_code, said.stdout) == (0, "asked: slots; the driver looks once a second\n")
    [exchange] = ControlFile(launch).exchanges()
    assert exchange.command.slots == 2
    assert "process" in exchange.command.by


def test_a_driver_that_does_not_answer_is_told_of(
    program: Program, launch: LaunchDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "PATIENCE_S", 0.2)
    with launch.driver_lock() as lock:
        lock.acquire(_now())
        said = program("ctl", launch.path, "pause")
    assert said.exit_code == 1
    assert "no answer in 0 s; the driver may still be starting, or be stuck" in said.stderr


def test_words_that_name_no_run_are_wrong_usage(program: Program, launch: LaunchDirectory) -> None:
    for words in (["cancel", "nobody"], ["slots", "0"], ["dance"], ["cancel"]):
        assert program("ctl", launch.path, *words).exit_code == 2


def test_a_folder_behind_the_command_is_answered_with_the_command_line_that_was_meant(program: Program) -> None:
    said = program("ctl", "slots", "runs/latest", "2")
    assert (said.exit_code, said.stderr) == (
        2,
        "error: the folder comes first: chime-dist ctl runs/latest slots 2\n",
    )


def test_a_launch_without_dead_letters_says_so(program: Program, launch: LaunchDirectory) -> None:
    """D9; ``tests/wiring/test_dead_letters.py`` has launches with some."""
    said = program("ctl", launch.path, "dead-letters")
    assert (said.exit_code, said.stdout) == (0, "")
    assert said.stderr == f"{launch.path} has no dead letters\n"
    assert program.json("ctl", launch.path, "dead-letters")["dead_letters"] == []


def test_dead_letters_are_a_table_and_a_document(program: Program, launch: LaunchDirectory) -> None:
    """D9: a row of failures.jsonl without a final one is a dead letter."""
    run = launch.run(run_of(launch, "chime"))
    row = json.loads(run.episodes.read_text().splitlines()[0])
    entry = launch.manifest.runs[run.run_id]
    row["unit"] |= {"phase": "eval", "read_version": entry.train_size * entry.epochs, "position": 99, "epoch": 2}
    row |= {
        "final": False,
        "outcome": "infra",
        "end_reason": "worker_lost",
        "detail": "[b]boom[/b]",
        "delivery": 4,
        "duration_s": 0.0,
    }
    run.failures.write_text(json.dumps({"record": row, "plan": None, "last_steps": []}) + "\n")
    [letter] = program.json("ctl", launch.path, "dead-letters")["dead_letters"]
    assert (letter["deliveries"], letter["attempts"], letter["fate"]) == (3, 0, "owed")
    table = program("ctl", launch.path, "dead-letters").stdout
    assert "[b]boom[/b]" in table
    assert "owed; a resume runs it again" in table


def test_a_requeued_run_is_run_again_from_the_position_on(program: Program, launch: LaunchDirectory) -> None:
    """Design "Outcomes": a train position stays as it was committed, a new run has it again."""
    run = run_of(launch, "chime")
    made = program("ctl", launch.path, "requeue", run, "--fork-at", "20")
    assert made.exit_code == 0, made.output
    assert made.stdout.startswith(f"{run}-fork20 shares 20 positions with {run} and owes the rest; run it with: ")
    resumed = program("resume", launch.path)
    assert resumed.exit_code == 0, resumed.output
    assert "forked_from=position 20" in resumed.stdout
    heads = [program.json("bank", "at", launch.path, name) for name in (run, f"{run}-fork20")]
    assert heads[0]["content_hash"] == heads[1]["content_hash"]
    shown = program.json("show", launch.path, f"{run}-fork20", "train:3")
    assert shown["trace"]["record"]["unit"]["run_id"] == f"{run}-fork20"

    refused = program("ctl", launch.path, "requeue", run, "--fork-at", "28")
    assert refused.exit_code == 1
    assert "forked at 0 to 27, not at 28" in refused.stderr


def _now() -> datetime:
    return datetime.now(UTC)
