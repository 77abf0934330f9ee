"""Who wrote, moved and read a memory, from journals and traces."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from chime_dist.core.bank import Event
from chime_dist.core.blame import (
    blame_commit,
    blame_episode,
    blame_item,
    committed_events,
    episode_name,
    journalled_readings,
    readings_of,
)
from chime_dist.core.episode import (
    Candidate,
    EndReason,
    EpisodeRecord,
    EpisodeTrace,
    Outcome,
    Recall,
    Trajectory,
    Unit,
)
from chime_dist.core.journal import GENESIS, JournalEntry, content_hash
from chime_dist.core.task import TaskView


def _put(item: str, kind: str, **detail: Any) -> Event:
    return Event(
        op="put", kind=kind, collection="plan", id=item, payload={"kind": kind}, vectors=None, detail=detail
    )


def _journal(*commits: tuple[Event, ...], empty_reason: str | None = None) -> list[JournalEntry]:
    entries: list[JournalEntry] = []
    for position, events in enumerate(commits):
        content: dict[str, Any] = {
            "position": position,
            "task": f"task-{position}",
            "outcome": Outcome.SUCCESS,
            "diagnosis": {"label": "planning"},
            "events": events,
        }
        entries.append(
            JournalEntry(
                **content,
                content_hash=content_hash(entries[-1].content_hash if entries else GENESIS, **content),
                run_id="run",
                fence=1,
                attempt=f"attempt-{position}",
                read_version=max(0, position - 1),
                committed_at="2026-01-01T00:00:00+00:00",
                empty_reason=empty_reason if not events else None,
            )
        )
    return entries


JOURNAL = _journal(
    (_put("0-0", "content.insert", decision="insert"),),
    (
        _put("0-0", "value.update", delta=0.8, item_version_read=0),
        Event(op="note", kind="content.discard", collection="plan", id=None, detail={"reason": "not_novel"}),
    ),
    (),
    (
        _put("0-0", "value.update", delta=-0.9, item_version_read=1),
        Event(op="drop", kind="prune", collection="plan", id="0-0", detail={"reason": "low_value"}),
    ),
    (
        Event(
            op="note",
            kind="value.skip",
            collection="plan",
            id="0-0",
            detail={"delta": 0.0, "item_version_read": 2, "reason": "pruned_since_read"},
        ),
    ),
    empty_reason="gate_error",
)


def _trace(
    position: int,
    candidates: dict[str, bool],
    phase: Literal["train", "eval"] = "train",
    version: int = 0,
    item_version: int = 0,
) -> EpisodeTrace:
    unit = Unit(
        run_id="run",
        phase=phase,
        epoch=0,
        position=position,
        task=f"task-{position}",
        read_version=version,
    )
    record = EpisodeRecord(
        unit=unit,
        attempt=f"attempt-{position}",
        delivery=1,
        final=True,
        outcome=Outcome.SUCCESS,
        end_reason=EndReason.SCORED,
        label="planning" if phase == "train" else None,
        started_at="2026-01-01T00:00:00+00:00",
        duration_s=1.0,
        steps=1,
    )
    met = tuple(
        Candidate(
            id=item,
            item_version=item_version,
            sim=0.75 - rank / 4,
            adjusted_value=0.25,
            score=1.0 - rank / 4,
            rank_before=rank,
            rank_after=rank,
            selected=selected,
        )
        for rank, (item, selected) in enumerate(candidates.items())
    )
    recall = Recall(collection="plan", query="q", version=version, candidates=met)
    return EpisodeTrace(
        record=record, trajectory=Trajectory(view=TaskView(request="r", messages=()), recalls=(recall,))
    )


def test_every_event_tells_who_committed_it_and_what_it_made_of_its_record() -> None:
    """R34: position, attempt and chain version; a dropped record has none, and starts anew if it comes back."""
    found = [(event.position, event.kind, event.id, event.item_version) for event in committed_events(JOURNAL)]
    assert found == [
        (0, "content.insert", "0-0", 0),
        (1, "value.update", "0-0", 1),
        (1, "content.discard", None, None),
        (3, "value.update", "0-0", 2),
        (3, "prune", "0-0", None),
        (4, "value.skip", "0-0", None),
    ]
    assert [event.attempt for event in committed_events(JOURNAL)][:2] == ["attempt-0", "attempt-1"]
    again = committed_events(_journal((_put("0-0", "a"),), (JOURNAL[3].events[1], _put("0-0", "b"))))
    assert [event.item_version for event in again] == [0, None, 0]


def test_a_trace_tells_of_every_candidate_whether_it_was_used() -> None:
    """R17: sim, v~, score and ranks as the episode had them."""
    used, met = readings_of(_trace(7, {"0-0": True, "3-1": False}, version=6, item_version=4))
    assert (used.episode, used.version, used.item_version, used.selected) == ("train:7", 6, 4, True)
    assert (met.id, met.selected, met.rank_after, met.sim, met.score) == ("3-1", False, 1, 0.5, 0.75)


def test_an_eval_episode_is_named_with_its_version() -> None:
    trace = _trace(3, {}, phase="eval", version=40)
    assert episode_name(trace.record.unit) == "eval:v40:3"


def test_the_journal_tells_which_memories_stood_in_a_prompt() -> None:
    """A value event, moved or skipped, exists for each of them (R24 to R26)."""
    [moved], [skipped] = (list(journalled_readings(JOURNAL[position])) for position in (1, 4))
    assert (moved.episode, moved.version, moved.item_version) == ("train:1", 0, 0)
    assert (skipped.episode, skipped.version, skipped.item_version) == ("train:4", 3, 2)
    assert (skipped.sim, skipped.rank_after, skipped.source) == (None, None, "journal")
    assert list(journalled_readings(JOURNAL[0])) == []


def test_an_item_s_life_is_its_events_and_everybody_who_met_it() -> None:
    traces = [
        _trace(1, {"9-9": True}, phase="eval", version=5),
        _trace(0, {"0-0": False}, phase="eval", version=5, item_version=2),
        _trace(2, {"5-0": True, "0-0": False}, version=1),
        _trace(1, {"0-0": True}),
    ]
    found = blame_item("0-0", JOURNAL, traces)
    assert (found.collection, found.item_version) == ("plan", None)
    assert found.payload == {"kind": "value.update"}
    assert [event.kind for event in found.events] == [
        "content.insert",
        "value.update",
        "value.update",
        "prune",
        "value.skip",
    ]
    assert [(reading.episode, reading.selected, reading.source) for reading in found.readings] == [
        ("train:1", True, "trace"),
        ("train:2", False, "trace"),
        ("train:3", True, "journal"),
        ("train:4", True, "journal"),
        ("eval:v5:0", False, "trace"),
    ]


def test_the_journal_adds_a_reading_that_a_trace_has_as_a_candidate_only() -> None:
    """Two sources that disagree are both shown: that is what an audit is for."""
    found = blame_item("0-0", JOURNAL[:2], [_trace(1, {"0-0": False})])
    assert [(reading.selected, reading.source) for reading in found.readings] == [
        (False, "trace"),
        (True, "journal"),
    ]


def test_an_item_that_stands_is_shown_as_it_is_at_the_head() -> None:
    found = blame_item("0-0", JOURNAL[:2], [])
    assert (found.item_version, found.payload) == (1, {"kind": "value.update"})


@pytest.mark.parametrize("item", ["7-0", "", "not an id"])
def test_an_item_that_never_was_is_refused(item: str) -> None:
    with pytest.raises(ValueError, match="no position of this run ever put an item"):
        blame_item(item, JOURNAL, [])


def test_an_episode_s_blame_is_what_it_read_and_what_its_commit_wrote() -> None:
    found = blame_episode(_trace(1, {"0-0": True}), JOURNAL)
    assert (found.episode, found.label, found.committed_version, found.empty_reason) == (
        "train:1",
        "planning",
        2,
        None,
    )
    assert [reading.id for reading in found.readings] == ["0-0"]
    assert [(event.kind, event.item_version) for event in found.events] == [
        ("value.update", 1),
        ("content.discard", None),
    ]


def test_an_empty_commit_says_why() -> None:
    found = blame_episode(_trace(2, {}), JOURNAL)
    assert (found.committed_version, found.events, found.empty_reason) == (3, (), "gate_error")


@pytest.mark.parametrize("trace", [_trace(9, {}), _trace(1, {}, phase="eval", version=5)])
def test_an_episode_that_committed_nothing_wrote_nothing(trace: EpisodeTrace) -> None:
    """R5: an evaluation never writes; a train episode may be waiting for its turn."""
    found = blame_episode(trace, JOURNAL)
    assert (found.committed_version, found.events) == (None, ())


def test_a_commit_without_a_trace_is_told_from_the_journal() -> None:
    """A position that was committed empty as infra may have left no trace."""
    found = blame_commit(1, JOURNAL)
    assert (found.episode, found.attempt, found.label, found.read_version) == (
        "train:1",
        "attempt-1",
        "planning",
        0,
    )
    assert [reading.source for reading in found.readings] == ["journal"]
    assert [event.kind for event in found.events] == ["value.update", "content.discard"]
    bare = JOURNAL[2].model_copy(update={"diagnosis": None})
    assert blame_commit(2, [*JOURNAL[:2], bare]).label is None
