"""One episode against the bank: R20 to R34."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chime_dist.core.bank import BankState, Event, Record, apply, replay
from chime_dist.core.credit import EvolutionParams, accepted, averaged
from chime_dist.core.episode import Candidate, Outcome, Proposal, Recall, Recalled
from chime_dist.core.evidence import EvolutionContent, EvolutionInput, ExperienceVectors, Merged, Read, reads_of
from chime_dist.core.evolution import finish, merge_ahead, prepare
from chime_dist.core.journal import GENESIS, JournalEntry, content_hash, verified
from chime_dist.core.memory import SEPARATE, Banks, MemoryPayload, Stage
from chime_dist.core.vector import Vector
from chime_dist.core.verdict import Diagnosis, Label, NewExperience

PLAN, EXEC = Stage.PLAN, Stage.EXEC
DEFAULTS = EvolutionParams()
NEW = NewExperience(scenario="deliveries with a deadline", experience="leave a buffer", actionable=True)
EAST = Vector.of([1.0, 0.0, 0.0])
UP = Vector.of([0.0, 0.0, 1.0])


def towards_east(sim: float) -> Vector:
    """A vector whose cosine with EAST is ``sim``."""
    return Vector.of([sim, math.sqrt(1.0 - sim * sim), 0.0])


def memory(
    item: str,
    stage: Stage = PLAN,
    value: float = 0.0,
    count: int = 0,
    c: Vector = UP,
    e: Vector = UP,
    version: int = 0,
) -> Record:
    payload = MemoryPayload(
        scenario=f"c of {item}", experience=f"e of {item}", value=value, count=count, sources=(0,)
    )
    return Record(collection=stage, id=item, version=version, payload=payload.to_json(), vectors={"c": c, "e": e})


def bank(*records: Record, version: int = 50) -> BankState:
    return BankState(version, {record.id: record for record in records})


def reads(*records: Record) -> tuple[Read, ...]:
    return tuple(Read(id=r.id, stage=Stage(r.collection), item_version=r.version) for r in records)


def episode(
    label: Label = Label.PLANNING,
    success: bool = False,
    confidence: float = 0.8,
    experience: dict[Stage, NewExperience] | None = None,
    misleading: Sequence[str] = (),
    read: Sequence[Read] = (),
    c: Vector = EAST,
    e: Vector = EAST,
    merges: Sequence[Merged] = (),
    position: int = 50,
) -> EvolutionInput:
    diagnosis = Diagnosis(
        label=label, confidence=confidence, experience=experience or {}, misleading=tuple(misleading)
    )
    return EvolutionInput(
        position=position,
        outcome=Outcome.SUCCESS if success else Outcome.FAILURE,
        diagnosis=diagnosis,
        reads=tuple(read),
        vectors={stage: ExperienceVectors(c=c, e=e) for stage in accepted(diagnosis, DEFAULTS)},
        merges=tuple(merges),
    )


def entry(position: int, events: Sequence[Event], previous: str = GENESIS) -> JournalEntry:
    chained: dict[str, Any] = {
        "position": position,
        "task": f"task {position}",
        "outcome": Outcome.FAILURE,
        "diagnosis": None,
        "events": tuple(events),
    }
    link = content_hash(previous, **chained)
    return JournalEntry(
        **chained, content_hash=link, run_id="r", fence=1, attempt="a", read_version=0, committed_at="2026-01-01"
    )


def evolved(state: BankState, given: EvolutionInput, **params: Any) -> tuple[BankState, tuple[Event, ...]]:
    """The bank after the commit and its events; no merge may be needed."""
    result = prepare(state, given, EvolutionParams(**params))
    assert result.requests == ()
    return apply(state, entry(state.version, result.events)), result.events


def worth(state: BankState, item: str) -> tuple[float, int]:
    payload = MemoryPayload.of(state.records[item])
    return payload.value, payload.count


def kinds(events: Sequence[Event]) -> list[str]:
    return [event.kind for event in events]


# --- values ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "success", "misleading", "plan", "execution"),
    [
        (Label.PLANNING, True, (), 0.8, 0.0),
        (Label.PLANNING, True, ("0-0",), -0.8, 0.0),
        (Label.PLANNING, False, (), 0.0, 0.0),
        (Label.NONE, False, ("0-0", "0-1"), -0.8, -0.8),
        (Label.NONE, True, (), 0.0, 0.0),
        (Label.BOTH, True, ("0-1",), 0.8, -0.8),
        (Label.EXECUTION, True, (), 0.0, 0.8),
    ],
)
def test_credit_follows_the_label(
    label: Label, success: bool, misleading: tuple[str, ...], plan: float, execution: float
) -> None:
    """R24, R20, R22: gamma 0.8; the label of a success names the stage that is rewarded."""
    items = (memory("0-0"), memory("0-1", EXEC))
    given = episode(label, success, misleading=misleading, read=reads(*items))
    after, events = evolved(bank(*items), given)
    assert worth(after, "0-0") == (plan, 1)
    assert worth(after, "0-1") == (execution, 1)
    assert [event.detail["delta"] for event in events[:2]] == [plan, execution]


def test_a_valid_none_still_averages_in_a_zero() -> None:
    """R21: no decision is not the label none; n moves and nothing else is written."""
    item = memory("0-0", value=0.5, count=3)
    after, events = evolved(bank(item), episode(Label.NONE, read=reads(item)))
    assert worth(after, "0-0") == (0.375, 4)
    assert kinds(events) == ["value.update"]


def test_a_value_update_keeps_vectors_and_records_the_audit() -> None:
    """R25, R34: before and after, delta, label, confidence, and the versions read and met."""
    item = memory("0-0", value=0.5, count=3, version=4)
    given = episode(Label.BOTH, misleading=["0-0"], read=[Read(id="0-0", stage=PLAN, item_version=2)])
    after, events = evolved(bank(item), given)
    assert events[0].vectors is None
    assert after.records["0-0"].vectors == item.vectors
    assert events[0].detail == {
        "label": "both",
        "confidence": 0.8,
        "delta": -0.8,
        "misleading": True,
        "item_version_read": 2,
        "item_version": 4,
        "before": {"value": 0.5, "count": 3},
        "after": {"value": pytest.approx(0.175), "count": 4},
    }


def test_a_memory_that_was_read_twice_moves_once() -> None:
    """R24: the retrieved memories are a set; the first read names the version."""
    item = memory("0-0")
    twice = [Read(id="0-0", stage=PLAN, item_version=3), Read(id="0-0", stage=PLAN, item_version=5)]
    after, events = evolved(bank(item), episode(success=True, read=twice))
    assert worth(after, "0-0") == (0.8, 1)
    assert events[0].detail["item_version_read"] == 3


def test_a_memory_pruned_since_it_was_read_is_skipped_and_noted() -> None:
    """R24, R34 (design "Reads and the window")."""
    gone = Read(id="0-0", stage=EXEC, item_version=1)
    _, events = evolved(bank(), episode(Label.EXECUTION, success=True, read=[gone]))
    assert (events[0].op, events[0].kind, events[0].id) == ("note", "value.skip", "0-0")
    assert events[0].detail["reason"] == "pruned_since_read"
    assert events[0].detail["item_version_read"] == 1


@pytest.mark.parametrize(
    ("mode", "kept", "value", "count"),
    [("retrieved", False, None, None), ("skip_zero", True, -0.8, 1), ("count_only", False, None, None)],
)
def test_zero_feedback_counts_or_not(mode: str, kept: bool, value: float | None, count: int | None) -> None:
    """R26: deltas -0.8, 0, 0 from (0, 0): default -0.2667, n 3, pruned; skip_zero -0.8, n 1, kept."""
    state = bank(memory("0-0"))
    for misleading in (["0-0"], [], []):
        given = episode(Label.NONE, misleading=misleading, read=[Read(id="0-0", stage=PLAN, item_version=0)])
        given = given.model_copy(update={"position": state.version})
        state, events = evolved(state, given, value_update=mode)
    assert ("0-0" in state.records) is kept
    if kept:
        assert worth(state, "0-0") == (value, count)
        assert events[0].detail["reason"] == "zero_delta"
    else:
        assert kinds(events) == ["value.update", "prune"]


def test_the_default_average_before_the_prune_is_minus_0_2667() -> None:
    """R26: v = -0.2667, n = 3."""
    item = memory("0-0", value=-0.4, count=2)
    _, events = evolved(bank(item), episode(Label.NONE, read=reads(item)))
    assert events[1].detail["before"] == {"value": pytest.approx(-0.266667, abs=1e-6), "count": 3}


def test_count_only_leaves_the_value_of_a_zero_feedback() -> None:
    """R26 count_only: delta 0 adds to n, v unchanged; another delta moves both."""
    item = memory("0-0", value=0.5, count=3)
    idle, _ = evolved(bank(item), episode(Label.NONE, read=reads(item)), value_update="count_only")
    assert worth(idle, "0-0") == (0.5, 4)
    moved, _ = evolved(bank(item), episode(success=True, read=reads(item)), value_update="count_only")
    assert worth(moved, "0-0") == averaged(0.5, 3, 0.8)


def test_attributed_moves_only_attributed_stages_and_misleading_memories() -> None:
    """R26 attributed."""
    items = (memory("0-0"), memory("0-1", EXEC), memory("0-2", EXEC))
    given = episode(Label.PLANNING, misleading=["0-2"], read=reads(*items))
    after, events = evolved(bank(*items), given, value_update="attributed")
    assert [worth(after, item.id) for item in items] == [(0.0, 1), (0.0, 0), (-0.8, 1)]
    assert events[1].detail["reason"] == "not_attributed"


def test_confidence_gates_content_only_unless_asked() -> None:
    """R29: values always move by gamma; conf_gates_values holds them back below the threshold."""
    item = memory("0-0")
    given = episode(success=True, confidence=0.4, read=reads(item))
    moved, _ = evolved(bank(item), given)
    assert worth(moved, "0-0") == (0.4, 1)
    held, events = evolved(bank(item), given, conf_gates_values=True)
    assert worth(held, "0-0") == (0.0, 0)
    assert events[0].detail["reason"] == "low_confidence"
    sure, _ = evolved(bank(item), episode(success=True, confidence=0.5, read=reads(item)), conf_gates_values=True)
    assert worth(sure, "0-0") == (0.5, 1)


def test_values_are_updated_at_the_head() -> None:
    """R7, R25: the head's v and n count, not those that the episode read."""
    head = memory("0-0", value=0.5, count=3, version=9)
    stale = Read(id="0-0", stage=PLAN, item_version=1)
    after, events = evolved(bank(head), episode(Label.NONE, misleading=["0-0"], read=[stale]))
    assert worth(after, "0-0") == averaged(0.5, 3, -0.8)
    assert (events[0].detail["item_version_read"], events[0].detail["item_version"]) == (1, 9)


