"""Sixth stop: what CHIME loses with each of its parts. The same story is told twice, and one thing differs.

Two episodes teach, the third fails and blames the first memory. A scenario that ends in a number lies at that
cosine to every query; the second episode's scenarios are those of the first, so CHIME merges them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chime_dist.core.bank import BankState, Event
from chime_dist.core.distillation import OutcomeParams
from chime_dist.core.episode import Role
from chime_dist.core.memory import MemoryPayload, Stage
from chime_dist.core.model_call import ChatRequest
from chime_dist.methods.chime.method import ChimeOptions
from chime_dist.methods.chime.options import Ablation
from tests.spec.parts import Memory, touring, verdict

PLAN, EXEC = Stage.PLAN, Stage.EXEC
PLAN_LESSON = ("parcels that are due before a time [0.9]", "compare arrival times first")
EXEC_LESSON = ("couriers who name a window [0.4]", "book by the window's end")

STORY: tuple[dict[str, Any], ...] = (
    {"verdict": verdict("both", plan=PLAN_LESSON, exec_=EXEC_LESSON)},
    {"verdict": verdict("planning", plan=(PLAN_LESSON[0], "ask when the door is open"), exec_=EXEC_LESSON)},
    {"success": False, "verdict": verdict("none", plan=PLAN_LESSON, exec_=EXEC_LESSON, misleading=["0-0"])},
)
MODEL_TURNS = ["planner", "executor", "act", "score", "gate"]


@dataclass(frozen=True)
class Told:
    """What became of a story, episode by episode."""

    happened: list[list[str]]
    events: list[tuple[Event, ...]]
    requests: list[tuple[Role, ChatRequest]]
    bank: BankState

    def moved(self, episode: int) -> dict[str, float]:
        """The feedback to each memory in one episode."""
        updates = [e for e in self.events[episode] if e.kind == "value.update"]
        return {str(event.id): event.detail["delta"] for event in updates}

    def written(self, episode: int) -> list[tuple[str, str]]:
        """What was done to which collection's content in one episode."""
        return [(e.kind, e.collection) for e in self.events[episode] if e.kind.startswith("content.")]

    def asked(self, role: Role) -> list[ChatRequest]:
        """A role's requests, without merges."""
        return [r for asker, r in self.requests if asker is role and r.schema_name != "merge"]

    def contents(self, stage: Stage) -> list[tuple[dict[str, Any], Any]]:
        """A stage's bank, without its ids: those count the inserts of both."""
        return [(record.payload, record.vectors) for record in self.bank.collection(stage)]


async def told(
    folder: Path,
    ablation: Ablation = "none",
    story: Sequence[dict[str, Any]] = STORY,
    bank: Sequence[Memory] = (),
) -> Told:
    """The story under this switch."""
    happened = []
    async with touring(folder / ablation, bank, ChimeOptions(ablation=ablation)) as tour:
        for script in story:
            await tour.learn(**script)
            happened.append(tour.happened)
        entries = (await tour.entries())[1 if bank else 0 :]
        return Told(happened, [entry.events for entry in entries], tour.requests, await tour.bank())


def without(happened: Sequence[Sequence[str]], *left_out: str) -> list[list[str]]:
    """Each episode without what starts with one of these."""
    return [[one for one in episode if not one.startswith(left_out)] for episode in happened]


async def test_chime_reads_and_writes_both_banks_and_asks_the_gate_once(tmp_path: Path) -> None:
    """R2, R18, R33: what the seven are compared with."""
    chime = await told(tmp_path)
    recalls = ["recall plan @1", "planner", "recall exec @1"]
    assert chime.happened[1][:7] == [*recalls, *MODEL_TURNS[1:]]
    assert chime.written(0) == [("content.insert", "plan"), ("content.insert", "exec")]
    assert chime.written(1) == [("content.merge", "plan")]
    assert chime.moved(1) == {"0-0": 0.8, "0-1": 0.0}
    assert chime.moved(2) == {"0-0": -0.8, "0-1": 0.0}


async def test_no_plan_memory_never_touches_the_plan_bank(tmp_path: Path) -> None:
    """R44 no_plan_memory: no plan recall and no plan memory; the gate still runs, and the exec half is CHIME's."""
    taught = STORY[:2]
    chime, ablated = await told(tmp_path, story=taught), await told(tmp_path, "no_plan_memory", taught)
    assert ablated.happened == without(chime.happened, "recall plan", "merge")
    assert ablated.contents(PLAN) == []
    assert ablated.contents(EXEC) == chime.contents(EXEC) != []
    assert [r.schema_name for r in ablated.asked(Role.GATE)] == [r.schema_name for r in chime.asked(Role.GATE)]


async def test_no_exec_memory_never_touches_the_exec_bank(tmp_path: Path) -> None:
    """R44 no_exec_memory: the mirror image."""
    chime, ablated = await told(tmp_path), await told(tmp_path, "no_exec_memory")
    assert ablated.happened == without(chime.happened, "recall exec")
    assert ablated.contents(EXEC) == []
    assert ablated.contents(PLAN) == chime.contents(PLAN) != []


async def test_no_memory_plans_and_executes_and_learns_nothing(tmp_path: Path) -> None:
    """R44 no_memory: planner and executor as CHIME with an empty bank, no retrieval, no gate; not No-Plan."""
    chime, ablated = await told(tmp_path), await told(tmp_path, "no_memory")
    assert ablated.happened == without(chime.happened, "recall", "merge", "gate")
    assert ablated.happened == [MODEL_TURNS[:-1]] * 3
    for role in (Role.PLANNER, Role.EXECUTOR):
        assert {repr(r.messages) for r in ablated.asked(role)} == {repr(chime.asked(role)[0].messages)}
    assert ablated.events == [(), (), ()]


