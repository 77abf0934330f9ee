"""``bank at`` and ``bank verify``: time travel, and the proof that a journal is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.core.bank import BankState, Event
from chime_dist.core.episode import Outcome
from chime_dist.core.journal import GENESIS, JournalEntry, content_hash
from chime_dist.wiring.results import JournalFile, evaluation_of
from tests.cli.conftest import Program, run_of


@pytest.fixture
def journal(launch: LaunchDirectory) -> Path:
    """The journal of the run with memory."""
    return launch.run(run_of(launch, "chime")).journal


def test_the_bank_at_its_head_is_what_the_evaluation_read(program: Program, launch: LaunchDirectory) -> None:
    """R5, R34: the replay of the journal has the digest that the driver noted around the evaluation."""
    noted = evaluation_of(launch.run(run_of(launch, "chime")))
    assert noted is not None
    document = program.json("bank", "at", launch.path, "chime")
    assert (document["version"], document["head"]) == (28, 28)
    assert document["digest"] == noted.digest_before_eval == noted.digest_after_eval


def test_the_bank_is_shown_by_collection_with_value_count_and_text(
    program: Program, launch: LaunchDirectory
) -> None:
    collections = program.json("bank", "at", launch.path, "chime", "last")["collections"]
    shown = program("bank", "at", launch.path, "chime", "last").stdout
    items = [item for items in collections.values() for item in items]
    assert items
    for item in items:
        memory = item["payload"]
        row = next(line for line in shown.splitlines() if line.startswith(f" {item['id']:>4} "))
        assert f"{memory['value']:+.4f}" in row
        assert f" {memory['count']} " in row
        assert memory["scenario"][:40].strip() in shown


def test_the_bank_at_an_earlier_version_is_the_replay_of_that_many_entries(
    program: Program, launch: LaunchDirectory
) -> None:
    first = program.json("bank", "at", launch.path, "chime", "0")
    assert (first["digest"], first["content_hash"], first["collections"]) == (BankState().digest(), GENESIS, {})
    digests = [program.json("bank", "at", launch.path, "chime", str(version))["digest"] for version in (14, 28)]
    assert digests[0] != digests[1]


def test_a_record_of_another_method_is_shown_by_its_payload(
    program: Program, launch: LaunchDirectory, journal: Path
) -> None:
    """State is generic: records need not be CHIME's memories."""
    event = Event(op="put", kind="rule", collection="rules", id="0-0", payload={"rule": "measure twice"})
    content: dict[str, Any] = {
        "position": 0,
        "task": "t",
        "outcome": Outcome.SUCCESS,
        "diagnosis": None,
        "events": (event,),
    }
    entry = JournalEntry(
        **content,
        content_hash=content_hash(GENESIS, **content),
        run_id=journal.parent.name,
        fence=1,
        attempt="a",
        read_version=0,
        committed_at="2026-11-01T00:00:00+00:00",
    )
    journal.write_text(entry.line() + "\n")
    shown = program("bank", "at", launch.path, "chime").stdout
    assert "rules, 1 item" in shown
    assert '{"rule":"measure twice"}' in shown


@pytest.mark.parametrize("version", ["29", "-1", "newest"])
def test_a_version_that_does_not_exist_is_a_usage_error(
    program: Program, launch: LaunchDirectory, version: str
) -> None:
    result = program("bank", "at", launch.path, "chime", "--", version)
    assert result.exit_code == 2
    assert "it has 0 to 28, or 'last'" in result.stderr


def test_whole_journals_verify_by_launch_by_run_and_by_file(
    program: Program, launch: LaunchDirectory, journal: Path
) -> None:
    whole = program("bank", "verify", "runs/latest")
    assert whole.exit_code == 0
    assert [line.split()[0] for line in whole.stdout.splitlines()] == ["whole", "whole"]
    for words in (["runs/latest", "chime"], [journal], [journal.parent]):
        [found] = program.json("bank", "verify", *words)["journals"]
        assert (found["entries"], found["damage"]) == (28, None)
        assert found["digest"] == program.json("bank", "at", launch.path, "chime")["digest"]