# --- prune ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "count", "kept"), [(-0.1, 3, True), (-0.1001, 3, False), (-0.9, 2, True)])
def test_low_values_are_pruned_from_three_uses(value: float, count: int, kept: bool) -> None:
    """R27, in both banks, whether this episode touched the memory or not."""
    items = (memory("0-0", value=value, count=count), memory("0-1", EXEC, value=value, count=count))
    after, events = evolved(bank(*items), episode(Label.NONE))
    assert (set(after.records) == {"0-0", "0-1"}) is kept
    assert len(events) == (0 if kept else 2)


def test_float_noise_prunes_nothing() -> None:
    """R27: deltas 0.6, -0.9, 0 give -0.1 and the item is kept."""
    state = bank(memory("0-0"))
    read = [Read(id="0-0", stage=PLAN, item_version=0)]
    feedback: list[tuple[float, bool, list[str]]] = [(0.6, True, []), (0.9, False, ["0-0"]), (0.3, False, [])]
    for confidence, success, misleading in feedback:
        given = episode(success=success, confidence=confidence, misleading=misleading, read=read)
        state, _ = evolved(state, given.model_copy(update={"position": state.version}))
    assert worth(state, "0-0") == (-0.10000000000000002, 3)


def test_pruned_memories_are_dropped_in_numeric_order() -> None:
    """R27, R34: the journal's order never hangs on a hash or on spelling."""
    items = [memory(item, value=-0.5, count=3) for item in ("10-0", "9-10", "9-2")]
    _, events = evolved(bank(*items), episode(Label.NONE))
    assert [event.id for event in events] == ["9-2", "9-10", "10-0"]
    assert events[0].detail["reason"] == "low_value"


