"""Second stop: the memory's formulas, on their way through the real bank, gate and journal.

Ids are POSITION-K. Memories that are there before the story begins are 0-0, 0-1, ...; the story's first episode is
position 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from chime_dist.core.bank import Event, replay
from chime_dist.core.credit import EvolutionParams
from chime_dist.core.episode import EpisodeTrace, Recall, Role
from chime_dist.core.memory import Stage
from chime_dist.core.retrieval import RetrievalParams
from chime_dist.methods.chime.method import ChimeOptions
from tests.spec.parts import RUN, Memory, Tour, touring, verdict

PLAN, EXEC = Stage.PLAN, Stage.EXEC


def recalled(trace: EpisodeTrace, stage: Stage) -> Recall:
    """The episode's recall of one stage."""
    return next(recall for recall in trace.trajectory.recalls if recall.collection == stage)


async def events_of_last(tour: Tour) -> tuple[Event, ...]:
    """What the last commit did."""
    return (await tour.entries())[-1].events


# --- found ------------------------------------------------------------------------------------------------------


async def test_a_memory_is_found_by_its_scenario_ranked_by_its_worth_and_all_of_that_is_recorded(
    tmp_path: Path,
) -> None:
    """R12, R14, R15, R17: sim .70 with v 1, n 9 scores .84 and beats sim .80 with v -.5, n 3 at .64; .31 stays a
    candidate although its score falls to .248, and .2999 is none."""
    bank = [
        Memory(PLAN, 0.80, -0.5, 3),
        Memory(PLAN, 0.70, 1.0, 9),
        Memory(PLAN, 0.31, -1.0, 9),
        Memory(PLAN, 0.2999),
    ]
    async with touring(tmp_path, bank) as tour:
        recall = recalled(await tour.learn(), PLAN)
    seen = [
        (c.id, c.sim, round(c.adjusted_value, 6), round(c.score, 6), c.rank_before, c.rank_after)
        for c in recall.candidates
    ]
    assert seen == [
        ("0-0", 0.8, -0.25, 0.64, 0, 1),
        ("0-1", 0.7, 0.75, 0.84, 1, 0),
        ("0-2", 0.31, -0.75, 0.248, 2, 2),
    ]
    assert [memory.id for memory in recall.selected] == ["0-1", "0-0", "0-2"]


async def test_twenty_candidates_compete_and_three_reach_the_prompt(tmp_path: Path) -> None:
    """R13: Top N = 20 by similarity, then K = 3 by Eq. 5; the 21st has the best value and no chance."""
    bank = [Memory(PLAN, round(0.9 - 0.02 * k, 2)) for k in range(20)] + [Memory(PLAN, 0.5, 1.0, 100)]
    async with touring(tmp_path, bank) as tour:
        recall = recalled(await tour.learn(), PLAN)
    assert len(recall.candidates) == 20
    assert "0-20" not in {candidate.id for candidate in recall.candidates}
    assert len(recall.selected) == 3


@pytest.mark.parametrize(
    ("mode", "order"), [("relevance", ["0-1", "0-0"]), ("off", ["0-0", "0-1"]), ("score", ["0-1", "0-0"])]
)
async def test_of_two_memories_about_as_near_the_proven_one_is_shown_first(
    tmp_path: Path, mode: Literal["relevance", "score", "off"], order: list[str]
) -> None:
    """R16: A (.80, v .5, n 3) scores .96 and B (.78, v .9, n 6) .936; within the margin B's value decides."""
    bank = [Memory(PLAN, 0.80, 0.5, 3), Memory(PLAN, 0.78, 0.9, 6)]
    options = ChimeOptions(retrieval=RetrievalParams(near_tie=mode))
    async with touring(tmp_path, bank, options) as tour:
        await tour.learn()
    [planner] = tour.asked(Role.PLANNER)
    shown = sorted(order, key=lambda item: planner.index(f"lesson number {item[-1]}"))
    assert shown == order


