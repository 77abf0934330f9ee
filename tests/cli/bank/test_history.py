"""``bank checkpoints``, ``bank diff`` and versions by name."""

from __future__ import annotations

import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.core.bank import as_of
from chime_dist.core.journal import JournalEntry
from tests.cli.conftest import Program, run_of


def test_checkpoints_are_listed_with_items_and_digest(
    program: Program, learnt: LaunchDirectory, entries: list[JournalEntry]
) -> None:
    """R6, R47: 2 x 28 positions; a quarter is version 14."""
    document = program.json("bank", "checkpoints", "runs/latest", "chime")
    found = {checkpoint["name"]: checkpoint for checkpoint in document["checkpoints"]}
    assert {name: checkpoint["version"] for name, checkpoint in found.items()} == {
        "25%": 14,
        "epoch-1": 28,
        "50%": 28,
        "75%": 42,
        "epoch-2": 56,
        "100%": 56,
    }
    for checkpoint in found.values():
        state = as_of(entries, checkpoint["version"])
        assert checkpoint["reached"] is True
        assert (checkpoint["items"], checkpoint["digest"]) == (len(state.records), state.digest())
    shown = program("bank", "checkpoints", "runs/latest", "chime").stdout
    assert found["75%"]["digest"] in next(line for line in shown.splitlines() if "75%" in line)


def test_a_checkpoint_that_is_not_reached_is_listed_and_cannot_be_opened(
    program: Program, learnt: LaunchDirectory
) -> None:
    """The names are those of the planned stream: they do not move while it runs."""
    journal = learnt.run(run_of(learnt, "chime")).journal
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:20]))
    found = program.json("bank", "checkpoints", "runs/latest", "chime")["checkpoints"]
    assert [(c["name"], c["reached"]) for c in found][:3] == [("25%", True), ("epoch-1", False), ("50%", False)]
    assert (found[1]["items"], found[1]["digest"]) == (None, None)
    assert "not reached" in program("bank", "checkpoints", "runs/latest", "chime").stdout
    result = program("bank", "at", "runs/latest", "chime", "50%")
    assert result.exit_code == 2
    assert "'50%' is version 28, which this run has not reached; the bank has 0 to 20" in result.stderr


@pytest.mark.parametrize(("name", "version"), [("50%", 28), ("epoch-2", 56), ("last", 56), ("7", 7)])
def test_a_version_has_names(
    program: Program, learnt: LaunchDirectory, entries: list[JournalEntry], name: str, version: int
) -> None:
    document = program.json("bank", "at", learnt.path, "chime", name)
    assert (document["version"], document["digest"]) == (version, as_of(entries, version).digest())
    assert document["content_hash"] == entries[version - 1].content_hash


def test_a_difference_tells_values_counts_texts_and_positions(
    program: Program, learnt: LaunchDirectory, entries: list[JournalEntry]
) -> None:
    document = program.json("bank", "diff", "runs/latest", "chime", "25%", "epoch-1")
    assert (document["start"], document["end"]) == (14, 28)
    before, after = as_of(entries, 14).records, as_of(entries, 28).records
    changes = {change["id"]: change for change in document["changes"]}
    assert set(changes) == {i for i in before.keys() | after.keys() if before.get(i) != after.get(i)}
    for item, change in changes.items():
        for side, records in (("before", before), ("after", after)):
            payload = change[side]["payload"] if change[side] else None
            assert payload == (records[item].payload if item in records else None)
        assert change["by"]
        for touch in change["by"]:
            kinds = [e.kind for e in entries[touch["position"]].events if e.id == item and e.op != "note"]
            assert (14 <= touch["position"] < 28, touch["kinds"]) == (True, kinds)
    assert {change["change"] for change in changes.values()} == {"inserted", "removed", "changed"}
    assert document["passing"]


def test_a_difference_is_shown_by_item(program: Program, learnt: LaunchDirectory) -> None:
    changes = program.json("bank", "diff", "runs/latest", "chime", "14", "28")["changes"]
    shown = program("bank", "diff", "runs/latest", "chime", "14", "28").stdout
    inserted, removed, changed = (
        sum(change["change"] == kind for change in changes) for kind in ("inserted", "removed", "changed")
    )
    assert f"version 14 to 28: {inserted} inserted, {removed} removed, {changed} changed" in shown
    assert "inserted and removed in between: " in shown
    moved = next(change for change in changes if change["change"] == "changed")
    row = next(line for line in shown.splitlines() if line.startswith(f" {moved['id']} "))
    old, new = moved["before"]["payload"], moved["after"]["payload"]
    assert f"{old['value']:+.4f} -> {new['value']:+.4f}" in row
    assert f"{old['count']} -> {new['count']}" in row
    assert "value.update at " in row


def test_nothing_changes_between_a_version_and_itself(program: Program, learnt: LaunchDirectory) -> None:
    shown = program("bank", "diff", "runs/latest", "chime", "50%", "epoch-1").stdout
    assert shown.strip().endswith("version 28 to 28: 0 inserted, 0 removed, 0 changed")
