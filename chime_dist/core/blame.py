"""Who wrote, moved and read which memory, at which version (R17, R34).

Writes come from the journal, which is complete. Readings come from the episodes' traces, which know every
candidate; where a trace is not at hand, the journal still knows which memories a train episode had in its
prompts, because each got a value event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from chime_dist.core.bank import replay
from chime_dist.core.episode import EpisodeTrace, Json, Outcome, Unit
from chime_dist.core.frozen import Frozen
from chime_dist.core.journal import JournalEntry

_VALUE_KINDS = frozenset({"value.update", "value.skip"})
"""Events that ``core.evolution`` writes for every memory that stood in a prompt of the episode."""


class CommittedEvent(Frozen):
    """An event of the journal, with who committed it and what it made of its record."""

    position: int
    """The bank went from version ``position`` to ``position + 1``."""
    attempt: str
    task: str
    outcome: Outcome
    read_version: int
    """What the episode had read."""
    op: Literal["put", "drop", "note"]
    kind: str
    collection: str
    id: str | None
    item_version: int | None
    """The record's chain version afterwards: None where it is not in the bank."""
    payload: dict[str, Json] | None
    """What a put left in the record."""
    detail: dict[str, Json]
    """The method's audit: before and after, delta, label, confidence, reason."""


class Reading(Frozen):
    """One record that one retrieval of one episode met."""

    episode: str
    """``train:12``, or ``eval:v40:3``."""
    attempt: str
    task: str
    outcome: Outcome
    version: int
    """The bank version that was searched."""
    collection: str
    id: str
    item_version: int
    """The record's chain version that was met."""
    selected: bool
    """Whether it stood in a prompt; False for one that was a candidate only."""
    sim: float | None = None
    adjusted_value: float | None = None
    """v~ of R14; None like all numbers where only the journal tells of the reading."""
    score: float | None = None
    rank_before: int | None = None
    """0-based, by similarity alone."""
    rank_after: int | None = None
    source: Literal["trace", "journal"] = "trace"


class ItemBlame(Frozen):
    """The life of one record."""

    id: str
    collection: str
    item_version: int | None
    """Chain version at the head; None where it was removed."""
    payload: dict[str, Json] | None
    """At the head, or the last one before it was removed."""
    events: tuple[CommittedEvent, ...]
    """In stream order: the first one inserted it."""
    readings: tuple[Reading, ...]
    """Train episodes in stream order, then eval episodes."""


class EpisodeBlame(Frozen):
    """What one episode read and wrote."""

    episode: str
    attempt: str
    task: str
    outcome: Outcome
    label: str | None
    read_version: int
    committed_version: int | None
    """The bank version that its commit made; None in eval, and before the commit."""
    empty_reason: str | None
    """Why it committed nothing."""
    readings: tuple[Reading, ...]
    events: tuple[CommittedEvent, ...]


def episode_name(unit: Unit) -> str:
    """A unit's name inside its run."""
    return f"train:{unit.position}" if unit.phase == "train" else f"eval:v{unit.read_version}:{unit.position}"


def committed_events(entries: Iterable[JournalEntry]) -> Iterator[CommittedEvent]:
    """Every event of a journal that is read from its start, notes included."""
    versions: dict[str, int] = {}
    for entry in entries:
        for event in entry.events:
            if event.id is not None and event.op == "put":
                versions[event.id] = versions.get(event.id, -1) + 1
            elif event.id is not None and event.op == "drop":
                versions.pop(event.id, None)
            yield CommittedEvent(
                position=entry.position,
                attempt=entry.attempt,
                task=entry.task,
                outcome=entry.outcome,
                read_version=entry.read_version,
                op=event.op,
                kind=event.kind,
                collection=event.collection,
                id=event.id,
                item_version=None if event.id is None else versions.get(event.id),
                payload=event.payload,
                detail=event.detail,
            )


def readings_of(trace: EpisodeTrace) -> Iterator[Reading]:
    """Every candidate of every retrieval of an episode, in order."""
    record = trace.record
    for recall in trace.trajectory.recalls:
        for candidate in recall.candidates:
            yield Reading(
                episode=episode_name(record.unit),
                attempt=record.attempt,
                task=record.unit.task,
                outcome=record.outcome,
                version=recall.version,
                collection=recall.collection,
                id=candidate.id,
                item_version=candidate.item_version,
                selected=candidate.selected,
                sim=candidate.sim,
                adjusted_value=candidate.adjusted_value,
                score=candidate.score,
                rank_before=candidate.rank_before,
                rank_after=candidate.rank_after,
            )