# --- moved ------------------------------------------------------------------------------------------------------


async def test_a_memorys_value_is_the_average_of_what_came_of_showing_it(tmp_path: Path) -> None:
    """R24, R25: feedback .8, -.6, 0, .9 gives v .8, .1, .066667, .275 and n 1, 2, 3, 4. A misleading memory loses
    gamma whatever the label says, a credited success earns it, everything else counts as zero."""
    said: list[tuple[bool, dict[str, Any]]] = [
        (True, verdict("planning", 0.8)),
        (True, verdict("planning", 0.6, misleading=["0-0"])),
        (False, verdict("planning", 0.7)),
        (True, verdict("both", 0.9)),
    ]
    worth = []
    async with touring(tmp_path, [Memory(PLAN, 0.9)]) as tour:
        for success, words in said:
            await tour.learn(success=success, verdict=words)
            memory = (await tour.memories())["0-0"]
            worth.append((round(memory.value, 6), memory.count))
        [update] = [event for event in await events_of_last(tour) if event.kind == "value.update"]
    assert worth == [(0.8, 1), (0.1, 2), (0.066667, 3), (0.275, 4)]
    assert (update.detail["label"], update.detail["confidence"], update.detail["delta"]) == ("both", 0.9, 0.9)
    assert update.detail["after"] == {"value": pytest.approx(0.275), "count": 4}


async def test_credit_goes_to_the_stage_that_the_label_names(tmp_path: Path) -> None:
    """R22, R24, R26: after a success that planning earned, the plan memory moves by gamma and the exec memory
    counts a reuse of no worth; a valid none moves no value and still counts."""
    async with touring(tmp_path, [Memory(PLAN, 0.9), Memory(EXEC, 0.9)]) as tour:
        await tour.learn(verdict=verdict("planning", 0.8))
        credited = {item: (m.value, m.count) for item, m in (await tour.memories()).items()}
        await tour.learn(verdict=verdict("none", 0.8))
        counted = {item: m.count for item, m in (await tour.memories()).items()}
    assert credited == {"0-0": (0.8, 1), "0-1": (0.0, 1)}
    assert counted == {"0-0": 2, "0-1": 2}


async def test_a_gate_that_gives_no_decision_moves_nothing_and_its_position_stays_empty(tmp_path: Path) -> None:
    """R21: asked once more, then given up; that is not the label none, and the report can count it."""
    async with touring(tmp_path, [Memory(PLAN, 0.9)]) as tour:
        trace = await tour.learn(verdict='{"label": "planning", "confidence": NaN}')
        entry = (await tour.entries())[-1]
        memory = (await tour.memories())["0-0"]
    assert tour.happened.count("gate") == 2
    assert trace.record.gate_status == "gate_error"
    assert (trace.gate["reason"], len(trace.gate["replies"])) == ("bad_confidence", 2)
    assert trace.gate["excerpt"] == '{"label": "planning", "confidence": NaN}'
    assert (entry.empty_reason, entry.events, entry.diagnosis) == ("gate_error", (), None)
    assert memory.count == 0


async def test_ids_that_were_never_shown_are_dropped_and_kept_in_the_trace(tmp_path: Path) -> None:
    """R21: a gate that blames an invented memory changes nothing by it."""
    async with touring(tmp_path, [Memory(PLAN, 0.9)]) as tour:
        trace = await tour.learn(verdict=verdict("none", misleading=["7-7"]))
        events = await events_of_last(tour)
    assert trace.gate["dropped_ids"] == ["7-7"]
    assert {event.id for event in events} == {"0-0"}


# --- dropped ----------------------------------------------------------------------------------------------------


