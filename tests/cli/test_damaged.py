"""Launch folders with something wrong in them: every command that reads one ends in words that name the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from tests.cli.conftest import Program, run_of

READING = (
    "show DIR",
    "show DIR RUN",
    "show DIR RUN train:1",
    "watch DIR --once",
    "report DIR",
    "bank at DIR RUN",
    "bank blame DIR RUN --episode train:1",
    "bank verify DIR",
    "bank search DIR RUN text",
    "ctl DIR dead-letters",
    "ctl DIR pause",
    "analyze gate-accuracy DIR",
    "clean DIR --dry-run",
    "resume DIR",
)
MEETING = (
    "ls",
    "doctor DIR",
    "show DIR RUN",
    "watch DIR",
    "show DIR RUN train:1",
    "report DIR",
    "bank at DIR RUN",
)
"""Between them they read every file."""


def _commands(launch: LaunchDirectory, commands: tuple[str, ...] = READING) -> Iterator[list[str]]:
    places = {"DIR": str(launch.path), "RUN": run_of(launch, "chime")}
    for command in commands:
        yield [places.get(word, word) for word in command.split()]


def _changed(launch: LaunchDirectory, key: str, value: object) -> None:
    """A leaf of sweep.json: its run is the one of chime; ``None`` takes the key away."""
    file = launch.path / "sweep.json"
    manifest: Any = json.loads(file.read_text())
    *parents, last = key.split("/")
    place = manifest
    for part in parents:
        place = place[run_of(launch, "chime") if part == "RUN" else int(part) if part.isdecimal() else part]
    place[last] = value
    if value is None:
        del place[last]
    file.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("format", 2, "format: 2: expected 1"),
        ("created_at", "yesterday", "created_at: "),
        ("created_at", "2026-01-01T00:00:00", "created_at: '2026-01-01T00:00:00' has no offset from UTC"),
        ("launch", "../elsewhere", "launch: "),
        ("runs/RUN/epochs", 0, "epochs: 0: expected greater than or equal to 1"),
        ("runs/RUN/train_size", -1, "train_size: -1: expected"),
        (
            "runs/RUN/forked_from",
            {"run": "nobody", "position": 1},
            "forked_from.run: 'nobody' is no run before it",
        ),
        ("runs/RUN/config/backbone", None, "config.backbone: is missing"),
        ("runs/RUN/config/protocol/window", 0, "config.protocol.window: 0: expected"),
        ("runs/RUN/config/backbone/colour", "red", "config.backbone.colour: unknown key"),
        ("config/methods", [], "config.methods: is empty; list at least 1"),
        ("config/protocol/denominator", "most", 'config.protocol.denominator: "most": expected'),
        ("config/cluster/limits", {"tokens": -5}, "config.cluster.limits.tokens: -5: expected"),
        ("config/cluster/endpoints", ["m"], "config.cluster.endpoints: a list: expected a mapping"),
    ],
)
def test_a_manifest_that_cannot_be_is_told_with_file_key_and_value_by_every_command(
    program: Program, launch: LaunchDirectory, key: str, value: object, said: str
) -> None:
    """No command goes on with a part of it, and none says it in the words of a library."""
    _changed(launch, key, value)
    for words in _commands(launch):
        result = program(*words)
        told = f"error: {launch.path}/sweep.json is no Manifest of this version of chime_dist: "
        assert result.exit_code == 1, (words, result.output)
        assert result.stdout == ""
        assert result.stderr.startswith(told), (words, result.stderr)
        assert said in result.stderr
        assert "put the original back, or use that version" in result.stderr
    [listed] = program.json("ls")["launches"]
    assert (listed["state"], said in listed["reason"]) == ("damaged", True)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("runs/RUN/config/method/options/retrieval/beta", "x", 'method.options.retrieval.beta: "x"'),
        ("runs/RUN/config/method/name", "chimes", "there is no method 'chimes'"),
    ],
)
def test_a_method_that_is_not_to_be_had_stops_who_needs_it(
    program: Program, launch: LaunchDirectory, key: str, value: str, said: str
) -> None:
    """Results can be read without it; a search and a resume cannot be had."""
    _changed(launch, key, value)
    assert program("report", launch.path).exit_code == 0
    searched = program("bank", "search", launch.path, run_of(launch, "chime"), "text")
    assert searched.exit_code == 1
    assert said.rpartition("options.")[2] in searched.stderr
    resumed = program("resume", launch.path)
    assert resumed.exit_code == 1
    assert f"sweep.json: runs.{run_of(launch, 'chime')}.config: with these settings the run is " in resumed.stderr


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _no_object(file: Path) -> None:
    lines = file.read_bytes().split(b"\n")
    file.write_bytes(b"\n".join([*lines[: len(lines) // 2], b"[5]", *lines[len(lines) // 2 :]]))


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        _cut,
        _no_object,
        _folder,
        lambda file: file.write_bytes(bytes(range(256))),
        lambda file: file.write_bytes(b"[" * 100_000 + b"\n"),
    ],
    ids=["cut", "no object", "a folder", "binary", "too deep"],
)
def test_no_damage_of_a_file_reaches_the_user_as_a_traceback(
    program: Program, launch: LaunchDirectory, damage: Callable[[Path], object]
) -> None:
    run = launch.run(run_of(launch, "chime"))
    files = [launch.path / name for name in ("sweep.json", "status.json", "log.jsonl")]
    files += [run.episodes, run.journal, run.evaluation, run.path / "trajectories" / "train" / "0" / "1.json.zst"]
    for file in files:
        kept = file.read_bytes()
        damage(file)
        for number, words in enumerate(_commands(launch, MEETING)):
            result = program(*words, *(["--json"] if number % 2 else []))
            assert "unexpected " not in result.stderr, (file.name, words, result.stderr)
            assert result.exit_code in (0, 1, 2, 3)
            assert result.exit_code == 0 or result.stderr or result.stdout, (file.name, words)
        if file.is_dir():
            file.rmdir()
        file.write_bytes(kept)


def test_events_that_no_version_writes_are_passed_over(program: Program, launch: LaunchDirectory) -> None:
    """A driver's log is read by ``watch`` and ``doctor`` while others may write into it."""
    at = "2026-03-07T10:15:30.000Z"
    odd = [
        {"timestamp": at, "event": "episode.started", "unit": "u", "delivery": "third"},
        {"timestamp": at[:-1], "event": "bank.committed"},
        {"timestamp": at, "event": "backbone.busy", "level": "warning", "run": None, "reason": "429"},
    ]
    with launch.log_file.open("a") as log:
        log.writelines(json.dumps(event) + "\n" for event in odd)
    seen = program("watch", launch.path)
    assert seen.exit_code == 0
    assert "warning: backbone.busy: reason=429\n" in seen.stdout
    assert program("doctor", launch.path).exit_code == 0


