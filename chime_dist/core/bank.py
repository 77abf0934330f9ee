"""The bank's state and the one pure function that changes it.

State is generic: records in collections, each with an id, a chain version, a JSON payload and named vectors.
A method's changes are events; ``apply(state, entry)`` gives the next version. Nothing else changes a bank, so
the state at any version is the replay of that many journal entries (design "The bank").
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from chime_dist.core.canonical import canonical_json
from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.core.vector import Vector, unit_rows
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


class _Space:
    """Rows that the matrices of successive versions share: each sees the first of them, and none changes."""

    __slots__ = ("array", "used")

    def __init__(self, array: npt.NDArray[np.float64], used: int) -> None:
        self.array = array
        self.used = used


@dataclass(frozen=True, slots=True)
class Matrix:
    """The vectors of one name in one collection: ``rows`` is ``(n, dim)`` float64, L2-normalised."""

    ids: tuple[str, ...]
    """In numeric id order, one per row."""
    rows: npt.NDArray[np.float64]
    _space: _Space | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, vectors: Mapping[str, Vector]) -> Self:
        """Of these vectors by record id; rows of shape ``(0, 0)`` where there are none."""
        ids = tuple(sorted(vectors, key=ItemId.parse))
        return cls(ids, unit_rows([vectors[item] for item in ids]) if ids else np.empty((0, 0)))

    def following(self, changed: Mapping[str, Vector | None]) -> Matrix:
        """The matrix after vectors were set or removed (None), by record id.

        Nearly every commit inserts and nothing else; it then costs one row and not the whole bank, in time and,
        because versions share their rows, in memory.
        """
        kept = self._without(changed)
        added = Matrix.of({item: vector for item, vector in changed.items() if vector is not None})
        if not added.ids or not kept.ids:
            return added if added.ids else kept
        if ItemId.parse(kept.ids[-1]) < ItemId.parse(added.ids[0]):
            return kept._with(added)
        ids, rows = (*kept.ids, *added.ids), np.concatenate([kept.rows, added.rows])
        order = sorted(range(len(ids)), key=lambda row: ItemId.parse(ids[row]))
        return Matrix(tuple(ids[row] for row in order), rows[order])

    def _without(self, changed: Container[str]) -> Matrix:
        left = [row for row, item in enumerate(self.ids) if item not in changed]
        if len(left) == len(self.ids):
            return self
        return Matrix(tuple(self.ids[row] for row in left), self.rows[left] if left else np.empty((0, 0)))

    def _with(self, added: Matrix) -> Matrix:
        """Append in place if nobody did so after this version, else on a copy with room to grow."""
        count, total, space = len(self.ids), len(self.ids) + len(added.ids), self._space
        if space is None or space.used != count or total > len(space.array):
            space = _Space(np.empty((2 * total, self.rows.shape[1])), count)
            space.array[:count] = self.rows
        space.array[count:total] = added.rows
        space.used = total
        return Matrix((*self.ids, *added.ids), space.array[:total], space)


@dataclass(frozen=True, slots=True)
class BankState:
    """The bank at one version. Treat ``records`` as immutable: states share them."""

    version: int = 0
    records: Mapping[str, Record] = field(default_factory=dict)
    _matrices: dict[tuple[str, str], Matrix] = field(default_factory=dict, repr=False, compare=False)

    def collection(self, name: str) -> list[Record]:
        """Records of one collection in numeric id order."""
        found = [r for r in self.records.values() if r.collection == name]
        return sorted(found, key=lambda r: ItemId.parse(r.id))

    def matrix(self, collection: str, vector: str) -> Matrix:
        """The collection's vectors of one name; built when first asked for, then carried along."""
        key = (collection, vector)
        if key not in self._matrices:
            held = [r for r in self.records.values() if r.collection == collection and vector in r.vectors]
            self._matrices[key] = Matrix.of({record.id: record.vectors[vector] for record in held})
        return self._matrices[key]

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
    reshaped: dict[tuple[str, str], dict[str, Vector | None]] = {}
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
            vectors: Mapping[str, Vector] = {}
        else:
            records[event.id] = _put(old, event.id, event, entry.position)
            vectors = records[event.id].vectors
        before = {} if old is None else old.vectors
        for name in before.keys() | vectors.keys():
            if before.get(name) != vectors.get(name):
                reshaped.setdefault((event.collection, name), {})[event.id] = vectors.get(name)
    matrices = {
        key: matrix.following(reshaped[key]) if key in reshaped else matrix
        for key, matrix in state._matrices.items()
    }
    return BankState(entry.position + 1, records, matrices)


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
