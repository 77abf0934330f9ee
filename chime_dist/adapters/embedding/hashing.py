"""An embedder without a model: signed feature hashing. Ships; needs neither torch nor a download.

Its vectors depend on the text alone, to the last bit and on every machine: features are counted with integer
weights, so every sum is exact, and the only roundings are one square root and one division. That is what
byte-identity of banks is promised for (design "Similarities are reproducible"). Similar wording gives similar
vectors; meaning it does not know.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np

from chime_dist.core.embedding import embeddable_all, embedded
from chime_dist.core.vector import Vector
from chime_dist.ports import Embedded, EmbedderFingerprint

_WORD = re.compile(r"[㐀-鿿豈-﫿぀-ヿ]|[^\W㐀-鿿豈-﫿぀-ヿ]+")
"""One Han or Kana character, or a run of other word characters: scripts without spaces have words, too."""
_WEIGHTS = {"word": 4, "pair": 2, "trigram": 1}
"""Whole words say most about a task; trigrams only tie inflected forms together."""


class HashingEmbedder:
    """Implements ``ports.Embedder``; ``dim`` is the number of buckets."""

    def __init__(self, dim: int = 256) -> None:
        if dim < 1:
            raise ValueError(f"an embedding has at least one dimension, got {dim}")
        self._fingerprint = EmbedderFingerprint(model="chime-dist/hashing-1", dim=dim)

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """The name carries a version: a change of features is another embedder."""
        return self._fingerprint

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> Embedded:
        """One L2-normalised vector per text; queries and documents are treated alike. Raises EmbeddingError."""
        vectors = Embedded()
        for text in embeddable_all(texts):
            vectors.append(hashed_vector(text, self._fingerprint.dim))
            await asyncio.sleep(0)
        return vectors


def hashed_vector(text: str, dim: int) -> Vector:
    """Signed hashing of lower-cased words, pairs of neighbouring words, and character trigrams. Pure."""
    counted = Counter(_features(text))
    buckets = [0] * dim
    for feature, count in counted.items():
        number, weight = _hashed(feature)
        buckets[number % dim] += count * weight
    if not any(buckets):
        # Every feature met its opposite: a last feature of the whole text gives the vector a direction.
        buckets[int.from_bytes(hashlib.sha256(text.encode()).digest(), "big") % dim] = 1
    values = np.array(buckets, dtype=np.int64)
    return embedded(values / math.sqrt(int(values @ values)), dim)


@lru_cache(maxsize=1 << 16)
def _hashed(feature: tuple[str, str]) -> tuple[int, int]:
    """A feature's number and signed weight. Texts of one benchmark share most of their features."""
    kind, words = feature
    digest = hashlib.blake2b(f"{kind}\n{words}".encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    return number >> 1, _WEIGHTS[kind] if number & 1 else -_WEIGHTS[kind]


def _features(text: str) -> Iterator[tuple[str, str]]:
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = _WORD.findall(folded)
    for word in words:
        yield "word", word
    for first, second in pairwise(words):
        yield "pair", f"{first} {second}"
    padded = f" {' '.join(folded.split())} "
    for start in range(len(padded) - 2):
        yield "trigram", padded[start : start + 3]