def journalled_readings(entry: JournalEntry) -> Iterator[Reading]:
    """The memories that stood in the prompts of a train episode, as far as its commit tells."""
    for event in entry.events:
        read = event.detail.get("item_version_read")
        if event.kind in _VALUE_KINDS and event.id is not None and isinstance(read, int):
            yield Reading(
                episode=f"train:{entry.position}",
                attempt=entry.attempt,
                task=entry.task,
                outcome=entry.outcome,
                version=entry.read_version,
                collection=event.collection,
                id=event.id,
                item_version=read,
                selected=True,
                source="journal",
            )


def blame_item(item: str, entries: Sequence[JournalEntry], traces: Iterable[EpisodeTrace]) -> ItemBlame:
    """The life of the record ``item``; ``traces`` are the run's final ones, in any order.

    Raises ValueError where the journal never put such a record, JournalError where it cannot be replayed.
    """
    state = replay(entries)
    events = tuple(event for event in committed_events(entries) if event.id == item)
    inserted = next((event for event in events if event.op == "put"), None)
    if inserted is None:
        raise ValueError(f"no position of this run ever put an item {item!r} into the bank")
    readings = {_place(trace.record.unit): _of_item(item, readings_of(trace)) for trace in traces}
    for entry in entries:
        told = _of_item(item, journalled_readings(entry))
        place = ("train", 0, entry.position)
        if told and not any(reading.selected for reading in readings.get(place, ())):
            readings[place] = [*readings.get(place, ()), *told]
    record = state.records.get(item)
    return ItemBlame(
        id=item,
        collection=inserted.collection,
        item_version=None if record is None else record.version,
        payload=[event.payload for event in events if event.op == "put"][-1],
        events=events,
        readings=tuple(reading for place in sorted(readings, key=_eval_last) for reading in readings[place]),
    )


def blame_episode(trace: EpisodeTrace, entries: Sequence[JournalEntry]) -> EpisodeBlame:
    """What the episode of ``trace`` read, and what its commit wrote if ``entries``, the whole journal, hold it."""
    record, unit = trace.record, trace.record.unit
    committed = unit.phase == "train" and unit.position < len(entries)
    return EpisodeBlame(
        episode=episode_name(unit),
        attempt=record.attempt,
        task=unit.task,
        outcome=record.outcome,
        label=record.label,
        read_version=unit.read_version,
        committed_version=unit.position + 1 if committed else None,
        empty_reason=entries[unit.position].empty_reason if committed else None,
        readings=tuple(readings_of(trace)),
        events=_events_at(unit.position, entries) if committed else (),
    )


def blame_commit(position: int, entries: Sequence[JournalEntry]) -> EpisodeBlame:
    """The same of a committed train position, from the journal alone: for an episode that left no trace.

    Raises IndexError for a position that is not committed.
    """
    entry = entries[position]
    label = (entry.diagnosis or {}).get("label")
    return EpisodeBlame(
        episode=f"train:{position}",
        attempt=entry.attempt,
        task=entry.task,
        outcome=entry.outcome,
        label=None if label is None else str(label),
        read_version=entry.read_version,
        committed_version=position + 1,
        empty_reason=entry.empty_reason,
        readings=tuple(journalled_readings(entry)),
        events=_events_at(position, entries),
    )


def _events_at(position: int, entries: Sequence[JournalEntry]) -> tuple[CommittedEvent, ...]:
    return tuple(event for event in committed_events(entries[: position + 1]) if event.position == position)


_Place = tuple[str, int, int]


def _place(unit: Unit) -> _Place:
    return (unit.phase, unit.read_version if unit.phase == "eval" else 0, unit.position)


def _eval_last(place: _Place) -> tuple[bool, int, int]:
    return (place[0] == "eval", place[1], place[2])


def _of_item(item: str, readings: Iterable[Reading]) -> list[Reading]:
    return [reading for reading in readings if reading.id == item]