# --- content --------------------------------------------------------------------------------------------


def test_new_experience_is_inserted_neutral_with_an_id_of_its_position() -> None:
    """R10, R28: (c, e, 0, 0) under (position, k)."""
    given = episode(Label.BOTH, experience={PLAN: NEW, EXEC: NEW})
    after, events = evolved(bank(), given)
    assert [(event.collection, event.id) for event in events] == [("plan", "50-0"), ("exec", "50-1")]
    payload = MemoryPayload.of(after.records["50-1"])
    assert payload == MemoryPayload(
        scenario=NEW.scenario, experience=NEW.experience, value=0.0, count=0, sources=(50,)
    )
    assert after.records["50-1"].vectors == {"c": EAST, "e": EAST}


def test_only_attributed_stages_are_written() -> None:
    """R28, S0 Eq. 10: experience that a diagnosis holds for another stage goes nowhere."""
    after, events = evolved(bank(), episode(Label.EXECUTION, experience={PLAN: NEW, EXEC: NEW}))
    assert [record.collection for record in after.records.values()] == ["exec"]
    assert kinds(events) == ["content.insert"]


def test_content_evolves_after_a_success_too() -> None:
    """R20."""
    _, events = evolved(bank(), episode(success=True, experience={PLAN: NEW}))
    assert kinds(events) == ["content.insert"]


@pytest.mark.parametrize(
    ("experience", "confidence", "reason"),
    [
        (NEW, 0.49, "low_confidence"),
        (NEW.model_copy(update={"actionable": False}), 0.8, "not_actionable"),
        (NEW.model_copy(update={"experience": ""}), 0.8, "empty"),
        (NEW.model_copy(update={"scenario": "<scenario>"}), 0.8, "placeholder"),
        (None, 0.8, "no_experience"),
    ],
)
def test_unaccepted_experience_is_discarded_with_its_reason(
    experience: NewExperience | None, confidence: float, reason: str
) -> None:
    """R28, R29, R34."""
    given = episode(confidence=confidence, experience={} if experience is None else {PLAN: experience})
    after, events = evolved(bank(), given)
    assert after.records == {}
    assert (events[0].op, events[0].kind, events[0].collection) == ("note", "content.discard", "plan")
    assert (events[0].detail["decision"], events[0].detail["reason"]) == ("discard", reason)


def test_confidence_at_the_threshold_is_accepted() -> None:
    """R29: gamma >= 0.5, inclusive."""
    assert kinds(evolved(bank(), episode(confidence=0.5, experience={PLAN: NEW}))[1]) == ["content.insert"]