def test_one_changed_byte_is_found_and_its_place_is_named(program: Program, journal: Path) -> None:
    """One flipped byte anywhere in a line: the line's hash does not match (design "Journal is the truth")."""
    data = bytearray(journal.read_bytes())
    lines = data.split(b"\n")
    data[sum(len(line) + 1 for line in lines[:5]) + 100] ^= 1
    journal.write_bytes(data)
    result = program("bank", "verify", "runs/latest")
    assert result.exit_code == 1
    assert f"error: {Path(*journal.parts[-5:])}, entry 5: the line's hash does not match" in result.stderr
    assert f"DAMAGED {journal.parent.name}: entry 5 is bad, version 28" in result.stdout
    document = json.loads(program("bank", "verify", journal, "--json").stdout)
    assert (document["damaged"], document["journals"][0]["digest"]) == (1, None)
    assert "entry 5" in document["journals"][0]["damage"]


def test_a_byte_that_is_no_text_is_damage_too(program: Program, journal: Path) -> None:
    data = journal.read_bytes()
    journal.write_bytes(data[:50] + b"\xff" + data[51:])
    result = program("bank", "verify", journal)
    assert (result.exit_code, "entry 0" in result.stderr) == (1, True)


def test_an_entry_that_is_missing_inside_is_found(program: Program, journal: Path) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:3] + lines[4:]))
    result = program("bank", "verify", journal)
    assert (result.exit_code, "entry 3: it says position 4" in result.stderr) == (1, True)


def test_entries_missing_at_the_end_of_an_evaluated_journal_are_found(program: Program, journal: Path) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-2]))
    result = program("bank", "verify", journal)
    assert (result.exit_code, "2 entries are missing at its end" in result.stderr) == (1, True)


def test_a_bank_that_is_not_the_one_that_was_evaluated_is_found(program: Program, journal: Path) -> None:
    """R5: a journal that is sound in itself, of another execution of the run."""
    noted = journal.parent / "evaluation.json"
    noted.write_text(noted.read_text().replace('"digest_before_eval":"', '"digest_before_eval":"0'))
    result = program("bank", "verify", journal)
    assert result.exit_code == 1
    assert "before the evaluation, version 28 had the digest 0" in result.stderr


def test_a_line_that_a_crash_cut_is_no_damage(program: Program, journal: Path) -> None:
    """H8: it was told to nobody, and a resume cuts it."""
    journal.write_bytes(journal.read_bytes() + b'{"position":28')
    result = program("bank", "verify", journal)
    assert result.exit_code == 0
    assert "14 bytes of an unfinished line ignored" in result.stdout
    assert JournalFile.read(journal).head == 28


def _changed(journal: Path, position: int, **values: object) -> str:
    """Change the final row of a train position; returns the attempt that it was."""
    file = journal.parent / "episodes.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    [row] = [row for row in rows if (row["unit"]["phase"], row["unit"]["position"]) == ("train", position)]
    attempt = str(row["attempt"])
    row |= values
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return attempt


def test_results_that_the_bank_did_not_learn_from_are_found(program: Program, journal: Path) -> None:
    """H3, D9: a row of another attempt, one of another outcome, and one that is no longer final."""
    attempt = _changed(journal, 3, attempt="another")
    _changed(journal, 4, outcome="infra")
    _changed(journal, 5, final=False)
    shown = program("bank", "verify", "runs/latest")
    assert shown.exit_code == 1
    assert f"error: {journal.parent.name} train:3: the journal has attempt {attempt} (" in shown.stderr
    assert "the final row in episodes.jsonl is attempt another (" in shown.stderr
    assert "--fork-at 3" in shown.stderr
    assert f"DAMAGED {journal.parent.name}" in shown.stdout
    assert "3 results not the journal's" in shown.stdout
    document = json.loads(program("bank", "verify", "runs/latest", "--json").stdout)
    [found, other] = document["journals"]
    assert (document["damaged"], found["damage"], other["disagreements"]) == (1, None, [])
    assert [(one["position"], one["row_outcome"] is None) for one in found["disagreements"]] == [
        (3, False),
        (4, False),
        (5, True),
    ]
    assert program("bank", "verify", journal).exit_code == 0, "only a journal was named"


def test_rows_that_cannot_be_read_are_told_with_the_journal(program: Program, journal: Path) -> None:
    file = journal.parent / "episodes.jsonl"
    file.write_text("{}\n" + file.read_text())
    shown = program("bank", "verify", "runs/latest")
    assert (shown.exit_code, "episodes.jsonl, line 1" in shown.stderr) == (1, True)
    assert "its results cannot be read" in shown.stdout


def test_verify_wants_a_journal(program: Program, launch: LaunchDirectory) -> None:
    result = program("bank", "verify", launch.log_file)
    assert (result.exit_code, "expected a file named journal.jsonl" in result.stderr) == (2, True)
