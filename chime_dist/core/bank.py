"""The bank's state and the one pure function that changes it.

State is generic: records in collections, each with an id, a chain version, a JSON payload and named vectors.
A method's changes are events; ``apply(state, entry)`` gives the next version. Nothing else changes a bank, so
the state at any version is the replay of that many journal entries (design "The bank").
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
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


@dataclass(frozen=True, slots=True)
class Matrix:
    """The vectors of one name in one collection: ``rows`` is ``(n, dim)`` float64, L2-normalised."""

    ids: tuple[str, ...]
    """In numeric id order, one per row."""
    rows: npt.NDArray[np.float64]


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
        """The collection's vectors of one name; built once per version and carried over value updates."""
        key = (collection, vector)
        if key not in self._matrices:
            holders = [r for r in self.collection(collection) if vector in r.vectors]
            rows = unit_rows([r.vectors[vector] for r in holders]) if holders else np.empty((0, 0))
            self._matrices[key] = Matrix(tuple(r.id for r in holders), rows)
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
    reshaped: set[str] = set()
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
            reshaped.add(event.collection)
            continue
        records[event.id] = _put(old, event.id, event, entry.position)
        if event.vectors is not None:
            reshaped.add(event.collection)
    kept = {key: matrix for key, matrix in state._matrices.items() if key[0] not in reshaped}
    return BankState(entry.position + 1, records, kept)


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
