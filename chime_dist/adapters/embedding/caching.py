"""A bounded memory of vectors in front of any embedder: inside a process the first vector of a text wins.

Encoders may give other last bits when asked again (another device state, another replica); a bank that meets a
text twice should meet the same vector. Across processes the journal plays this part.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from chime_dist.core.canonical import sha256_hex
from chime_dist.core.embedding import embeddable_all
from chime_dist.core.vector import Vector
from chime_dist.ports import Embedded, Embedder, EmbedderFingerprint

_Key = tuple[EmbedderFingerprint, str, str]


class VectorCache:
    """Least recently used vectors by (fingerprint, kind, SHA-256 of the full text); may serve several embedders.

    ``capacity`` is in vectors: 10,000 of 1,024 dimensions are 40 MB.
    """

    def __init__(self, capacity: int = 10_000) -> None:
        if capacity < 1:
            raise ValueError(f"a cache holds at least one vector, got {capacity}")
        self._capacity = capacity
        self._vectors: OrderedDict[_Key, Vector] = OrderedDict()

    def __len__(self) -> int:
        return len(self._vectors)

    def get(self, key: _Key) -> Vector | None:
        """The stored vector, which becomes the most recently used."""
        vector = self._vectors.get(key)
        if vector is not None:
            self._vectors.move_to_end(key)
        return vector

    def first(self, key: _Key, vector: Vector) -> Vector:
        """Store ``vector`` unless one is there; returns the one that is there afterwards."""
        kept = self._vectors.setdefault(key, vector)
        self._vectors.move_to_end(key)
        if len(self._vectors) > self._capacity:
            self._vectors.popitem(last=False)
        return kept


class CachingEmbedder:
    """Implements ``ports.Embedder``; asks ``inner`` for each text it does not know, once per call."""

    def __init__(self, inner: Embedder, cache: VectorCache | None = None) -> None:
        self._inner = inner
        self._cache = VectorCache() if cache is None else cache

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """That of the inner embedder: a cache changes no vector."""
        return self._inner.fingerprint

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> Embedded:
        """See the inner embedder, whose tokens are those of the texts it was asked for. Raises EmbeddingError."""
        ready = embeddable_all(texts)
        keys = [self._key(text, kind) for text in ready]
        found = {key: vector for key in keys if (vector := self._cache.get(key)) is not None}
        missing = {key: text for key, text in zip(keys, ready, strict=True) if key not in found}
        asked = await self._inner.embed(list(missing.values()), kind) if missing else Embedded()
        for key, vector in zip(missing, asked, strict=True):
            found[key] = self._cache.first(key, vector)
        return Embedded((found[key] for key in keys), asked.prompt_tokens)

    def _key(self, text: str, kind: str) -> _Key:
        # Without a query prompt a query and a document with the same text are the same input.
        asked_as = kind if self.fingerprint.query_prompt else "document"
        return self.fingerprint, asked_as, sha256_hex(text)
