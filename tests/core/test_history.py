"""The bank through time: many versions in one pass, and the difference of two."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.core.bank import BankState, Event, ItemId, as_of
from chime_dist.core.history import Snapshot, Touch, diff, size_by_collection, states_at
from chime_dist.core.vector import Vector
from chime_dist.errors import JournalError

EAST, NORTH = Vector.of([1, 0]), Vector.of([0, 1])


@dataclass(frozen=True)
class Commit:
    """What ``apply`` needs of a journal entry."""

    position: int
    events: tuple[Event, ...]


def _commits(*events: tuple[Event, ...]) -> list[Commit]:
    return [Commit(position, changes) for position, changes in enumerate(events)]


def _put(item: str, value: float = 0.0, vector: Vector | None = EAST, kind: str = "put") -> Event:
    vectors = None if vector is None else {"c": vector}
    return Event(op="put", kind=kind, collection="plan", id=item, payload={"v": value}, vectors=vectors)


def _drop(item: str) -> Event:
    return Event(op="drop", kind="prune", collection="plan", id=item)


NOTE = Event(op="note", kind="value.skip", collection="plan", id="0-0")
STREAM = _commits(
    (_put("0-0", kind="insert"), _put("0-1", kind="insert")),
    (_put("0-0", 0.5, None, "value"), NOTE),
    (_put("2-0", kind="insert"), _put("0-0", 0.6, None, "value"), _put("0-0", 0.6, NORTH, "merge")),
    (_drop("0-1"), _put("3-0", kind="insert")),
    (_drop("3-0"),),
)


def test_states_come_ascending_each_once() -> None:
    states = list(states_at(STREAM, [4, 0, 2, 4]))
    assert [state.version for state in states] == [0, 2, 4]
    assert [state.digest() for state in states] == [as_of(STREAM, version).digest() for version in (0, 2, 4)]


def test_a_version_beyond_the_journal_is_an_error() -> None:
    with pytest.raises(JournalError, match="holds 5 entries, so there is no version 6"):
        list(states_at(STREAM, [1, 6]))


def test_a_difference_says_what_became_of_each_record_and_who_did_it() -> None:
    found = diff(STREAM, 1, 5)
    assert [(change.id, change.change) for change in found.changes] == [
        ("0-0", "changed"),
        ("0-1", "removed"),
        ("2-0", "inserted"),
    ]
    changed, removed, inserted = found.changes
    assert (changed.before, changed.after) == (
        Snapshot(version=0, payload={"v": 0.0}),
        Snapshot(version=3, payload={"v": 0.6}),
    )
    assert changed.vectors == ("c",)
    assert changed.by == (Touch(position=1, kinds=("value",)), Touch(position=2, kinds=("value", "merge")))
    assert (removed.after, removed.by) == (None, (Touch(position=3, kinds=("prune",)),))
    assert (inserted.before, inserted.by) == (None, (Touch(position=2, kinds=("insert",)),))


def test_what_came_and_went_in_between_is_named() -> None:
    """Neither version holds it, so no list of changes could."""
    assert diff(STREAM, 1, 5).passing == ("3-0",)
    assert diff(STREAM, 1, 4).passing == ()


def test_a_value_update_changes_no_vector() -> None:
    [change] = diff(STREAM, 1, 2).changes
    assert (change.id, change.vectors) == ("0-0", ())


def test_a_version_differs_in_nothing_from_itself() -> None:
    assert diff(STREAM, 3, 3).changes == ()


def test_a_negative_version_is_refused() -> None:
    with pytest.raises(JournalError, match="at least 0, got -1"):
        diff(STREAM, -1, 2)


_EVENTS = st.lists(
    st.lists(st.tuples(st.sampled_from(["put", "drop"]), st.integers(0, 3), st.integers(0, 2)), max_size=3),
    max_size=6,
)


def _stream(drawn: list[list[tuple[str, int, int]]]) -> list[Commit]:
    """Puts and drops of four ids; a drop of what is not there becomes a put."""
    alive: set[str] = set()
    commits = []
    for position, changes in enumerate(drawn):
        events = []
        for what, k, value in changes:
            item = str(ItemId(0, k))
            if what == "drop" and item in alive:
                alive.remove(item)
                events.append(_drop(item))
            else:
                alive.add(item)
                events.append(_put(item, value / 2, EAST if value else NORTH))
        commits.append(Commit(position, tuple(events)))
    return commits


@given(_EVENTS, st.integers(0, 6), st.integers(0, 6))
def test_a_difference_leads_from_one_version_to_the_other_and_back(
    drawn: list[list[tuple[str, int, int]]], first: int, second: int
) -> None:
    """Every record that differs is in it, no other is, and backwards it is its mirror image."""
    stream = _stream(drawn)
    start, end = min(first, len(stream)), min(second, len(stream))
    before, after = as_of(stream, start), as_of(stream, end)
    found, back = diff(stream, start, end), diff(stream, end, start)
    differing = {
        item
        for item in before.records.keys() | after.records.keys()
        if before.records.get(item) != after.records.get(item)
    }
    assert {change.id for change in found.changes} == differing
    assert (not differing) == (before.digest() == after.digest())
    mirrored = {"inserted": "removed", "removed": "inserted", "changed": "changed"}
    assert [(c.id, mirrored[c.change], c.after, c.before, c.by) for c in found.changes] == [
        (c.id, c.change, c.before, c.after, c.by) for c in back.changes
    ]
    assert all(change.by for change in found.changes)
    assert found.passing == back.passing


def test_sizes_are_by_collection() -> None:
    state = as_of(STREAM, 3)
    assert size_by_collection(state) == {"plan": 3}
    assert size_by_collection(BankState()) == {}
