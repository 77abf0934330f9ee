"""The bank through time: its states at many versions in one pass, and what lies between two of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

from chime_dist.core.bank import BankState, Entry, ItemId, Record, apply
from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.errors import JournalError


def states_at(entries: Iterable[Entry], versions: Collection[int]) -> Iterator[BankState]:
    """The bank at each of ``versions``, ascending, each once, in one replay.

    Raises JournalError where an entry cannot apply or the journal is shorter than a version asked for.
    """
    wanted = sorted(set(versions))
    state, rest = BankState(), iter(entries)
    for version in wanted:
        while state.version < version:
            entry = next(rest, None)
            if entry is None:
                raise JournalError(f"the journal holds {state.version} entries, so there is no version {version}")
            state = apply(state, entry)
        yield state


class Snapshot(Frozen):
    """A record at one of its versions, without its vectors."""

    version: int
    """Chain version."""
    payload: dict[str, Json]


class Touch(Frozen):
    """A position that put or dropped a record, and how."""

    position: int
    kinds: tuple[str, ...]
    """Of its events on the record, in order."""


class ItemChange(Frozen):
    """One record that differs between two versions of the bank."""

    id: str
    collection: str
    change: Literal["inserted", "removed", "changed"]
    before: Snapshot | None
    """None for an inserted record."""
    after: Snapshot | None
    """None for a removed record."""
    vectors: tuple[str, ...]
    """Names of the vectors that differ."""
    by: tuple[Touch, ...]
    """Every position between the versions that touched it, in stream order."""


class BankDiff(Frozen):
    """What changed from version ``start`` to version ``end``; ``start`` may be the later one."""

    start: int
    end: int
    changes: tuple[ItemChange, ...]
    """By collection, then in id order."""
    passing: tuple[str, ...]
    """Ids of records that were inserted and removed in between, so that neither version holds them."""


def diff(entries: Sequence[Entry], start: int, end: int) -> BankDiff:
    """Compare the bank at two versions. Raises JournalError as ``states_at`` does."""
    if min(start, end) < 0:
        raise JournalError(f"a bank version is at least 0, got {min(start, end)}")
    states = {state.version: state for state in states_at(entries, {start, end})}
    before, after = states[start], states[end]
    touches = _touches(entries[min(start, end) : max(start, end)])
    found = [
        change
        for item in before.records.keys() | after.records.keys()
        if (change := _change(before.records.get(item), after.records.get(item), touches.get(item, ())))
        is not None
    ]
    passing = touches.keys() - before.records.keys() - after.records.keys()
    return BankDiff(
        start=start,
        end=end,
        changes=tuple(sorted(found, key=lambda change: (change.collection, ItemId.parse(change.id)))),
        passing=tuple(sorted(passing, key=ItemId.parse)),
    )


def _touches(entries: Iterable[Entry]) -> dict[str, tuple[Touch, ...]]:
    kinds: dict[str, dict[int, list[str]]] = {}
    for entry in entries:
        for event in entry.events:
            if event.op != "note" and event.id is not None:
                kinds.setdefault(event.id, {}).setdefault(entry.position, []).append(event.kind)
    return {
        item: tuple(Touch(position=position, kinds=tuple(named)) for position, named in by_position.items())
        for item, by_position in kinds.items()
    }


def _change(before: Record | None, after: Record | None, by: tuple[Touch, ...]) -> ItemChange | None:
    held = after or before
    if held is None or before == after:
        return None
    old, new = before.vectors if before else {}, after.vectors if after else {}
    return ItemChange(
        id=held.id,
        collection=held.collection,
        change="inserted" if before is None else "removed" if after is None else "changed",
        before=_snapshot(before),
        after=_snapshot(after),
        vectors=tuple(sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))),
        by=by,
    )


def _snapshot(record: Record | None) -> Snapshot | None:
    return None if record is None else Snapshot(version=record.version, payload=record.payload)


def size_by_collection(state: BankState) -> dict[str, int]:
    """Number of records of each collection, by name."""
    counts: dict[str, int] = {}
    for record in state.records.values():
        counts[record.collection] = counts.get(record.collection, 0) + 1
    return dict(sorted(counts.items()))
