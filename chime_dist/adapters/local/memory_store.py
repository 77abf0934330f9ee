"""The bank's projection in this process: exact search over numpy rows. Supported and shipped.

One table per collection and vector name holds each vector once, with the versions it is valid for, so that
keeping every version costs no more than keeping the newest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from chime_dist.core.bank import BankState
from chime_dist.core.projection import OPEN_END, SLACK, PointKey, Projection, Step, Versions, score_floor
from chime_dist.core.vector import Vector, products
from chime_dist.errors import BankMismatchError, ServiceError
from chime_dist.ports import EmbedderFingerprint, Namespace

_FIRST_ROWS = 64


class _Table:
    """The vectors of one name in one collection, in the order they came."""

    def __init__(self, dim: int) -> None:
        self._rows: npt.NDArray[np.float32] = np.empty((_FIRST_ROWS, dim), dtype=np.float32)
        self._valid: npt.NDArray[np.int64] = np.empty((_FIRST_ROWS, 2), dtype=np.int64)
        self._keys: dict[PointKey, int] = {}
        self._items: list[str] = []

    def __len__(self) -> int:
        return len(self._items)

    def open(self, key: PointKey, unit: npt.NDArray[np.float32]) -> None:
        """Append a row that stands from ``key.valid_from`` on."""
        row = len(self._items)
        if row == len(self._rows):
            more = max(row, _FIRST_ROWS)
            self._rows = np.concatenate([self._rows, np.empty((more, self._rows.shape[1]), dtype=np.float32)])
            self._valid = np.concatenate([self._valid, np.empty((more, 2), dtype=np.int64)])
        self._rows[row] = unit
        self._valid[row] = key.valid_from, OPEN_END
        self._keys[key] = row
        self._items.append(key.item)

    def close(self, key: PointKey, version: int) -> None:
        """End a row at ``version``."""
        self._valid[self._keys.pop(key), 1] = version

    def compact(self, versions: Versions) -> None:
        """Forget the rows that no version sees."""
        ends = self._valid[: len(self._items)].tolist()
        kept = [row for row, (first, end) in enumerate(ends) if versions.read(first, end)]
        if len(kept) == len(self._items):
            return
        moved = {row: place for place, row in enumerate(kept)}
        self._rows, self._valid = self._rows[kept], self._valid[kept]
        self._items = [self._items[row] for row in kept]
        # Rows that still stand are always kept.
        self._keys = {key: moved[row] for key, row in self._keys.items()}

    def search(self, query: npt.NDArray[np.float32], version: int, limit: int, floor: float) -> list[str]:
        """Items that may be among the best ``limit`` at ``version``; ``query`` is a unit vector, ``(dim,)``."""
        count = len(self._items)
        scores = products(self._rows[:count], query)
        valid = self._valid[:count]
        found = np.flatnonzero((valid[:, 0] <= version) & (valid[:, 1] > version) & (scores >= floor))
        if len(found) > limit:
            last = np.partition(scores[found], -limit)[-limit]
            found = found[scores[found] >= last - SLACK]
        return [self._items[row] for row in found]


class _Bank:
    def __init__(self, fingerprint: EmbedderFingerprint, where: str) -> None:
        self.projection = Projection(fingerprint.dim, where)
        self.writing = asyncio.Lock()
        self.tables: dict[tuple[str, str], _Table] = {}

    def write(self, step: Step) -> None:
        for key in step.closed:
            self.tables[key.collection, key.vector_name].close(key, step.version)
        for key, unit in step.opened:
            place = (key.collection, key.vector_name)
            if place not in self.tables:
                self.tables[place] = _Table(self.projection.dim)
            self.tables[place].open(key, unit)
        self.projection.advance(step)


class MemoryStore:
    """A ``BankStore`` without a vendor. What it holds ends with the process, as any projection may."""

    def __init__(self) -> None:
        self._banks: dict[Namespace, _Bank] = {}
        self._embedders: dict[tuple[str, str], EmbedderFingerprint] = {}

    async def open(self, namespace: Namespace, fingerprint: EmbedderFingerprint) -> None:
        """Start an empty projection; one of the same name is forgotten. Raises BankMismatchError (E4)."""
        run = (namespace.launch, namespace.run_id)
        recorded = self._embedders.setdefault(run, fingerprint)
        where = f"bank {namespace}"
        if recorded != fingerprint:
            raise BankMismatchError(
                f"{where}: it was built with {recorded}, not with {fingerprint};"
                " configure that embedder again, or start a new launch"
            )
        self._banks[namespace] = _Bank(fingerprint, where)

    async def project(self, namespace: Namespace, version: int, before: BankState, after: BankState) -> None:
        """Follow the bank from ``before`` to ``after``; see ``core.projection.Projection.plan`` for errors."""
        bank = self._bank(namespace)
        async with bank.writing:
            step = await asyncio.to_thread(bank.projection.plan, version, before, after)
            if step is not None:
                bank.write(step)

    async def candidates(
        self,
        namespace: Namespace,
        version: int,
        collection: str,
        vector_name: str,
        vector: Vector,
        limit: int,
        min_similarity: float,
    ) -> list[str]:
        """Ids at ``version`` that may be among the best ``limit``, in no particular order.

        Raises ServiceError for a namespace that is not open or a version that is not projected.
        """
        bank = self._bank(namespace)
        bank.projection.versions.require(version, bank.projection.where)
        query = bank.projection.unit(vector, "the query")
        floor = score_floor(min_similarity)
        table = bank.tables.get((collection, vector_name))
        if table is None or limit < 1:
            return []
        return table.search(query, version, limit, floor)

    async def compact(self, namespace: Namespace, keep: Sequence[int]) -> None:
        """See ``ports.BankStore``; raises ServiceError for a namespace that is not open."""
        bank = self._bank(namespace)
        async with bank.writing:
            versions = bank.projection.let_go(keep)
            if versions is None:
                return
            for table in bank.tables.values():
                table.compact(versions)
            bank.projection.swept(versions)

    def points(self, namespace: Namespace) -> int:
        """How many vectors a projection holds; raises ServiceError for a namespace that is not open."""
        return sum(len(table) for table in self._bank(namespace).tables.values())

    def forget(self, namespace: Namespace) -> None:
        """Give up one projection; raises ServiceError for a namespace that is not open."""
        self._bank(namespace)
        del self._banks[namespace]

    async def close(self) -> None:
        """Forget every projection."""
        self._banks.clear()

    def _bank(self, namespace: Namespace) -> _Bank:
        if namespace not in self._banks:
            raise ServiceError(f"bank {namespace}: it is not open in this store; open and project it first")
        return self._banks[namespace]