def test_a_lost_evaluation_of_a_complete_launch_is_written_anew(program: Program, launch: LaunchDirectory) -> None:
    """R5: nothing is owed but the proof that the evaluation left the bank alone, without which it counts as not
    verified."""
    file = launch.run(run_of(launch, "chime")).evaluation
    kept = file.read_bytes()
    file.unlink()
    assert "(1 not verified)" in program("report", launch.path).stdout
    result = program("resume", launch.path)
    assert result.exit_code == 0, result.output
    assert "; its evaluation.json is missing and will be written\n" in result.stderr
    assert "nothing is owed" not in result.stderr
    assert file.read_bytes() == kept
    assert "(0 not verified)" in program("report", launch.path).stdout
    assert "nothing is owed" in program("resume", launch.path).stderr


@pytest.mark.parametrize("name", ["status.json", "evaluation.json"])
def test_a_torn_file_that_a_resume_writes_anew_is_told_with_that_way_out(
    program: Program, launch: LaunchDirectory, name: str
) -> None:
    run = launch.run(run_of(launch, "chime"))
    file = run.evaluation if name == "evaluation.json" else launch.path / name
    _cut(file)
    result = program("resume", launch.path)
    assert result.exit_code == 1
    assert f"{file} is no " in result.stderr
    assert ": remove it, and resume: the driver " in result.stderr
    file.unlink()
    assert program("resume", launch.path).exit_code == 0
    assert "nothing is owed" in program("resume", launch.path).stderr
