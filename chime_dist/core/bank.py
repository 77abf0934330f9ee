"""The bank's state and the one pure function that changes it.

State is generic: records in collections, each with an id, a chain version, a JSON payload and named vectors.
A method's changes are events; ``apply(state, entry)`` gives the next version. Nothing else changes a bank, so
the state at any version is the replay of that many journal entries (design "The bank").
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from chime_dist.core.canonical import canonical_json
from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.core.vector import Vector, products, unit_rows
from chime_dist.errors import JournalError

_ITEM_ID = re.compile(r"(0|[1-9][0-9]*)-(0|[1-9][0-9]*)")


class ItemId(NamedTuple):
    """(position that inserted it, k-th insert of that position): ordered numerically, written ``12-0``."""

    position: int
    k: int

    def __str__(self) -> str:
        return f"{self.position}-{self.k}"

    @classmethod
    def parse(cls, text: str) -> ItemId:
        """Inverse of ``str``; raises ValueError for any other spelling."""
        match = _ITEM_ID.fullmatch(text)
        if match is None:
            raise ValueError(f"not an item id (expected POSITION-K, e.g. 12-0): {text!r}")
        return cls(int(match[1]), int(match[2]))


class Record(Frozen):
    """One record at one of its versions."""

    collection: str
    id: str
    version: int
    """Chain version: 0 when inserted, +1 with every change of payload or vectors."""
    payload: dict[str, Json]
    vectors: dict[str, Vector] = {}


class Event(Frozen):
    """One change, or one decision worth auditing.

    ``put`` inserts a record or replaces its payload (and its vectors where given), ``drop`` removes it,
    ``note`` changes nothing. ``kind`` and ``detail`` are the method's audit (before and after, delta, label,
    confidence, reason: R34); ``apply`` does not read them.
    """

    op: Literal["put", "drop", "note"]
    kind: str
    collection: str
    id: str | None = None
    payload: dict[str, Json] | None = None
    vectors: dict[str, Vector] | None = None
    """None keeps the record's vectors."""
    detail: dict[str, Json] = {}


class Entry(Protocol):
    """What ``apply`` needs of a journal entry."""

    @property
    def position(self) -> int:
        """The version the entry applies to."""
        ...

    @property
    def events(self) -> tuple[Event, ...]:
        """In the order they apply."""
        ...


Changes = Mapping[str, tuple[Record | None, Record | None]]
"""By id, a record before and after; None where there was or is none."""


class View(Protocol):
    """What is worth knowing about all records and dear to find out: see ``BankState.view``."""

    def following(self, changes: Changes) -> Self:
        """What a look at the records would show after ``changes``, all that happened since."""
        ...


_V = TypeVar("_V", bound=View)


class _Space:
    """Rows that the matrices of successive versions share: each sees the first of them, and none changes."""

    __slots__ = ("array", "used")

    def __init__(self, array: npt.NDArray[np.float32], used: int) -> None:
        self.array = array
        self.used = used