@pytest.mark.parametrize(("sim", "merges"), [(0.88, False), (0.8801, True)])
def test_merging_is_strict_above_the_threshold(sim: float, merges: bool) -> None:
    """R30: 0.88 -> insert, 0.8801 -> merge."""
    result = prepare(bank(memory("0-0", c=towards_east(sim))), episode(experience={PLAN: NEW}), DEFAULTS)
    assert bool(result.requests) is merges
    assert kinds(result.events) == ([] if merges else ["content.insert"])


def test_the_merge_target_is_the_most_similar_and_of_equals_the_lowest_id() -> None:
    """R30: numeric order, so 9-0 is lower than 10-0."""
    items = [
        memory("10-0", c=towards_east(0.95)),
        memory("9-0", c=towards_east(0.95)),
        memory("1-0", c=towards_east(0.9)),
        memory("0-0", EXEC, c=EAST),
    ]
    (request,) = prepare(bank(*items), episode(experience={PLAN: NEW}), DEFAULTS).requests
    assert (request.stage, request.target) == (PLAN, "9-0")


def test_a_merge_keeps_id_key_value_and_count() -> None:
    """R31: text and e change, provenance grows; v and n are those after this commit's value update."""
    item = memory("3-0", value=0.5, count=3, c=towards_east(0.9))
    state = bank(item)
    given = episode(experience={PLAN: NEW}, misleading=["3-0"], read=reads(item))
    (request,) = prepare(state, given, DEFAULTS).requests
    assert (request.scenario, request.experience, request.new) == ("c of 3-0", "e of 3-0", NEW)
    events = finish(state, given, [request.answered("both in one", UP, "llm")], DEFAULTS)
    after = apply(state, entry(50, events))
    record = after.records["3-0"]
    assert MemoryPayload.of(record) == MemoryPayload(
        scenario="c of 3-0", experience="both in one", value=averaged(0.5, 3, -0.8)[0], count=4, sources=(0, 50)
    )
    assert record.vectors == {"c": item.vectors["c"], "e": UP}
    assert set(after.records) == {"3-0"}


def test_a_merge_is_audited() -> None:
    """R34: decision, similarity, who merged, and the texts before and after."""
    state = bank(memory("3-0", c=towards_east(0.9)))
    given = episode(experience={PLAN: NEW})
    (request,) = prepare(state, given, DEFAULTS).requests
    (event,) = finish(state, given, [request.answered("joined", UP, "append")], DEFAULTS)
    assert event.detail == {
        "label": "planning",
        "confidence": 0.8,
        "decision": "merge",
        "nearest": {"id": "3-0", "sim": 0.9},
        "by": "append",
        "new": {"scenario": NEW.scenario, "experience": NEW.experience},
        "before": {"scenario": "c of 3-0", "experience": "e of 3-0"},
        "after": {"scenario": "c of 3-0", "experience": "joined"},
    }


def test_texts_are_joined_where_no_model_merges_them() -> None:
    """R31: on failure, and under merge: append; what is there word for word is not repeated."""
    state = bank(memory("3-0", c=towards_east(0.9)))
    (request,) = prepare(state, episode(experience={PLAN: NEW}), DEFAULTS).requests
    assert request.joined == "e of 3-0\nleave a buffer"
    again = request.model_copy(update={"experience": request.joined})
    assert again.joined == request.joined


def test_a_scenario_is_rewritten_only_on_request() -> None:
    """R31 rewrite_scenario: c moves with its text; an answer without both is no answer."""
    rewriting = EvolutionParams(rewrite_scenario=True)
    item = memory("3-0", c=towards_east(0.9))
    state, given = bank(item), episode(experience={PLAN: NEW})
    (request,) = prepare(state, given, rewriting).requests
    whole = request.answered("text", UP, "llm", scenario="wider", c=EAST)
    (rewritten,) = finish(state, given, [whole], rewriting)
    assert rewritten.payload is not None
    assert (rewritten.payload["scenario"], rewritten.vectors) == ("wider", {"c": EAST, "e": UP})
    (kept,) = finish(state, given, [whole], DEFAULTS)
    assert kept.payload is not None
    assert (kept.payload["scenario"], kept.vectors) == ("c of 3-0", {"c": item.vectors["c"], "e": UP})
    with pytest.raises(ValueError, match="no usable answer to the merge of plan into 3-0"):
        finish(state, given, [request.answered("text", UP, "llm")], rewriting)


@pytest.mark.parametrize(
    ("sim", "expected"), [(0.95, "content.discard"), (0.85, "content.insert"), (0.9, "content.insert")]
)
def test_experience_that_the_bank_already_holds_is_discarded(sim: float, expected: str) -> None:
    """R32: sim(c) 0.70: sim(e) 0.95 -> discard, 0.85 -> insert; 1 - 0.9 is 0.1 within the tolerance."""
    item = memory("0-0", c=towards_east(0.70), e=towards_east(sim))
    _, events = evolved(bank(item), episode(experience={PLAN: NEW}))
    assert kinds(events) == [expected]
    if expected == "content.discard":
        assert events[0].detail["reason"] == "not_novel"
        assert events[0].detail["nearest"] == {"id": "0-0", "sim": 0.95}
    else:
        assert events[0].detail["nearest"] == {"id": "0-0", "sim": 0.7}
        assert events[0].detail["nearest_experience"] == {"id": "0-0", "sim": sim}


