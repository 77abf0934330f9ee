"""``bank blame``: who wrote, moved and read what, from the journal and the stored traces of a real launch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.core.episode import EpisodeTrace
from chime_dist.core.journal import JournalEntry
from tests.cli.conftest import Program, run_of


@pytest.fixture
def traces(learnt: LaunchDirectory) -> list[EpisodeTrace]:
    """Every final trace of the run with memory."""
    archive, run = EpisodeArchive(learnt), run_of(learnt, "chime")
    found = [archive.trace(record.unit) for record in archive.finals(run).values()]
    return [trace for trace in found if trace is not None]


@pytest.fixture
def pruned(entries: list[JournalEntry]) -> str:
    """An item that was merged into or moved, and then pruned."""
    return next(event.id for e in entries for event in e.events if event.kind == "prune" and event.id is not None)


def _met(traces: list[EpisodeTrace], item: str) -> set[tuple[str, int, bool, int]]:
    """Phase, position, whether it was used, and its version, of everybody who met ``item``."""
    return {
        (trace.record.unit.phase, trace.record.unit.position, candidate.selected, candidate.item_version)
        for trace in traces
        for recall in trace.trajectory.recalls
        for candidate in recall.candidates
        if candidate.id == item
    }


def _told(document: dict[str, Any]) -> set[tuple[str, int, bool, int]]:
    return {
        (
            reading["episode"].split(":")[0],
            int(reading["episode"].split(":")[-1]),
            reading["selected"],
            reading["item_version"],
        )
        for reading in document["readings"]
    }


def test_an_item_s_life_is_complete(
    program: Program, learnt: LaunchDirectory, entries: list[JournalEntry], traces: list[EpisodeTrace]
) -> None:
    """R17, R34: every event of every item that stands, and every episode that met it, eval included."""
    for items in program.json("bank", "at", "runs/latest", "chime")["collections"].values():
        for item in items:
            document = program.json("bank", "blame", "runs/latest", "chime", item["id"])
            written = [(e.position, event.kind) for e in entries for event in e.events if event.id == item["id"]]
            assert [(event["position"], event["kind"]) for event in document["events"]] == written
            assert (document["item_version"], document["payload"]) == (item["version"], item["payload"])
            assert _told(document) == _met(traces, item["id"])
            assert {reading["source"] for reading in document["readings"]} == {"trace"}
            assert any(reading["episode"].startswith("eval:v56:") for reading in document["readings"])


def test_a_pruned_item_tells_when_and_by_whom(program: Program, learnt: LaunchDirectory, pruned: str) -> None:
    document = program.json("bank", "blame", "runs/latest", "chime", pruned)
    assert document["item_version"] is None
    assert document["events"][0]["kind"] == "content.insert"
    assert "prune" in [event["kind"] for event in document["events"]]
    moved = next(event for event in document["events"] if event["kind"] == "value.update")
    assert {"delta", "label", "confidence", "before", "after"} <= moved["detail"].keys()
    shown = program("bank", "blame", "runs/latest", "chime", pruned).stdout
    assert f"{pruned}: removed, v -" in shown
    assert f"inserted by train:{document['events'][0]['position']} (task " in shown
    row = next(line for line in shown.splitlines() if "value.update" in line)
    assert f"{moved['detail']['delta']:+.4f}" in row


def test_the_journal_tells_what_a_missing_trace_cannot(
    program: Program, learnt: LaunchDirectory, entries: list[JournalEntry]
) -> None:
    """An audit goes on over damage, and says so."""
    skipped = next(e for e in entries for event in e.events if event.kind == "value.update")
    item = next(event.id for event in skipped.events if event.kind == "value.update")
    assert item is not None
    run = learnt.run(run_of(learnt, "chime"))
    trace = run.path / "trajectories" / "train" / str(skipped.position // 28) / f"{skipped.position}.json.zst"
    trace.unlink()
    result = program("bank", "blame", "runs/latest", "chime", item, "--json")
    assert result.exit_code == 3
    document = json.loads(result.stdout)
    [reading] = [r for r in document["readings"] if r["episode"] == f"train:{skipped.position}"]
    assert (reading["source"], reading["selected"], reading["sim"]) == ("journal", True, None)
    [unreadable] = document["unreadable"]
    assert f"{trace.name} (trace of " in unreadable
    assert "is known from the journal at most" in result.stderr
    assert "journal" in program("bank", "blame", "runs/latest", "chime", item).stdout


def test_an_episode_tells_what_it_read_and_wrote(
    program: Program, learnt: LaunchDirectory, entries: list[JournalEntry], traces: list[EpisodeTrace]
) -> None:
    entry = next(e for e in entries if e.position > 28 and len(e.events) > 3)
    document = program.json("bank", "blame", "runs/latest", "chime", "--episode", f"train:{entry.position}")
    trace = next(t for t in traces if t.record.unit.phase == "train" and t.record.unit.position == entry.position)
    candidates = [c for recall in trace.trajectory.recalls for c in recall.candidates]
    assert [(r["id"], r["item_version"], r["selected"]) for r in document["readings"]] == [
        (c.id, c.item_version, c.selected) for c in candidates
    ]
    assert (document["read_version"], document["committed_version"]) == (entry.read_version, entry.position + 1)
    assert [event["kind"] for event in document["events"]] == [event.kind for event in entry.events]
    shown = program("bank", "blame", "runs/latest", "chime", "--episode", f"train:{entry.position}").stdout
    assert f"committed as version {entry.position + 1}, {len(entry.events)} events" in shown


def test_an_evaluation_wrote_nothing(program: Program, learnt: LaunchDirectory) -> None:
    """R5."""
    document = program.json("bank", "blame", "runs/latest", "chime", "--episode", "eval:3")
    assert (document["episode"], document["events"], document["committed_version"]) == ("eval:v56:3", [], None)
    assert {reading["version"] for reading in document["readings"]} == {56}
    shown = program("bank", "blame", "runs/latest", "chime", "--episode", "eval:3").stdout
    assert "wrote nothing: an evaluation is frozen" in shown


def test_a_method_without_memory_read_and_wrote_nothing(program: Program, learnt: LaunchDirectory) -> None:
    shown = program("bank", "blame", "runs/latest", "no_plan", "--episode", "train:0").stdout
    assert "met no memory" in shown
    assert "committed as version 1, without events" in shown


def test_an_episode_that_waits_for_its_turn_wrote_nothing_yet(program: Program, learnt: LaunchDirectory) -> None:
    journal = learnt.run(run_of(learnt, "chime")).journal
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:50]))
    shown = program("bank", "blame", "runs/latest", "chime", "--episode", "train:52").stdout
    assert "wrote nothing: not committed yet" in shown


def test_a_commit_without_a_row_is_told_from_the_journal(program: Program, learnt: LaunchDirectory) -> None:
    rows = learnt.run(run_of(learnt, "chime")).episodes
    kept = [line for line in rows.read_text().splitlines(keepends=True) if '"position":5,' not in line]
    rows.write_text("".join(kept))
    document = program.json("bank", "blame", "runs/latest", "chime", "--episode", "train:5")
    assert document["committed_version"] == 6
    assert all(reading["source"] == "journal" for reading in document["readings"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name an item, e.g. 12-0, or --episode"),
        (["0-0", "--episode", "train:1"], "name an item, e.g. 12-0, or --episode"),
        (["99-0"], "no position of this run ever put an item '99-0' into the bank"),
        (["--episode", "train:99"], "has no finished episode train:99"),
        (["--episode", "twelve"], "name at most one run and one episode (train:12, eval:3)"),
    ],
)
def test_what_is_not_there_is_a_usage_error(
    program: Program, learnt: LaunchDirectory, words: list[str], message: str
) -> None:
    result = program("bank", "blame", "runs/latest", "chime", *words)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