@dataclass(frozen=True, slots=True)
class Matrix:
    """The vectors of one name in one collection, L2-normalised in float32. A ``View``.

    Setting a vector appends a row, whatever it replaces, and a version knows which rows are in force. So a commit
    costs the rows it sets and not the whole bank, in time and, because versions share their rows, in memory.
    """

    ids: tuple[str, ...]
    """In numeric id order."""
    _held: _Held = field(repr=False)
    _where: npt.NDArray[np.intp] = field(repr=False, compare=False)
    """The row of each id."""
    _space: _Space = field(repr=False, compare=False)
    _seen: int = field(repr=False, compare=False)
    """How many rows of the space are there for this version, at most twice as many as are in force."""

    @property
    def dim(self) -> int:
        """Components of its vectors; 0 where there are none."""
        return int(self._space.array.shape[1])

    def scores(self, unit: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The product of each vector with ``unit``, shape ``(dim,)``: one per id, good enough to propose by."""
        return products(self._space.array[: self._seen], unit)[self._where]

    def following(self, changes: Changes) -> Matrix:
        """See ``View``."""
        if not self.ids:
            return self._held(record for _, record in changes.values() if record is not None)
        ids, where, fresh = list(self.ids), self._where, list[Vector]()
        for item, (before, after) in changes.items():
            old, new = self._held.by(before), self._held.by(after)
            if old == new:
                continue
            place, row = _place(ids, item), self._seen + len(fresh)
            if old is not None:
                del ids[place]
                where = np.delete(where, place)
            if new is not None:
                ids.insert(place, item)
                where = np.insert(where, place, row)
                fresh.append(new)
        if where is self._where:
            return self
        return self._in_force(tuple(ids), where, fresh) if ids else self._held(())

    def _in_force(self, ids: tuple[str, ...], where: npt.NDArray[np.intp], fresh: Sequence[Vector]) -> Matrix:
        """With the rows ``where``, of which the last are ``fresh``: appended in place, else to a copy."""
        seen, space, total = self._seen, self._space, self._seen + len(fresh)
        taken = bool(fresh) and space.used != seen
        if taken or total > len(space.array) or total > 2 * len(ids):
            # Another future of this version took the room, or there is none, or most of it is given up.
            stays = where < seen
            seen = int(stays.sum())
            space = _Space(np.empty((len(ids) + len(ids) // 2 + 1, self.dim), np.float32), seen)
            space.array[:seen] = self._space.array[where[stays]]
            where = np.where(stays, np.cumsum(stays) - 1, where - self._seen + seen)
            total = seen + len(fresh)
        if fresh:
            space.array[seen:total] = unit_rows(fresh)
            space.used = total
        return Matrix(ids, self._held, where, space, total)


@dataclass(frozen=True, slots=True)
class _Held:
    """The vectors of one name in one collection; called with records, the matrix of theirs."""

    collection: str
    name: str

    def by(self, record: Record | None) -> Vector | None:
        if record is None or record.collection != self.collection:
            return None
        return record.vectors.get(self.name)

    def __call__(self, records: Iterable[Record]) -> Matrix:
        found = {record.id: vector for record in records if (vector := self.by(record)) is not None}
        ids = tuple(sorted(found, key=ItemId.parse))
        rows = unit_rows([found[item] for item in ids]) if ids else np.empty((0, 0))
        return Matrix(ids, self, np.arange(len(ids)), _Space(rows.astype(np.float32), len(ids)), len(ids))


def _place(ids: Sequence[str], item: str) -> int:
    """Where ``item`` stands, or belongs, among ids in numeric order."""
    wanted = ItemId.parse(item)
    if not ids or ItemId.parse(ids[-1]) < wanted:
        return len(ids)
    return bisect_left(ids, wanted, key=ItemId.parse)


class _Step(NamedTuple):
    """How a state came about."""

    before: Mapping[str, Record]
    """The records it was made from: the very object, which nobody changes."""
    changes: Changes


@dataclass(frozen=True, slots=True)
class BankState:
    """The bank at one version. Treat ``records`` as immutable: states share them."""

    version: int = 0
    records: Mapping[str, Record] = field(default_factory=dict)
    _views: dict[Callable[[Iterable[Record]], View], View] = field(default_factory=dict, repr=False, compare=False)
    _step: _Step | None = field(default=None, repr=False, compare=False)

    def collection(self, name: str) -> list[Record]:
        """Records of one collection in numeric id order."""
        found = [r for r in self.records.values() if r.collection == name]
        return sorted(found, key=lambda r: ItemId.parse(r.id))

    def view(self, of: Callable[[Iterable[Record]], _V]) -> _V:
        """What ``of`` makes of the records: asked once, then carried along from version to version.

        Two ``of`` that are equal are taken for the same. The view of any version is what ``of`` would make of its
        records, so it is worth its ``following`` only where that is cheaper.
        """
        if of not in self._views:
            self._views[of] = of(self.records.values())
        return cast(_V, self._views[of])

    def matrix(self, collection: str, vector: str) -> Matrix:
        """The collection's vectors of one name."""
        return self.view(_Held(collection, vector))

    def changes_since(self, before: BankState) -> Changes:
        """Every record that is not the same object in both states.

        Of two successive versions it is known; of others every record is compared.
        """
        if self._step is not None and self._step.before is before.records:
            return self._step.changes
        pairs = {
            item: (before.records.get(item), self.records.get(item)) for item in (*before.records, *self.records)
        }
        return {item: (old, new) for item, (old, new) in pairs.items() if old is not new}

    def digest(self) -> str:
        """Hex SHA-256 over all records sorted by id, with vector hashes: the state digest."""
        hasher = hashlib.sha256()
        for record in sorted(self.records.values(), key=lambda r: (r.collection, ItemId.parse(r.id))):
            hasher.update(canonical_json(_digested(record)).encode())
            hasher.update(b"\n")
        return hasher.hexdigest()

    def __reduce__(self) -> tuple[type[Self], tuple[int, dict[str, Record]]]:
        return (type(self), (self.version, dict(self.records)))


def _digested(record: Record) -> dict[str, Json]:
    return {
        "collection": record.collection,
        "id": record.id,
        "version": record.version,
        "payload": record.payload,
        "vectors": {name: vector.sha256 for name, vector in record.vectors.items()},
    }


def apply(state: BankState, entry: Entry) -> BankState:
    """The bank after ``entry``; raises JournalError where it is not the next one or an event cannot hold."""
    if entry.position != state.version:
        raise JournalError(
            f"journal entry {entry.position} cannot follow version {state.version}: entries are applied in order"
        )
    records = dict(state.records)
    touched: dict[str, None] = {}
    for event in entry.events:
        if event.op == "note":
            continue
        if event.id is None:
            raise JournalError(
                f"journal entry {entry.position}: a {event.op} event ({event.kind}) names no record"
            )
        old = records.get(event.id)
        if old is not None and old.collection != event.collection:
            raise JournalError(
                f"journal entry {entry.position}: record {event.id} is in {old.collection!r}, "
                f"not in {event.collection!r}"
            )
        if event.op == "drop":
            if old is None:
                raise JournalError(
                    f"journal entry {entry.position}: cannot drop {event.id}, it is not in the bank"
                )
            del records[event.id]
        else:
            records[event.id] = _put(old, event.id, event, entry.position)
        touched[event.id] = None
    changes = {item: (state.records.get(item), records.get(item)) for item in touched}
    views = {of: view.following(changes) for of, view in state._views.items()}
    return BankState(entry.position + 1, records, views, _Step(state.records, changes))


def _put(old: Record | None, item: str, event: Event, position: int) -> Record:
    if event.payload is None:
        raise JournalError(f"journal entry {position}: a put event ({event.kind}) holds no payload")
    if old is None:
        try:
            ItemId.parse(item)
        except ValueError as error:
            raise JournalError(f"journal entry {position}: cannot insert: {error}") from None
        return Record(
            collection=event.collection,
            id=item,
            version=0,
            payload=event.payload,
            vectors=event.vectors or {},
        )
    vectors = old.vectors if event.vectors is None else event.vectors
    return Record(
        collection=old.collection, id=old.id, version=old.version + 1, payload=event.payload, vectors=vectors
    )


def replay(entries: Iterable[Entry], upto: int | None = None) -> BankState:
    """The bank after the first ``upto`` entries (all where None). Raises JournalError where one cannot apply."""
    state = BankState()
    for entry in entries:
        if upto is not None and state.version >= upto:
            break
        state = apply(state, entry)
    return state


def as_of(entries: Iterable[Entry], version: int) -> BankState:
    """The bank at ``version``; raises JournalError where the journal is shorter than that."""
    if version < 0:
        raise JournalError(f"a bank version is at least 0, got {version}")
    state = replay(entries, version)
    if state.version != version:
        raise JournalError(f"the journal holds {state.version} entries, so there is no version {version} yet")
    return state