def test_novelty_looks_at_the_stages_own_bank() -> None:
    """R32: "in that bank"."""
    _, events = evolved(bank(memory("0-0", EXEC, e=EAST)), episode(experience={PLAN: NEW}))
    assert kinds(events) == ["content.insert"]


def test_novelty_does_not_stop_a_merge() -> None:
    """R32: only a would-be insert is tested."""
    item = memory("0-0", c=towards_east(0.95), e=EAST)
    assert prepare(bank(item), episode(experience={PLAN: NEW}), DEFAULTS).requests


def test_addition_off_inserts_as_printed() -> None:
    """R32 off, S0 Eq. 10."""
    _, events = evolved(bank(memory("0-0", e=EAST)), episode(experience={PLAN: NEW}), addition="off")
    assert kinds(events) == ["content.insert"]


@pytest.mark.parametrize(("confidence", "expected"), [(0.1, "content.insert"), (0.09, "content.discard")])
def test_min_stage_score_tests_the_credit_of_the_stage(confidence: float, expected: str) -> None:
    """R32 min_stage_score: reachable only where conf_threshold is lower."""
    diagnosis = Diagnosis(label=Label.PLANNING, confidence=confidence, experience={PLAN: NEW})
    given = EvolutionInput(
        position=50,
        outcome=Outcome.FAILURE,
        diagnosis=diagnosis,
        vectors={PLAN: ExperienceVectors(c=EAST, e=EAST)},
    )
    state = bank(memory("0-0", e=EAST))
    _, events = evolved(state, given, addition="min_stage_score", conf_threshold=0.0)
    assert kinds(events) == [expected]
    assert events[0].detail.get("reason") == (None if expected == "content.insert" else "low_stage_score")


def test_accepted_experience_without_vectors_is_an_error() -> None:
    """A worker that forgot to embed must not look like a discard."""
    given = episode(experience={PLAN: NEW}).model_copy(update={"vectors": {}})
    with pytest.raises(ValueError, match="position 50: accepted plan experience has no vectors"):
        prepare(bank(), given, DEFAULTS)


# --- order, prediction, the head ------------------------------------------------------------------------


def test_values_then_prune_then_content() -> None:
    """R33: a memory pruned by this very commit is no merge target and does not count for novelty."""
    doomed = memory("0-0", value=-0.05, count=2, c=EAST, e=EAST)
    given = episode(experience={PLAN: NEW}, misleading=["0-0"], read=reads(doomed))
    after, events = evolved(bank(doomed), given)
    assert kinds(events) == ["value.update", "prune", "content.insert"]
    assert set(after.records) == {"50-0"}
    assert events[2].detail["nearest"] is None


def test_a_merge_predicted_at_the_version_that_was_read_needs_no_second_call() -> None:
    """R31 (design "The bank"): validated at the turn, used where target and text still hold."""
    read_state = bank(memory("3-0", c=towards_east(0.9)), version=40)
    given = episode(experience={PLAN: NEW})
    (request,) = prepare(read_state, given, DEFAULTS).requests
    ahead = given.model_copy(update={"merges": (request.answered("both", UP, "llm"),)})
    head = bank(memory("3-0", value=0.3, count=5, c=towards_east(0.9), version=5), memory("45-0"))
    assert kinds(prepare(head, ahead, DEFAULTS).events) == ["content.merge"]


@dataclass(frozen=True)
class Found:
    """What a search gives the worker."""

    record: Record
    sim: float


def test_a_worker_asks_for_the_merge_that_the_head_would_ask_for() -> None:
    """R30, R31: same request as prepare's where the nearest memory is the same; none at or below the threshold."""
    target = memory("3-0", c=towards_east(0.9))
    (request,) = prepare(bank(target), episode(experience={PLAN: NEW}), DEFAULTS).requests
    assert merge_ahead(PLAN, NEW, Found(target, 0.9), DEFAULTS) == request
    assert merge_ahead(PLAN, NEW, Found(target, 0.88), DEFAULTS) is None
    assert merge_ahead(PLAN, NEW, None, DEFAULTS) is None


def test_a_prediction_is_redone_when_the_target_or_its_text_changed() -> None:
    """R31: a nearer memory came in, the text was merged meanwhile, or the target is gone."""
    old = memory("3-0", c=towards_east(0.9))
    given = episode(experience={PLAN: NEW})
    (request,) = prepare(bank(old), given, DEFAULTS).requests
    ahead = given.model_copy(update={"merges": (request.answered("both", UP, "llm"),)})
    nearer = prepare(bank(old, memory("4-0", c=towards_east(0.95))), ahead, DEFAULTS)
    assert [r.target for r in nearer.requests] == ["4-0"]
    rewritten = old.model_copy(update={"payload": {**old.payload, "experience": "merged meanwhile"}})
    (again,) = prepare(bank(rewritten), ahead, DEFAULTS).requests
    assert (again.target, again.experience) == ("3-0", "merged meanwhile")
    assert again.text_sha256 != request.text_sha256
    assert kinds(prepare(bank(), ahead, DEFAULTS).events) == ["content.insert"]