async def test_a_memory_that_misled_once_and_never_helped_is_gone_after_its_third_use(tmp_path: Path) -> None:
    """R26, R27: -.8, 0, 0 gives v -.2667 at n 3, below -.1; before the third use nothing is pruned."""
    async with touring(tmp_path, [Memory(PLAN, 0.9)]) as tour:
        await tour.learn(success=False, verdict=verdict("none", 0.8, misleading=["0-0"]))
        await tour.learn(success=False, verdict=verdict("none", 0.8))
        kept = (await tour.memories())["0-0"]
        await tour.learn(success=False, verdict=verdict("none", 0.8))
        kinds = [event.kind for event in await events_of_last(tour)]
        assert await tour.memories() == {}
    assert (kept.value, kept.count) == (-0.4, 2)
    assert kinds == ["value.update", "prune"]


async def test_float_noise_prunes_nothing(tmp_path: Path) -> None:
    """R27: .6, -.9, 0 is -.1 exactly on paper and -.10000000000000002 in the machine; the memory stays."""
    async with touring(tmp_path, [Memory(PLAN, 0.9)]) as tour:
        await tour.learn(verdict=verdict("planning", 0.6))
        await tour.learn(verdict=verdict("none", 0.9, misleading=["0-0"]))
        await tour.learn(verdict=verdict("none", 0.9))
        memory = (await tour.memories())["0-0"]
    assert memory.value == pytest.approx(-0.1)
    assert memory.count == 3


# --- written ----------------------------------------------------------------------------------------------------


async def test_a_plan_that_read_before_as_at_the_latest_teaches_the_planner_alone(tmp_path: Path) -> None:
    """R19, R23, R28, R10: one plan memory is written, new, neutral, named after its position; the exec bank keeps
    its items and texts."""
    async with touring(tmp_path, [Memory(EXEC, 0.9)]) as tour:
        before = await tour.memories()
        lesson = ("deliveries with a strict deadline", "'before noon' leaves out noon itself")
        await tour.learn(success=False, verdict=verdict("planning", 0.9, plan=lesson))
        after = await tour.memories()
    assert set(after) == {"0-0", "1-0"}
    assert (after["1-0"].value, after["1-0"].count, after["1-0"].sources) == (0.0, 0, (1,))
    assert after["1-0"].experience == "'before noon' leaves out noon itself"
    assert after["0-0"].experience == before["0-0"].experience
    assert (after["0-0"].value, after["0-0"].count) == (0.0, 1)


async def test_under_attributed_updates_the_other_bank_is_not_even_counted(tmp_path: Path) -> None:
    """R23, R26: with `value_update: attributed` the exec bank's digest is identical."""
    options = ChimeOptions(evolution=EvolutionParams(value_update="attributed"))
    async with touring(tmp_path, [Memory(EXEC, 0.9)], options) as tour:
        before = (await tour.bank()).records["0-0"]
        await tour.learn(success=False, verdict=verdict("planning", 0.9))
        assert (await tour.bank()).records["0-0"] == before


