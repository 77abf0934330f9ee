"""What is searched: embedders, the bank's projection, and reads at a pinned version."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from chime_dist.core.bank import BankState, Record
from chime_dist.core.frozen import Frozen
from chime_dist.core.vector import Vector


class EmbedderFingerprint(Frozen):
    """What must not change under a bank (E4)."""

    model: str
    dim: int
    query_prompt: str = ""
    """Put before queries only, never before stored texts (F1)."""
    distance: Literal["cosine"] = "cosine"


class Embedded(list[Vector]):
    """Vectors in the order of their texts, and what asking for them used. Travels between processes whole."""

    def __init__(self, vectors: Iterable[Vector] = (), prompt_tokens: int = 0) -> None:
        super().__init__(vectors)
        self.prompt_tokens = prompt_tokens
        """Tokens that a server read for them, as far as it told; 0 without one, and where a cache answered."""


class Embedder(Protocol):
    """Texts to vectors."""

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """What vectors of this embedder may be compared with."""
        ...

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> Embedded:
        """One finite, non-zero vector of ``dim`` per text, in order.

        One text's vector never depends on its batch mates. Raises EmbeddingError (empty text, non-finite
        vector, endpoint down).
        """
        ...


class Namespace(Frozen):
    """Where one owner's projection of one run lives; a stale owner writes where nobody reads."""

    launch: str
    run_id: str
    fence: int

    def __str__(self) -> str:
        return f"of {self.run_id} (fence {self.fence})"


class BankStore(Protocol):
    """The searchable projection of a bank. Proposes candidates only; never the source of a vector.

    Points are record versions with ``valid_from``/``valid_to``; ``valid_to`` is set once. Every write waits.
    """

    async def open(self, namespace: Namespace, fingerprint: EmbedderFingerprint) -> None:
        """Start an empty projection; raises BankMismatchError when the store was built for another embedder."""
        ...

    async def project(self, namespace: Namespace, version: int, before: BankState, after: BankState) -> None:
        """Bring the projection from ``before`` to ``after`` (= ``version``); idempotent."""
        ...

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
        """Ids valid at ``version``: a superset of the best ``limit`` with cosine >= ``min_similarity``.

        Raises ServiceError for a version that is not projected, or was let go by ``compact``.
        """
        ...

    async def compact(self, namespace: Namespace, keep: Sequence[int]) -> None:
        """Remove the points that none of the versions ``keep``, the head and later ones see; idempotent.

        Every other version is refused from then on, and never comes back. Cut short at any moment, it has
        removed only points of refused versions; the next call removes the rest.
        """
        ...

    async def close(self) -> None:
        """Release the engine; the projection may be thrown away."""
        ...


class Hit(Frozen):
    """A record found, without its vectors, and its recomputed similarity (rounded to six decimals)."""

    record: Record
    sim: float


class BankQuery(Frozen):
    """A search of one collection at one version."""

    run_id: str
    version: int
    collection: str
    vector: Vector
    vector_name: str = "c"
    limit: int
    min_similarity: float = -1.0
    withheld: tuple[str, ...] = ()
    """Ids that are treated as not there (deletion probes)."""
    frozen: bool = False
    """Whether many episodes read this version and nothing is committed meanwhile (eval, R5), so that it is worth
    fetching once. It never changes an answer."""


class BankReader(Protocol):
    """What episodes may ask of the bank."""

    async def search(self, query: BankQuery) -> list[Hit]:
        """Best ``limit`` records by (similarity descending, id ascending), threshold inclusive (R12, R13)."""
        ...

    async def export(self, run_id: str, version: int) -> BankState:
        """The whole bank at a version that is kept: inside the window, a checkpoint, or the head."""
        ...