def test_both_stages_may_ask_for_a_merge() -> None:
    """R28, R31: no event is given before every merge is answered."""
    state = bank(memory("3-0", c=EAST), memory("3-1", EXEC, c=EAST))
    given = episode(Label.BOTH, experience={PLAN: NEW, EXEC: NEW})
    result = prepare(state, given, DEFAULTS)
    assert ([r.target for r in result.requests], result.events) == (["3-0", "3-1"], ())
    with pytest.raises(ValueError, match="exec into 3-1"):
        finish(state, given, [result.requests[0].answered("t", UP, "llm")], DEFAULTS)
    events = finish(state, given, [r.answered("t", UP, "llm") for r in result.requests], DEFAULTS)
    assert [(event.kind, event.id) for event in events] == [("content.merge", "3-0"), ("content.merge", "3-1")]


def test_a_memory_merged_since_it_was_read_still_takes_its_delta() -> None:
    """R24 (design "Reads and the window"): with the version that was read."""
    head = memory("3-0", version=6)
    given = episode(success=True, read=[Read(id="3-0", stage=PLAN, item_version=2)])
    after, events = evolved(bank(head), given)
    assert worth(after, "3-0") == (0.8, 1)
    assert events[0].detail["item_version_read"] == 2


def exec_digest(state: BankState) -> str:
    return BankState(0, {r.id: r for r in state.records.values() if r.collection == EXEC}).digest()


def test_a_strict_deadline_read_as_equality_teaches_the_planner_only() -> None:
    """R23, S0 Fig. 7: one plan memory is written; the exec bank keeps its items and texts."""
    tool = memory("0-1", EXEC, value=0.5, count=3)
    state = bank(memory("0-0"), tool)
    given = episode(Label.PLANNING, experience={PLAN: NEW}, read=reads(tool))
    after, _ = evolved(state, given)
    assert [r.id for r in after.collection("plan")] == ["0-0", "50-0"]
    (kept,) = after.collection("exec")
    before = MemoryPayload.of(tool)
    assert MemoryPayload.of(kept) == before.model_copy(update={"value": 0.375, "count": 4})
    untouched, _ = evolved(state, given, value_update="attributed")
    assert exec_digest(untouched) == exec_digest(state)
    assert exec_digest(after) != exec_digest(state)


# --- artifacts ------------------------------------------------------------------------------------------


def test_the_input_travels_through_a_proposal() -> None:
    """R34: content is JSON and back; outcome, position and diagnosis are the proposal's own fields."""
    state = bank(memory("3-0", c=EAST))
    given = episode(experience={PLAN: NEW}, read=reads(memory("3-0")), misleading=["3-0"])
    (request,) = prepare(state, given, DEFAULTS).requests
    given = given.model_copy(update={"merges": (request.answered("t", UP, "llm", "s", EAST),)})
    proposal = Proposal(
        run_id="r",
        position=50,
        task="t",
        attempt="a",
        read_version=35,
        outcome=given.outcome,
        diagnosis=given.diagnosis.model_dump(mode="json"),
        content=given.content(),
    )
    received = Proposal.model_validate(json.loads(proposal.model_dump_json()))
    assert EvolutionInput.from_proposal(received) == given
    assert set(received.content) == set(EvolutionContent.model_fields)


@pytest.mark.parametrize(
    ("outcome", "diagnosis"),
    [(Outcome.FAILURE, None), (Outcome.INFRA, {"label": "none", "confidence": 0.5})],
)
def test_nothing_is_learnt_without_an_outcome_and_a_diagnosis(
    outcome: Outcome, diagnosis: dict[str, Any] | None
) -> None:
    """R21: infra and gate_error commit an empty entry; they never reach evolution."""
    proposal = Proposal(
        run_id="r", position=1, task="t", attempt="a", read_version=0, outcome=outcome, diagnosis=diagnosis
    )
    with pytest.raises(ValueError, match=r"diagnosis|infra"):
        EvolutionInput.from_proposal(proposal)


def test_only_selected_memories_count_as_retrieved() -> None:
    """R24: a candidate that no prompt held earns nothing."""

    def candidate(item: str, selected: bool) -> Candidate:
        return Candidate(
            id=item,
            item_version=2,
            sim=0.5,
            adjusted_value=0.0,
            score=0.5,
            rank_before=0,
            rank_after=0,
            selected=selected,
        )

    recall = Recall(
        collection="exec",
        query="q",
        version=9,
        candidates=(candidate("0-0", True), candidate("1-0", False)),
        selected=(Recalled(id="0-0", stage="exec", scenario="s", experience="e"),),
    )
    assert reads_of([recall]) == (Read(id="0-0", stage=EXEC, item_version=2),)
    shared = recall.model_copy(update={"collection": "shared"})
    assert reads_of([shared]) == reads_of([recall])


# --- banks ----------------------------------------------------------------------------------------------

SHARED = dict.fromkeys(Stage, "shared")
ALONE = NewExperience(scenario="refunds", experience="give cents", actionable=True)


def shared_memory(item: str, **worth: Any) -> Record:
    return memory(item, **worth).model_copy(update={"collection": "shared"})