@pytest.mark.parametrize(("cosine", "kind"), [(0.88, "content.insert"), (0.8801, "content.merge")])
async def test_a_lesson_for_nearly_the_same_scenario_is_merged_and_never_doubled(
    tmp_path: Path, cosine: float, kind: str
) -> None:
    """R30, R31: above .88, strictly, two become one by a call of the gate's model; id, scenario, v and n of the
    old one stay, and both episodes are named as its sources."""
    lesson = (f"parcels with a deadline [{cosine}]", "book the courier first")
    async with touring(tmp_path, [Memory(PLAN, 1.0, 0.5, 4)]) as tour:
        await tour.learn(success=False, verdict=verdict("planning", plan=lesson))
        written = [event for event in await events_of_last(tour) if event.kind.startswith("content.")]
        memories = await tour.memories()
    assert [event.kind for event in written] == [kind]
    if kind == "content.insert":
        assert set(memories) == {"0-0", "1-0"}
    else:
        [merged] = memories.values()
        assert merged.experience == "both lessons, said once"
        assert (merged.scenario, merged.value, merged.count) == ("scenario 0 [1.0]", 0.4, 5)
        assert merged.sources[-1] == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (verdict("planning", 0.49, plan=("deadlines", "read them strictly")), "low_confidence"),
        (verdict("planning", 0.9, plan=("deadlines", "...")), "empty"),
        (verdict("planning", 0.9, plan=("N/A", "read them strictly")), "placeholder"),
        (verdict("planning", 0.9), "no_experience"),
    ],
)
async def test_what_is_vague_or_doubtful_is_not_remembered_and_the_reason_is(
    tmp_path: Path, words: dict[str, Any], reason: str
) -> None:
    """R29: accepted are concrete scenarios and actionable content at gamma >= .5. The value moves all the same."""
    async with touring(tmp_path, [Memory(PLAN, 0.9)]) as tour:
        await tour.learn(verdict=words)
        [discard] = [event for event in await events_of_last(tour) if event.kind == "content.discard"]
        memories = await tour.memories()
    assert discard.detail["reason"] == reason
    assert set(memories) == {"0-0"}
    assert memories["0-0"].value == words["confidence"]


async def test_a_lesson_that_the_bank_knows_in_other_circumstances_is_not_said_again(tmp_path: Path) -> None:
    """R32: scenarios at .75 are two, but an experience within .1 of one that is there adds nothing."""
    again = ("another scenario [0.8]", "read deadlines strictly [1.0]")
    async with touring(tmp_path, [Memory(PLAN, 1.0)]) as tour:
        await tour.learn(success=False, verdict=verdict("planning", plan=("a scenario [0.2]", again[1])))
        first = await tour.memories()
        await tour.learn(success=False, verdict=verdict("planning", plan=again))
        [discard] = [event for event in await events_of_last(tour) if event.kind == "content.discard"]
        assert set(await tour.memories()) == set(first) == {"0-0", "1-0"}
    assert discard.detail["reason"] == "not_novel"


async def test_a_commit_moves_values_then_prunes_then_writes_as_one_version(tmp_path: Path) -> None:
    """R33: the memory that this very episode doomed is no merge target for what it teaches."""
    async with touring(tmp_path, [Memory(PLAN, 1.0, -0.1, 2)]) as tour:
        lesson = ("the same scenario [0.99]", "do the opposite")
        await tour.learn(success=False, verdict=verdict("planning", 0.9, plan=lesson, misleading=["0-0"]))
        kinds = [event.kind for event in await events_of_last(tour)]
        memories, version = await tour.memories(), (await tour.bank()).version
    assert kinds == ["value.update", "prune", "content.insert"]
    assert set(memories) == {"1-0"}
    assert version == 2


async def test_the_journal_alone_makes_the_same_bank_again(tmp_path: Path) -> None:
    """R34: inserts, moves, merges and prunes replay to the identical digest, at every version on the way."""
    async with touring(tmp_path, [Memory(PLAN, 0.9), Memory(EXEC, 0.8)]) as tour:
        digests = [(await tour.bank()).digest()]
        stories = [
            verdict("both", 0.9, plan=("a scenario [0.3]", "one"), exec_=("a scenario [0.2]", "two")),
            verdict("planning", 0.7, plan=("a scenario [0.31]", "three"), misleading=["0-0"]),
            verdict("none", 0.6, misleading=["0-0"]),
            verdict("none", 0.6, misleading=["0-0"]),
        ]
        for words in stories:
            await tour.learn(verdict=words)
            digests.append((await tour.bank()).digest())
        entries = await tour.entries()
        lines = await tour.journal.read(RUN)
    kinds = {event.kind for entry in entries for event in entry.events}
    assert kinds >= {"content.insert", "content.merge", "value.update", "prune"}
    assert [replay(entries[: n + 1]).digest() for n in range(len(entries))] == digests
    assert len(lines) == len(entries) == 5
