"""Searching small banks in memory, whatever engine keeps their projection.

A search inside an engine costs milliseconds for a bank that one matrix product scans in a fraction of one. So
while a bank is small its rows are kept here as well, and proposals come from them; every write still goes to the
engine first. The answers are the same, because a store only proposes (see ``ports.BankStore``).
"""

from __future__ import annotations

from collections.abc import Sequence

from chime_dist.adapters.local.memory_store import MemoryStore
from chime_dist.core.bank import BankState
from chime_dist.core.vector import Vector
from chime_dist.ports import BankStore, EmbedderFingerprint, Namespace

MOST_POINTS = 16_384
"""Vectors of one run's bank that are kept in memory: 64 MB at 1,024 dimensions."""


class ResidentStore:
    """A ``BankStore`` that projects to ``engine`` and answers from memory up to ``most_points`` vectors a bank.

    A bank that grew beyond that is searched in the engine from then on.
    """

    def __init__(self, engine: BankStore, most_points: int = MOST_POINTS) -> None:
        self._engine = engine
        self._most_points = most_points
        self._near = MemoryStore()
        self._outgrown: set[Namespace] = set()

    async def open(self, namespace: Namespace, fingerprint: EmbedderFingerprint) -> None:
        """See ``ports.BankStore``."""
        await self._engine.open(namespace, fingerprint)
        await self._near.open(namespace, fingerprint)
        self._outgrown.discard(namespace)

    async def project(self, namespace: Namespace, version: int, before: BankState, after: BankState) -> None:
        """See ``ports.BankStore``. The engine first: what is found here is kept there."""
        await self._engine.project(namespace, version, before, after)
        if namespace in self._outgrown:
            return
        await self._near.project(namespace, version, before, after)
        if self._near.points(namespace) > self._most_points:
            self._outgrown.add(namespace)
            self._near.forget(namespace)

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
        """See ``ports.BankStore``."""
        store = self._engine if namespace in self._outgrown else self._near
        return await store.candidates(namespace, version, collection, vector_name, vector, limit, min_similarity)

    async def compact(self, namespace: Namespace, keep: Sequence[int]) -> None:
        """See ``ports.BankStore``."""
        if namespace not in self._outgrown:
            await self._near.compact(namespace, keep)
        await self._engine.compact(namespace, keep)

    async def close(self) -> None:
        """See ``ports.BankStore``."""
        await self._near.close()
        await self._engine.close()