def read_at(item: str, stage: Stage) -> Read:
    return Read(id=item, stage=stage, item_version=0)


@pytest.mark.parametrize(
    ("label", "success", "feedback"),
    [
        (Label.PLANNING, True, 0.8),
        (Label.EXECUTION, True, 0.8),
        (Label.NONE, True, 0.0),
        (Label.PLANNING, False, 0.0),
    ],
)
def test_in_a_shared_bank_any_label_but_none_credits_every_memory(
    label: Label, success: bool, feedback: float
) -> None:
    """R44 no_hierarchy: reward any retrieved item if s = 1 and a is not none; one that both read counts once."""
    state = bank(shared_memory("0-0"), shared_memory("0-1"))
    read = [read_at("0-0", PLAN), read_at("0-1", EXEC), read_at("0-0", EXEC)]
    result = prepare(state, episode(label, success, read=read), DEFAULTS, SHARED)
    moved = [(e.id, e.collection, e.detail["delta"]) for e in result.events if e.kind == "value.update"]
    assert moved == [("0-0", "shared", feedback), ("0-1", "shared", feedback)]


@pytest.mark.parametrize(
    ("label", "experience", "text"),
    [
        (Label.PLANNING, {PLAN: NEW}, "leave a buffer"),
        (Label.EXECUTION, {EXEC: ALONE}, "give cents"),
        (Label.BOTH, {PLAN: NEW, EXEC: ALONE}, "leave a buffer\ngive cents"),
    ],
)
def test_a_shared_bank_takes_one_experience_per_commit(
    label: Label, experience: dict[Stage, NewExperience], text: str
) -> None:
    """R44 no_hierarchy: any label but none writes to it."""
    given = episode(label, experience=experience)
    result = prepare(bank(), given, DEFAULTS, SHARED)
    assert [(e.kind, e.collection, e.id) for e in result.events] == [("content.insert", "shared", "50-0")]
    assert (result.events[0].payload or {})["experience"] == text


def test_what_a_shared_bank_does_not_accept_is_noted_for_its_stage() -> None:
    """R29, R34, R44 no_hierarchy: the other stage's experience is still written."""
    vague = NEW.model_copy(update={"actionable": False})
    given = episode(Label.BOTH, experience={PLAN: vague, EXEC: ALONE})
    result = prepare(bank(), given, DEFAULTS, SHARED)
    assert kinds(result.events) == ["content.discard", "content.insert"]
    assert result.events[0].detail["reason"] == "not_actionable"


def test_a_shared_bank_merges_and_prunes_like_any_other() -> None:
    """R27, R30, R44 no_hierarchy: neighbours are sought in the one bank there is."""
    near, bad = shared_memory("0-0", c=EAST), shared_memory("0-1", value=-0.5, count=3)
    given = episode(Label.EXECUTION, experience={EXEC: ALONE})
    result = prepare(bank(near, bad), given, DEFAULTS, SHARED)
    [request] = result.requests
    assert (request.stage, request.target) == (EXEC, "0-0")
    events = finish(bank(near, bad), given, [request.answered("both", UP, "llm")], DEFAULTS, SHARED)
    assert [(e.kind, e.collection, e.id) for e in events] == [
        ("prune", "shared", "0-1"),
        ("content.merge", "shared", "0-0"),
    ]


def test_a_bank_that_is_not_there_is_never_written() -> None:
    """R44 no_plan_memory: whatever the gate says of the plan, accepted or not."""
    for new in (NEW, NEW.model_copy(update={"actionable": False})):
        given = episode(Label.BOTH, experience={PLAN: new, EXEC: ALONE})
        result = prepare(bank(), given, DEFAULTS, {EXEC: "exec"})
        assert [(e.kind, e.collection) for e in result.events] == [("content.insert", "exec")]


def test_without_value_updates_a_reading_is_noted_and_nothing_moves() -> None:
    """R44 no_evolution, R34: the journal still knows what stood in the prompts."""
    item = memory("0-0", value=0.5, count=3)
    after, events = evolved(bank(item), episode(success=True, read=reads(item)), value_update="off")
    assert worth(after, "0-0") == (0.5, 3)
    assert (events[0].op, events[0].kind, events[0].detail["reason"]) == ("note", "value.skip", "off")


def test_the_ends_of_the_thresholds_merge_and_prune_nothing() -> None:
    """R27, R30, R44 no_evolution: no similarity is above 1, no value below -1."""
    same, worst = memory("0-0", c=EAST, e=UP), memory("0-1", value=-1.0, count=9)
    given = episode(experience={PLAN: NEW})
    _, events = evolved(bank(same, worst), given, merge_threshold=1.0, prune_threshold=-1.0)
    assert kinds(events) == ["content.insert"]


# --- replay ---------------------------------------------------------------------------------------------

_directions = st.sampled_from([EAST, UP, *map(towards_east, (0.95, 0.89, 0.7, -0.5))])
_experiences = st.builds(
    NewExperience,
    scenario=st.sampled_from(["returns", "refunds", "exchanges", ""]),
    experience=st.sampled_from(["check the status", "ask for the id"]),
    actionable=st.sampled_from([True, True, True, False]),
)