async def test_no_hierarchy_reads_and_writes_one_bank_for_both_stages(tmp_path: Path) -> None:
    """R44 no_hierarchy: the same recalls and calls on one bank; one experience per commit, and any label but none
    rewards whatever was retrieved."""
    chime, ablated = await told(tmp_path), await told(tmp_path, "no_hierarchy")
    renamed = [
        [one.replace("plan @", "shared @").replace("exec @", "shared @") for one in e] for e in chime.happened
    ]
    assert without(ablated.happened, "merge") == without(renamed, "merge")
    assert ablated.written(0) == [("content.insert", "shared")]
    [joined] = [MemoryPayload.model_validate(event.payload) for event in ablated.events[0]]
    assert (joined.scenario, joined.experience) == (PLAN_LESSON[0], f"{PLAN_LESSON[1]}\n{EXEC_LESSON[1]}")
    assert ablated.written(1) == [("content.merge", "shared")]
    assert ablated.moved(1) == {"0-0": 0.8}
    assert [r.response_schema for r in ablated.asked(Role.GATE)[:1]] == [
        r.response_schema for r in chime.asked(Role.GATE)[:1]
    ]


async def test_no_gate_lets_the_outcome_judge_and_keeps_all_that_was_distilled(tmp_path: Path) -> None:
    """R44 no_gate: the one call at the end distils instead of attributing; a success rewards every retrieved
    memory by 1, a failure by 0, and both banks get an experience that no filter saw."""
    unsure = (
        {"verdict": verdict("both", 0.1, plan=PLAN_LESSON, exec_=("couriers again [0.4]", "N/A"))},
        *STORY[1:],
    )
    chime, ablated = await told(tmp_path, story=unsure), await told(tmp_path, "no_gate", story=unsure)
    assert without(ablated.happened, "recall") == without(chime.happened, "recall", "merge")
    assert {r.schema_name for r in chime.asked(Role.GATE)} == {"diagnosis"}
    assert {r.schema_name for r in ablated.asked(Role.GATE)} == {"distillation"}
    assert chime.written(0) == [("content.discard", "plan"), ("content.discard", "exec")]
    for episode in range(3):
        assert ablated.written(episode) == [("content.insert", "plan"), ("content.insert", "exec")]
    assert ablated.moved(1) == {"0-0": 1.0, "0-1": 1.0}
    assert set(ablated.moved(2).values()) == {0.0}


@pytest.mark.parametrize(("success", "feedback"), [(True, 1.0), (False, -1.0)])
async def test_no_gate_may_punish_what_was_shown_before_a_failure(
    tmp_path: Path, success: bool, feedback: float
) -> None:
    """R44 no_gate, ``delta: signed``: +1 after a success and -1 after a failure, for both stages alike."""
    options = ChimeOptions(ablation="no_gate", outcome=OutcomeParams(delta="signed"))
    async with touring(tmp_path, [Memory(PLAN, 0.9), Memory(EXEC, 0.9)], options) as tour:
        await tour.learn(success=success, verdict=verdict("both", plan=PLAN_LESSON, exec_=EXEC_LESSON))
        memories = await tour.memories()
    assert [(memories[item].value, memories[item].count) for item in ("0-0", "0-1")] == [(feedback, 1)] * 2


async def test_no_gate_still_prunes(tmp_path: Path) -> None:
    """R44 no_gate, R27: a memory that outcomes speak against goes."""
    story = ({"success": False, "verdict": STORY[0]["verdict"]},)
    bank = [Memory(PLAN, 0.9, -0.4, 2), Memory(PLAN, 0.8, 0.4, 2)]
    ablated = await told(tmp_path, "no_gate", story, bank)
    assert [event.id for event in ablated.events[0] if event.kind == "prune"] == ["0-0"]


async def test_no_rerank_shows_the_most_similar_first_and_learns_the_same(tmp_path: Path) -> None:
    """R44 no_rerank, R16: Top-K by similarity alone; values and pruning still run, on the same feedback."""
    bank = [Memory(PLAN, 0.70, 0.5, 9), Memory(PLAN, 0.80, -0.1, 2), Memory(PLAN, 0.81, -0.5, 2)]
    story = ({"success": False, "verdict": verdict("none")},)
    chime, ablated = await told(tmp_path, story=story, bank=bank), await told(tmp_path, "no_rerank", story, bank)
    assert ablated.happened == chime.happened
    assert ablated.events == chime.events
    assert [event.id for event in ablated.events[0] if event.kind == "prune"] == ["0-2"]

    def order(story_told: Told) -> list[int]:
        prompt = repr(story_told.asked(Role.PLANNER)[0].messages)
        return sorted(range(3), key=lambda k: prompt.index(f"lesson number {k}"))

    assert order(chime) == [0, 1, 2]
    assert order(ablated) == [2, 1, 0]


async def test_no_evolution_appends_what_the_gate_accepts_and_changes_nothing_else(tmp_path: Path) -> None:
    """R44 no_evolution, R32: the gate routes as ever; its experience is added beside the same one, and no value
    moves, no memory is merged or pruned."""
    chime, ablated = await told(tmp_path), await told(tmp_path, "no_evolution")
    assert without(ablated.happened, "recall") == without(chime.happened, "recall", "merge")
    assert ablated.written(0) == chime.written(0)
    assert ablated.written(1) == [("content.insert", "plan")]
    assert [ablated.moved(episode) for episode in range(3)] == [{}, {}, {}]
    skipped = [event for event in ablated.events[2] if event.kind == "value.skip"]
    assert {event.detail["reason"] for event in skipped} == {"off"}
    assert {MemoryPayload.of(record).count for record in ablated.bank.records.values()} == {0}
