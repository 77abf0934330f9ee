"""Value-aware reranking of one stage's candidates (R12 to R17, S0 Eq. 5). Pure and totally ordered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field

from chime_dist.core.bank import ItemId, Record
from chime_dist.core.episode import Candidate, Recall, Recalled
from chime_dist.core.frozen import Frozen
from chime_dist.core.memory import MemoryPayload
from chime_dist.core.vector import above, at_least

_KEY_DECIMALS = 9


class RetrievalParams(Frozen):
    """Retrieval of one stage. Defaults are Table 7 of S0, or our reading where it says [U]."""

    candidates: int = Field(default=20, ge=1)
    """N of R13: how many of the most similar memories are reranked."""
    k: int = Field(default=3, ge=1)
    """K of R13: how many reach the prompt."""
    min_similarity: float = Field(default=0.3, ge=-1.0, le=1.0)
    """Candidates below it are dropped before Top-N; equal is kept. Tests similarity, never the score (R12)."""
    smoothing: float = Field(default=3.0, gt=0.0)
    """lambda of R14, in reuses: at n = lambda half of the value counts."""
    alpha: float = Field(default=1.0, ge=0.0)
    """Value weight of S0 Eq. 5; 0 ranks by similarity."""
    beta: float = Field(default=0.2, ge=0.0, lt=1.0)
    """Bound of the value's effect on the score, as a share of the similarity."""
    near_tie: Literal["relevance", "score", "off"] = "relevance"
    """[U] What the near-tie margin of Table 7 compares (R16): similarities, scores, or nothing. ``relevance``
    overrides the printed Eq. 5 inside a group, so reports name the mode."""
    near_tie_margin: float = Field(default=0.03, ge=0.0)
    """Largest distance to the group's leader, inclusive."""


class Scored(Protocol):
    """A record found by a search, and its similarity (``ports.Hit``)."""

    @property
    def record(self) -> Record:
        """A memory record; its vectors are not needed."""
        ...

    @property
    def sim(self) -> float:
        """Cosine of query and scenario in [-1, 1], rounded to six decimals."""
        ...


@dataclass(frozen=True, slots=True)
class _Ranked:
    record: Record
    payload: MemoryPayload
    item: ItemId
    sim: float
    adjusted: float
    score: float


def adjusted_value(value: float, count: int, smoothing: float) -> float:
    """v~ of R14: ``value`` in [-1, 1] shrunk toward 0 for a memory that was reused only ``count`` times."""
    return value * count / (count + smoothing)


def score(sim: float, adjusted: float, params: RetrievalParams) -> float:
    """S0 Eq. 5 (R15): similarity, moved by at most ``beta`` of itself by the adjusted value."""
    return sim * (1.0 + min(max(params.alpha * adjusted, -params.beta), params.beta))


def rerank(
    hits: Iterable[Scored],
    params: RetrievalParams,
    collection: str,
    query: str,
    version: int,
    stage: str | None = None,
) -> Recall:
    """Select the Top-K of one stage and record how every candidate fared (R12 to R17).

    ``hits`` may come in any order, from version ``version`` of ``collection``, which is searched for ``stage``
    (None where the stage has the collection's name); those below the threshold or beyond the Top-N are dropped
    here too. The result's candidates stand in similarity order; its selected memories stand in
    rank order, possibly fewer than K, possibly none. Raises JournalError where a record is not a memory.
    """
    ranked = [_ranked(hit, params) for hit in hits if at_least(hit.sim, params.min_similarity)]
    by_similarity = sorted(ranked, key=lambda r: (-r.sim, r.item))[: params.candidates]
    reranked = _near_ties(sorted(by_similarity, key=_by_score), params)
    rank_after = {r.record.id: rank for rank, r in enumerate(reranked)}
    selected = reranked[: params.k]
    chosen = {r.record.id for r in selected}
    return Recall(
        collection=collection,
        query=query,
        version=version,
        candidates=tuple(
            Candidate(
                id=r.record.id,
                item_version=r.record.version,
                sim=r.sim,
                adjusted_value=r.adjusted,
                score=r.score,
                rank_before=rank,
                rank_after=rank_after[r.record.id],
                selected=r.record.id in chosen,
            )
            for rank, r in enumerate(by_similarity)
        ),
        selected=tuple(
            Recalled(
                id=r.record.id,
                stage=collection if stage is None else stage,
                scenario=r.payload.scenario,
                experience=r.payload.experience,
            )
            for r in selected
        ),
    )


def _ranked(hit: Scored, params: RetrievalParams) -> _Ranked:
    payload = MemoryPayload.of(hit.record)
    adjusted = adjusted_value(payload.value, payload.count, params.smoothing)
    return _Ranked(
        record=hit.record,
        payload=payload,
        item=ItemId.parse(hit.record.id),
        sim=hit.sim,
        adjusted=adjusted,
        score=score(hit.sim, adjusted, params),
    )


def _key(value: float) -> float:
    # Two ways to compute one value may differ in the last bit; a rank must not hang on that.
    return round(value, _KEY_DECIMALS)


def _by_score(r: _Ranked) -> tuple[float, float, ItemId]:
    return (-_key(r.score), -r.sim, r.item)


def _by_value(r: _Ranked) -> tuple[float, float, int, ItemId]:
    return (-_key(r.adjusted), -_key(r.score), -r.payload.count, r.item)


def _near_ties(ordered: Sequence[_Ranked], params: RetrievalParams) -> list[_Ranked]:
    """R16: reorder each run of items that lie within the margin of the run's first one."""
    if params.near_tie == "off":
        return list(ordered)
    measure: Callable[[_Ranked], float] = (
        (lambda r: r.sim) if params.near_tie == "relevance" else (lambda r: r.score)
    )
    groups: list[list[_Ranked]] = []
    for r in ordered:
        if groups and not above(abs(measure(r) - measure(groups[-1][0])), params.near_tie_margin):
            groups[-1].append(r)
        else:
            groups.append([r])
    return [r for group in groups for r in sorted(group, key=_by_value)]