@st.composite
def _episodes(draw: st.DrawFn, state: BankState, params: EvolutionParams) -> EvolutionInput:
    known = sorted(state.records)
    read = draw(st.lists(st.sampled_from(known), max_size=4)) if known else []
    stages = [Stage(state.records[item].collection) for item in read]
    diagnosis = Diagnosis(
        label=draw(st.sampled_from(Label)),
        confidence=draw(st.sampled_from([0.9, 0.7, 0.5, 0.3])),
        experience={stage: draw(_experiences) for stage in Stage if draw(st.integers(0, 4))},
        misleading=tuple(item for item in read if draw(st.booleans())),
    )
    return EvolutionInput(
        position=state.version,
        outcome=draw(st.sampled_from([Outcome.SUCCESS, Outcome.FAILURE])),
        diagnosis=diagnosis,
        reads=tuple(Read(id=i, stage=s, item_version=0) for i, s in zip(read, stages, strict=True)),
        vectors={
            stage: ExperienceVectors(c=draw(_directions), e=draw(_directions))
            for stage in accepted(diagnosis, params)
        },
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_commit_replays_to_the_identical_digest(data: st.DataObject) -> None:
    """R34: through JSON lines and back; R25, R27 hold after every commit, ids are never given twice."""
    params = EvolutionParams(
        value_update=data.draw(st.sampled_from(["retrieved", "attributed", "count_only", "skip_zero"])),
        addition=data.draw(st.sampled_from(["content_novelty", "min_stage_score", "off"])),
        rewrite_scenario=data.draw(st.booleans()),
    )
    state, lines, previous, given_ids = BankState(), [], GENESIS, set[str]()
    for position in range(data.draw(st.integers(1, 12))):
        given = data.draw(_episodes(state, params))
        requests = prepare(state, given, params).requests
        merged = [r.answered(r.joined, data.draw(_directions), "append", "wider", EAST) for r in requests]
        events = finish(state, given, merged, params)
        assert finish(state, given, merged, params) == events
        assert finish(BankState(position, state.records), given, merged, params) == events
        inserted = {event.id for event in events if event.kind == "content.insert" and event.id is not None}
        assert not inserted & given_ids
        given_ids |= inserted
        committed = entry(position, events, previous)
        previous = committed.content_hash
        lines.append(committed.line())
        state = apply(state, committed)
        for record in state.records.values():
            payload = MemoryPayload.of(record)
            assert payload.count < params.prune_min_count or payload.value >= params.prune_threshold - 1e-9
    replayed = replay(verified(lines, "journal"))
    assert replayed == state
    assert replayed.digest() == state.digest()


def committed(state: BankState, given: EvolutionInput, params: EvolutionParams, banks: Banks) -> BankState:
    """The bank after ``given``; merges are joined texts that point east."""
    requests = prepare(state, given, params, banks).requests
    merged = [request.answered(request.joined, EAST, "append") for request in requests]
    return apply(state, entry(state.version, finish(state, given, merged, params, banks)))


def contents(state: BankState, collection: str) -> list[tuple[dict[str, Any], dict[str, Vector]]]:
    """A collection without its ids, which count the inserts of all banks."""
    return [(record.payload, record.vectors) for record in state.collection(collection)]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_without_the_other_bank_a_bank_evolves_as_ever(data: st.DataObject) -> None:
    """R44 no_plan_memory, no_exec_memory: given the same diagnoses, the half that is left is CHIME's."""
    whole, halves = BankState(), {stage: BankState() for stage in Stage}
    for _ in range(data.draw(st.integers(1, 8))):
        given = data.draw(_episodes(whole, DEFAULTS))
        places = {stage: [r.id for r in whole.collection(stage)] for stage in Stage}
        for stage, half in halves.items():
            ids = dict(zip(places[stage], [r.id for r in half.collection(stage)], strict=True))
            mine = {
                "reads": tuple(r.model_copy(update={"id": ids[r.id]}) for r in given.reads if r.stage is stage),
                "diagnosis": given.diagnosis.model_copy(
                    update={"misleading": tuple(ids[i] for i in given.diagnosis.misleading if i in ids)}
                ),
            }
            halves[stage] = committed(half, given.model_copy(update=mine), DEFAULTS, {stage: stage.value})
        whole = committed(whole, given, DEFAULTS, SEPARATE)
        for stage, half in halves.items():
            assert contents(half, stage) == contents(whole, stage)
            assert len(half.records) == len(half.collection(stage))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_without_evolution_a_bank_only_grows(data: st.DataObject) -> None:
    """R44 no_evolution: every accepted experience is one new memory, and no memory ever changes."""
    params = EvolutionParams(value_update="off", prune_threshold=-1.0, merge_threshold=1.0, addition="off")
    state = BankState()
    for _ in range(data.draw(st.integers(1, 8))):
        given = data.draw(_episodes(state, params))
        after = committed(state, given, params, SEPARATE)
        assert {item: after.records[item] for item in state.records} == state.records
        assert len(after.records) == len(state.records) + len(accepted(given.diagnosis, params))
        state = after
