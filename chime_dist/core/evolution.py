"""Credit-aware memory evolution: one episode's diagnosis against the bank (R24 to R34, S0 Eq. 8 to 10).

Pure, at the state it is given, in the order values -> prune -> content (R33). Two phases, because a merge needs
a text and a vector that only models can make: ``prepare`` gives complete events or the merges to ask for,
``finish`` takes the answers. A worker asks ahead with ``merge_ahead`` at the version it read; at the
proposal's turn a prediction counts only if the target at the head is the same memory with the same text.

What holds at the head, where the bank has moved on since the episode read it: S0 Eq. 9 uses the head's v and
n; a retrieved memory pruned meanwhile is skipped with a note; one merged meanwhile still takes its delta;
merge target, novelty and ids are found at the head.

``banks`` says where each stage's memory lives (R44): credit and experience of a stage go to its bank, so stages
that share one share both, and a stage without one has neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from chime_dist.core.bank import BankState, Event, ItemId, Record
from chime_dist.core.canonical import canonical_json, sha256_hex
from chime_dist.core.credit import EvolutionParams, Rejection, accepted, averaged, delta, prunable, rejection
from chime_dist.core.episode import Json, Outcome
from chime_dist.core.evidence import EvolutionInput, ExperienceVectors, Merged, MergeRequest, Read
from chime_dist.core.exact_search import Search, best
from chime_dist.core.frozen import Frozen
from chime_dist.core.memory import EXPERIENCE_VECTOR, SCENARIO_VECTOR, SEPARATE, Banks, MemoryPayload, Stage
from chime_dist.core.pruning import Prunable
from chime_dist.core.retrieval import Scored
from chime_dist.core.vector import Vector, above, below
from chime_dist.core.verdict import NewExperience, attributed


class Evolved(Frozen):
    """First half of a commit: complete events, or the merges still to be done."""

    events: tuple[Event, ...] = ()
    requests: tuple[MergeRequest, ...] = ()


def prepare(state: BankState, given: EvolutionInput, params: EvolutionParams, banks: Banks = SEPARATE) -> Evolved:
    """Events of ``given`` against ``state``, or the merges that no answer in ``given.merges`` fits.

    Raises ValueError where accepted experience has no vectors and JournalError where a record is no memory.
    """
    draft = _Draft(state, given, params, banks)
    draft.move_values()
    draft.prune()
    draft.write_content()
    return Evolved(requests=tuple(draft.requests)) if draft.requests else Evolved(events=tuple(draft.events))


def finish(
    state: BankState,
    given: EvolutionInput,
    merged: Sequence[Merged],
    params: EvolutionParams,
    banks: Banks = SEPARATE,
) -> tuple[Event, ...]:
    """The events, given the merges that ``prepare`` asked for; raises ValueError where one is still missing."""
    answered = given.model_copy(update={"merges": (*given.merges, *merged)})
    evolved = prepare(state, answered, params, banks)
    if evolved.requests:
        missing = ", ".join(f"{request.stage} into {request.target}" for request in evolved.requests)
        raise ValueError(f"position {given.position}: no usable answer to the merge of {missing}")
    return evolved.events


def merge_ahead(
    stage: Stage, new: NewExperience, nearest: Scored | None, params: EvolutionParams
) -> MergeRequest | None:
    """The merge that ``new`` would need where ``nearest`` is the most similar memory, or None.

    A worker asks with the nearest one at the version it read; what ``prepare`` asks at the head is the same if
    that memory is still the nearest and has the same texts. Raises JournalError where the record is no memory.
    """
    if nearest is None or not above(nearest.sim, params.merge_threshold):
        return None
    return _merge_request(stage, nearest.record.id, MemoryPayload.of(nearest.record), new)


def _merge_request(stage: Stage, target: str, old: MemoryPayload, new: NewExperience) -> MergeRequest:
    return MergeRequest(
        stage=stage,
        target=target,
        text_sha256=sha256_hex(canonical_json([old.scenario, old.experience])),
        scenario=old.scenario,
        experience=old.experience,
        new=new,
    )


class _Nearest(NamedTuple):
    id: str
    sim: float


@dataclass(slots=True)
class _Draft:
    """One commit while it is being written. The state under it does not change."""

    state: BankState
    given: EvolutionInput
    params: EvolutionParams
    banks: Banks
    events: list[Event] = field(default_factory=list)
    requests: list[MergeRequest] = field(default_factory=list)
    moved: dict[str, MemoryPayload] = field(default_factory=dict)
    """Payloads that this commit changed, by id."""
    pruned: set[str] = field(default_factory=set)
    inserts: int = 0

    def move_values(self) -> None:
        """R24 to R26, once per retrieved memory."""
        credited = {self.banks.get(stage) for stage in attributed(self.given.diagnosis.label)}
        first_reads: dict[str, Read] = {}
        for read in self.given.reads:
            first_reads.setdefault(read.id, read)
        for read in first_reads.values():
            diagnosis = self.given.diagnosis
            in_attributed = self.banks[read.stage] in credited
            misleading = read.id in diagnosis.misleading
            success = self.given.outcome is Outcome.SUCCESS
            feedback = delta(diagnosis.confidence, success, in_attributed, misleading)
            detail = self._detail(delta=feedback, misleading=misleading, item_version_read=read.item_version)
            record = self.state.records.get(read.id)
            held = self._held_back(record, feedback, in_attributed or misleading)
            if record is None or held is not None:
                self._note("value.skip", read.stage, read.id, {**detail, "reason": held})
                continue
            old = MemoryPayload.of(record)
            value, count = averaged(old.value, old.count, feedback)
            if self.params.value_update == "count_only" and feedback == 0:
                value = old.value
            new = old.model_copy(update={"value": value, "count": count})
            detail |= {"item_version": record.version, "before": _worth(old), "after": _worth(new)}
            self._put("value.update", read.stage, read.id, new, None, detail)

    def _held_back(self, record: Record | None, feedback: float, directed: bool) -> str | None:
        if record is None:
            return "pruned_since_read"
        if self.params.value_update == "off":
            return "off"
        if self.params.conf_gates_values and below(self.given.diagnosis.confidence, self.params.conf_threshold):
            return "low_confidence"
        if self.params.value_update == "attributed" and not directed:
            return "not_attributed"
        if self.params.value_update == "skip_zero" and feedback == 0:
            return "zero_delta"
        return None

    def prune(self) -> None:
        """R27, over all banks: after every commit no memory is left that should be gone."""
        banks = dict.fromkeys(self.banks.values())
        doomed = {
            item for item, payload in self.moved.items() if prunable(payload.value, payload.count, self.params)
        }
        doomed |= self.state.view(Prunable(self.params, frozenset(banks))).ids - self.moved.keys()
        records = [self.state.records[item] for item in sorted(doomed, key=ItemId.parse)]
        for record in [record for bank in banks for record in records if record.collection == bank]:
            self.pruned.add(record.id)
            detail = self._detail(before=_worth(self._payload(record)), reason="low_value")
            self.events.append(
                Event(op="drop", kind="prune", collection=record.collection, id=record.id, detail=detail)
            )

    def write_content(self) -> None:
        """R28 to R32: merge, insert or discard the experience of each attributed stage that has a bank."""
        diagnosis = self.given.diagnosis
        written = accepted(diagnosis, self.params, self.banks)
        for stage in attributed(diagnosis.label):
            reason = rejection(diagnosis, stage, self.params)
            if stage in written:
                self._write(stage, written[stage])
            elif reason is not None and stage in self.banks:
                self._discard(stage, reason, None)

    def _write(self, stage: Stage, new: NewExperience) -> None:
        vectors = self.given.vectors.get(stage)
        if vectors is None:
            raise ValueError(f"position {self.given.position}: accepted {stage} experience has no vectors")
        nearest = self._nearest(stage, SCENARIO_VECTOR, vectors.c)
        if nearest is not None and above(nearest.sim, self.params.merge_threshold):
            self._merge(stage, new, nearest)
        else:
            self._add(stage, new, vectors, nearest)

    def _merge(self, stage: Stage, new: NewExperience, nearest: _Nearest) -> None:
        record = self.state.records[nearest.id]
        old = self._payload(record)
        request = _merge_request(stage, record.id, old, new)
        merged = self._answer(request)
        if merged is None:
            self.requests.append(request)
            return
        scenario, c = old.scenario, record.vectors[SCENARIO_VECTOR]
        if self.params.rewrite_scenario and merged.scenario is not None and merged.c is not None:
            scenario, c = merged.scenario, merged.c
        payload = old.model_copy(
            update={
                "scenario": scenario,
                "experience": merged.experience,
                "sources": (*old.sources, self.given.position),
            }
        )
        detail = self._detail(
            decision="merge",
            nearest=nearest._asdict(),
            by=merged.by,
            new=_texts(new),
            before=_texts(old),
            after=_texts(payload),
        )
        vectors = {SCENARIO_VECTOR: c, EXPERIENCE_VECTOR: merged.e}
        self._put("content.merge", stage, record.id, payload, vectors, detail)

    def _answer(self, request: MergeRequest) -> Merged | None:
        wanted = (request.stage, request.target, request.text_sha256)
        for merged in self.given.merges:
            whole = not self.params.rewrite_scenario or (merged.scenario is not None and merged.c is not None)
            if whole and (merged.stage, merged.target, merged.text_sha256) == wanted:
                return merged
        return None

    def _add(self, stage: Stage, new: NewExperience, vectors: ExperienceVectors, near: _Nearest | None) -> None:
        limit = self.params.addition_threshold
        like = self._nearest(stage, EXPERIENCE_VECTOR, vectors.e)
        if self.params.addition == "content_novelty" and like is not None and below(1.0 - like.sim, limit):
            self._discard(stage, Rejection.NOT_NOVEL, like)
            return
        if self.params.addition == "min_stage_score" and below(self.given.diagnosis.confidence, limit):
            self._discard(stage, Rejection.LOW_STAGE_SCORE, near)
            return
        item = ItemId(self.given.position, self.inserts)
        self.inserts += 1
        payload = MemoryPayload(scenario=new.scenario, experience=new.experience, sources=(self.given.position,))
        detail = self._detail(
            decision="insert",
            nearest=near and near._asdict(),
            nearest_experience=like and like._asdict(),
            after=_worth(payload),
        )
        self._put(
            "content.insert",
            stage,
            str(item),
            payload,
            {SCENARIO_VECTOR: vectors.c, EXPERIENCE_VECTOR: vectors.e},
            detail,
        )

    def _nearest(self, stage: Stage, name: str, query: Vector) -> _Nearest | None:
        """The most similar memory that this commit leaves in the bank; of equal ones the lowest id (R30, R33)."""
        asked = Search(self.banks[stage], name, query, limit=1, withheld=tuple(self.pruned))
        found = best(self.state, asked)
        return _Nearest(found[0].record.id, found[0].sim) if found else None

    def _payload(self, record: Record) -> MemoryPayload:
        return self.moved.get(record.id) or MemoryPayload.of(record)

    def _detail(self, **audit: Json) -> dict[str, Json]:
        diagnosis = self.given.diagnosis
        return {"label": diagnosis.label.value, "confidence": diagnosis.confidence, **audit}

    def _discard(self, stage: Stage, reason: Rejection, nearest: _Nearest | None) -> None:
        detail = self._detail(decision="discard", reason=reason.value, nearest=nearest and nearest._asdict())
        self._note("content.discard", stage, None, detail)

    def _note(self, kind: str, stage: Stage, item: str | None, detail: dict[str, Json]) -> None:
        self.events.append(Event(op="note", kind=kind, collection=self.banks[stage], id=item, detail=detail))

    def _put(
        self,
        kind: str,
        stage: Stage,
        item: str,
        payload: MemoryPayload,
        vectors: dict[str, Vector] | None,
        detail: dict[str, Json],
    ) -> None:
        self.moved[item] = payload
        self.events.append(
            Event(
                op="put",
                kind=kind,
                collection=self.banks[stage],
                id=item,
                payload=payload.to_json(),
                vectors=vectors,
                detail=detail,
            )
        )


def _worth(payload: MemoryPayload) -> dict[str, Json]:
    return {"value": payload.value, "count": payload.count}


def _texts(texts: MemoryPayload | NewExperience) -> dict[str, Json]:
    return {"scenario": texts.scenario, "experience": texts.experience}
