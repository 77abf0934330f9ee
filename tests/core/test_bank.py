"""The bank's state: apply, replay, versions, digest and the matrix cache."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chime_dist.core.bank import BankState, Event, ItemId, Matrix, Record, apply, as_of, replay
from chime_dist.core.vector import Vector
from chime_dist.errors import JournalError

NORTH, EAST = Vector.of([0.0, 2.0]), Vector.of([3.0, 0.0])


@dataclass(frozen=True)
class Commit:
    """An entry as ``apply`` sees it."""

    position: int
    events: tuple[Event, ...] = ()


def put(item: str, collection: str = "plan", c: Vector | None = None, **payload: Any) -> Event:
    vectors = None if c is None else {"c": c}
    return Event(op="put", kind="k", collection=collection, id=item, payload=payload, vectors=vectors)


def drop(item: str | None, collection: str = "plan") -> Event:
    return Event(op="drop", kind="k", collection=collection, id=item)


def applied(*commits: Sequence[Event]) -> BankState:
    return replay(Commit(position, tuple(events)) for position, events in enumerate(commits))


# --- ids ------------------------------------------------------------------------------------------------


def test_ids_are_ordered_by_number_not_by_spelling() -> None:
    """Design "The bank": (position, k), ordered numerically."""
    assert sorted(map(ItemId.parse, ["10-0", "9-10", "9-2"])) == [ItemId(9, 2), ItemId(9, 10), ItemId(10, 0)]
    assert str(ItemId(12, 0)) == "12-0"


@pytest.mark.parametrize("text", ["", "1", "1-", "-1-0", "01-0", "1-00", "1-0\n", "1_0", "1-0-0", "\u0661-0"])
def test_any_other_spelling_is_no_id(text: str) -> None:
    """E5: one key, one spelling."""
    with pytest.raises(ValueError, match="not an item id"):
        ItemId.parse(text)


@settings(deadline=None)
@given(st.integers(0, 10**12), st.integers(0, 10**6))
def test_an_id_reads_back(position: int, k: int) -> None:
    assert ItemId.parse(str(ItemId(position, k))) == (position, k)


# --- apply ----------------------------------------------------------------------------------------------


def test_a_put_inserts_and_a_second_one_replaces_the_payload() -> None:
    state = applied([put("0-0", c=NORTH, v=0.0)], [put("0-0", v=0.5)])
    assert state.version == 2
    assert state.records["0-0"] == Record(
        collection="plan", id="0-0", version=1, payload={"v": 0.5}, vectors={"c": NORTH}
    )


def test_a_put_with_vectors_replaces_all_vectors() -> None:
    state = applied([put("0-0", c=NORTH)], [put("0-0", c=EAST)])
    assert state.records["0-0"].vectors == {"c": EAST}


def test_a_drop_removes_and_a_note_changes_nothing() -> None:
    note = Event(op="note", kind="content.discard", collection="plan")
    before = applied([put("0-0"), put("0-1")])
    after = apply(before, Commit(1, (note, drop("0-0"))))
    assert set(after.records) == {"0-1"}
    assert apply(before, Commit(1, (note,))).digest() == before.digest()


def test_the_state_before_is_untouched() -> None:
    """R7: readers hold older versions while the head moves on."""
    before = applied([put("0-0", v=1)])
    digest = before.digest()
    apply(before, Commit(1, (put("0-0", v=2), put("1-0"), drop("0-0"))))
    assert (before.version, before.digest(), set(before.records)) == (1, digest, {"0-0"})


@pytest.mark.parametrize("position", [0, 2])
def test_an_entry_out_of_order_is_refused(position: int) -> None:
    """R33: version n is the bank after n commits."""
    with pytest.raises(JournalError, match=f"journal entry {position} cannot follow version 1"):
        apply(BankState(version=1), Commit(position))


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (drop("7-0"), "cannot drop 7-0, it is not in the bank"),
        (drop(None), r"a drop event \(k\) names no record"),
        (Event(op="put", kind="k", collection="plan", id="1-0"), r"a put event \(k\) holds no payload"),
        (Event(op="put", kind="k", collection="plan", payload={}), r"a put event \(k\) names no record"),
        (put("0-0", collection="exec"), "record 0-0 is in 'plan', not in 'exec'"),
        (drop("0-0", collection="exec"), "record 0-0 is in 'plan', not in 'exec'"),
        (put("task-1"), "cannot insert: not an item id"),
    ],
)
def test_an_event_that_cannot_hold_stops_the_run(event: Event, message: str) -> None:
    """A wrong bank stops the run; the message names the position."""
    with pytest.raises(JournalError, match=f"journal entry 1: {message}"):
        apply(applied([put("0-0")]), Commit(1, (event,)))


# --- versions -------------------------------------------------------------------------------------------


def test_the_bank_at_any_version_is_the_replay_of_that_many_entries() -> None:
    """Time travel."""
    commits = [Commit(n, (put(f"{n}-0", v=n),)) for n in range(4)]
    assert [set(as_of(commits, n).records) for n in (0, 2)] == [set(), {"0-0", "1-0"}]
    assert as_of(commits, 4) == replay(commits)
    assert replay(commits, upto=9).version == 4


@pytest.mark.parametrize(
    ("version", "message"), [(-1, "at least 0, got -1"), (3, "holds 2 entries, so there is no version 3")]
)
def test_a_version_that_does_not_exist_is_refused(version: int, message: str) -> None:
    with pytest.raises(JournalError, match=message):
        as_of([Commit(0), Commit(1)], version)


# --- digest ---------------------------------------------------------------------------------------------


def test_the_digest_covers_ids_versions_payloads_and_vectors() -> None:
    """R5, R34."""
    base = [put("0-0", c=NORTH, v=0.5)]
    variants = [
        applied(base),
        applied([put("0-1", c=NORTH, v=0.5)]),
        applied([put("0-0", collection="exec", c=NORTH, v=0.5)]),
        applied([put("0-0", c=EAST, v=0.5)]),
        applied([put("0-0", c=NORTH, v=0.25)]),
        applied([*base, put("0-0", v=0.5)]),
        applied([*base, put("0-1")]),
        BankState(),
    ]
    assert len({state.digest() for state in variants}) == len(variants)


def test_the_digest_does_not_depend_on_the_order_of_insertion_or_on_the_version() -> None:
    """R5: equal records, equal digest; eval leaves it as it is."""
    events = [put("0-0", v=1), put("0-10", v=2), put("0-2", collection="exec", v=3)]
    forward, backward = applied(events), applied([], events[::-1])
    assert forward.digest() == backward.digest()
    assert [record.id for record in backward.collection("plan")] == ["0-0", "0-10"]


def test_a_state_travels_between_processes_without_its_cache() -> None:
    """C4: an eval export is pickled to every node."""
    state = applied([put("0-0", c=NORTH, v=0.5)])
    state.matrix("plan", "c")
    copy = pickle.loads(pickle.dumps(state))
    assert (copy, copy.digest(), copy.matrix("plan", "c").ids) == (state, state.digest(), ("0-0",))


# --- matrices -------------------------------------------------------------------------------------------


def _scores(matrix: Matrix) -> list[list[float]]:
    """Of every vector, its components."""
    return [matrix.scores(unit).tolist() for unit in np.eye(matrix.dim, dtype=np.float32)]


def test_a_matrix_scores_unit_vectors_in_numeric_id_order() -> None:
    state = applied([put("0-10", c=NORTH), put("0-9", c=EAST), put("0-1"), put("0-2", collection="exec", c=NORTH)])
    matrix = state.matrix("plan", "c")
    assert matrix.ids == ("0-9", "0-10")
    assert _scores(matrix) == [[1.0, 0.0], [0.0, 1.0]]
    assert state.matrix("plan", "e").ids == ()
    assert state.matrix("plan", "e").dim == 0


def test_value_updates_carry_the_matrix_over_and_vector_changes_renew_it() -> None:
    state = applied([put("0-0", c=NORTH), put("0-1", collection="exec", c=NORTH)])
    plan, execution = state.matrix("plan", "c"), state.matrix("exec", "c")
    moved = apply(state, Commit(1, (put("0-0", v=1),)))
    assert moved.matrix("plan", "c") is plan
    changed = apply(state, Commit(1, (put("0-0", c=EAST),)))
    assert _scores(changed.matrix("plan", "c")) == [[1.0], [0.0]]
    assert _scores(plan) == [[0.0], [1.0]]
    assert changed.matrix("exec", "c") is execution


_vectors = st.none() | st.sampled_from([NORTH, EAST, Vector.of([1.0, 1.0])])
_ops = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["put", "drop", "note"]), st.integers(0, 4), st.integers(0, 9), _vectors),
        max_size=4,
    ),
    max_size=8,
)


def _commits(ops: list[list[tuple[str, int, int, Vector | None]]]) -> Iterator[tuple[BankState, BankState]]:
    """The states before and after each commit of drawn operations; drops of what is not there become notes."""
    state = BankState()
    for batch in ops:
        events: list[Event] = []
        present = set(state.records)
        for op, number, value, vector in batch:
            item, collection = f"{number}-0", "plan" if number % 2 else "exec"
            if op == "put":
                events.append(put(item, collection, vector, v=value))
                present.add(item)
            elif op == "drop" and item in present:
                events.append(drop(item, collection))
                present.remove(item)
            else:
                events.append(Event(op="note", kind="k", collection=collection, id=item))
        before, state = state, apply(state, Commit(state.version, tuple(events)))
        yield before, state


@settings(deadline=None)
@given(ops=_ops, look=st.booleans())
def test_carried_matrices_equal_freshly_built_ones(
    ops: list[list[tuple[str, int, int, Vector | None]]], look: bool
) -> None:
    """Carrying is an optimisation: after any commits, looked at in between or not, it equals a rebuilt one; so do
    those of every version before, whose rows it shares."""
    states = [BankState()]
    for _, after in _commits(ops):
        states.append(after)
        for collection in ("plan", "exec") if look else ():
            after.matrix(collection, "c")
    for state, collection in product(states, ("plan", "exec")):
        carried, built = state.matrix(collection, "c"), BankState(0, state.records).matrix(collection, "c")
        assert (carried.ids, _scores(carried)) == (built.ids, _scores(built))


@settings(deadline=None)
@given(ops=_ops)
def test_what_changed_is_known_without_a_look_at_every_record(
    ops: list[list[tuple[str, int, int, Vector | None]]],
) -> None:
    """A commit of eight events costs a projection eight looks, however large the bank."""
    for before, after in _commits(ops):
        unaware = BankState(after.version, after.records)
        changes = {item: pair for item, pair in after.changes_since(before).items() if pair != (None, None)}
        assert changes == unaware.changes_since(before)
        assert all(old is before.records.get(item) for item, (old, _) in changes.items())
        assert all(new is after.records.get(item) for item, (_, new) in changes.items())
        assert after.changes_since(BankState()) == {item: (None, one) for item, one in after.records.items()}


def test_two_futures_of_a_version_are_as_if_each_had_been_built_alone() -> None:
    """Versions share rows, and none ever writes what another one sees."""
    vectors = [Vector.of([1.0, 0.0]), Vector.of([0.0, 1.0]), Vector.of([1.0, 1.0]), Vector.of([1.0, -1.0])]
    first = applied([put("0-0", c=vectors[0])], [put("1-0", c=vectors[1])])
    assert len(first.matrix("plan", "c").ids) == 2
    second = apply(first, Commit(2, (put("2-0", c=vectors[2]),)))
    third = apply(second, Commit(3, (put("3-0", c=vectors[2]),)))
    replaced = apply(second, Commit(3, (put("0-0", c=vectors[3]),)))
    dropped = apply(apply(replaced, Commit(4, (drop("0-0"), drop("1-0")))), Commit(5, (put("5-0", c=EAST),)))
    for state in (first, second, third, replaced, dropped):
        carried, built = state.matrix("plan", "c"), BankState(0, state.records).matrix("plan", "c")
        assert (carried.ids, _scores(carried)) == (built.ids, _scores(built))
    before, after = second.matrix("plan", "c"), third.matrix("plan", "c")
    assert after._space is before._space, "an insert costs one row"
    assert dropped.matrix("plan", "c").dim == 2


def test_given_up_rows_do_not_pile_up() -> None:
    """R31: every merge replaces a vector; a search never goes through more than twice the rows it needs."""
    state = applied([put(f"0-{k}", c=NORTH) for k in range(5)])
    state.matrix("plan", "c")
    for version in range(1, 40):
        state = apply(state, Commit(version, (put(f"0-{version % 5}", c=EAST if version % 2 else NORTH),)))
        assert state.matrix("plan", "c")._seen <= 2 * 5
