"""U-Mem without training: one bank, one extraction per episode, updates that survive concurrency."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Literal

import jsonschema
import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.embedding.hashing import HashingEmbedder
from chime_dist.core.bank import BankState, Record
from chime_dist.core.episode import Candidate, Outcome, Proposal, Recall, Recalled, Role, Trajectory, Unit
from chime_dist.core.memory import MemoryPayload
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.core.reply import Fault
from chime_dist.core.task import TaskView
from chime_dist.core.vector import Vector
from chime_dist.methods.umem.method import Umem, UmemOptions
from chime_dist.methods.umem.notes import (
    LESSONS,
    Extraction,
    ExtractionFault,
    Lesson,
    LessonLimits,
    extraction_schema,
    parse_extraction,
)
from chime_dist.ports import CommitReply, Embedded, Hit, Prepared, Reflection
from chime_dist.wiring.registry import prompts
from tests.spec.sweeps import journal_of, launched, records_of

METHOD = Umem(UmemOptions())
EMBEDDER = HashingEmbedder(16)
TEXTS = {"scenario": "parcels that are due", "experience": "compare arrival times"}
READ = ("3-0", "7-0")


def reply(operation: str = "ADD", target: str = "none", **texts: Any) -> dict[str, Any]:
    return {"operation": operation, "target": target, **TEXTS, **texts}


# --- the extraction ---------------------------------------------------------------------------------------------


def read(given: Any, ids: Sequence[str] = READ, finish: str = "stop") -> Extraction | Fault | ExtractionFault:
    return parse_extraction(json.dumps(given), finish, ids)


def test_an_extraction_adds_updates_or_leaves_alone() -> None:
    """R43: texts are trimmed, and only an update has a target."""
    lesson = Lesson(**TEXTS)
    assert read(reply("ADD", "3-0", scenario=" parcels that are due ")) == Extraction(
        operation="ADD", lesson=lesson
    )
    assert read(reply("update", "7-0")) == Extraction(operation="UPDATE", target="7-0", lesson=lesson)
    assert read(reply("NONE", scenario="", experience="")) == Extraction(operation="NONE")


@pytest.mark.parametrize(
    ("given", "ids", "fault"),
    [
        (reply("DELETE"), READ, ExtractionFault.BAD_OPERATION),
        (reply("not ADD"), READ, ExtractionFault.BAD_OPERATION),
        (reply("UPDATE", "3-0"), (), ExtractionFault.BAD_OPERATION),
        (reply("UPDATE", "9-9"), READ, ExtractionFault.BAD_TARGET),
        (reply("UPDATE"), READ, ExtractionFault.BAD_TARGET),
        (reply(scenario=3), READ, ExtractionFault.BAD_LESSON),
        (reply(experience="\u200b "), READ, ExtractionFault.BAD_LESSON),
    ],
)
def test_what_is_no_extraction_is_not_mended_into_one(
    given: dict[str, Any], ids: Sequence[str], fault: ExtractionFault
) -> None:
    """R21: no decision is not the decision NONE; an invented target is no target."""
    assert read(given, ids) is fault


def test_a_cut_reply_is_no_extraction() -> None:
    """R21, B8."""
    assert read(reply(), finish="length") is Fault.TRUNCATED


def test_the_schema_offers_what_can_be_done() -> None:
    """R43: without lessons in the prompts there is nothing to update, and no empty list of targets."""
    limits = LessonLimits(scenario=30, experience=30)
    jsonschema.validate(reply("UPDATE", "3-0"), extraction_schema(READ, limits))
    for wrong in (reply("UPDATE", "9-9"), reply(experience="x" * 31)):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, extraction_schema(READ, limits))
    assert extraction_schema((), limits)["properties"]["operation"]["enum"] == ["ADD", "NONE"]
    assert "target" not in extraction_schema((), limits)["properties"]


# --- one episode ------------------------------------------------------------------------------------------------


class Reviewer:
    """``ports.ReflectionContext`` and ``ports.Models`` in one: says one reply after another."""

    unit = Unit(run_id="r", phase="train", epoch=0, position=20, task="t", read_version=17)

    def __init__(self, *replies: Any) -> None:
        self._replies = list(replies)
        self.turns: list[Turn] = []

    async def turn(self, role: Role, turn: Turn, session_id: str = "", budget_s: float = 0.0) -> ChatReply:
        """See the ports."""
        assert role is Role.GATE
        prompts(["umem"]).render(turn)
        self.turns.append(turn)
        said = self._replies.pop(0)
        return ChatReply(text=said if isinstance(said, str) else json.dumps(said))

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"] = "document") -> Embedded:
        """See the ports."""
        return await EMBEDDER.embed(texts, kind)

    async def nearest(self, collection: str, vector: Vector, min_similarity: float) -> Hit | None:
        """See the ports."""
        raise AssertionError("U-Mem merges nothing")

    async def probe(self, budget_s: float) -> None:
        """See the ports."""
        raise AssertionError("nobody asks")


def attempted(*shown: Recalled) -> Trajectory:
    view = TaskView(request="Deliver.", messages=({"role": "user", "content": "Deliver."},))
    candidates = tuple(
        Candidate(
            id=lesson.id,
            item_version=4,
            sim=0.9,
            adjusted_value=0.0,
            score=0.9,
            rank_before=rank,
            rank_after=rank,
            selected=True,
        )
        for rank, lesson in enumerate(shown)
    )
    recall = Recall(collection=LESSONS, query="Deliver.", version=17, candidates=candidates, selected=shown)
    return Trajectory(view=view, plan="1. Go.", recalls=(recall,))


SHOWN = Recalled(id="3-0", stage=LESSONS, scenario="parcels", experience="hurry")


async def reflected(reviewer: Reviewer, *shown: Recalled) -> Reflection:
    return await METHOD.reflect(reviewer, attempted(*shown), Outcome.FAILURE)


async def test_the_reviewer_sees_the_outcome_and_the_lessons_that_were_shown() -> None:
    """R43, R8: one call, which says what it read and decided; of the check there is only its outcome."""
    reviewer = Reviewer(reply("UPDATE", "3-0"))
    reflection = await reflected(reviewer, SHOWN)
    [turn] = reviewer.turns
    prompt = json.dumps(prompts(["umem"]).render(turn))
    assert "it was a failure" in prompt
    assert "- 3-0 For parcels" in prompt
    assert (reflection.status, reflection.label) == ("decided", None)
    assert reflection.diagnosis == {"operation": "UPDATE", "target": "3-0", "lesson": TEXTS}
    assert reflection.content["version_read"] == 4


async def test_a_bad_extraction_is_asked_for_once_more() -> None:
    """R21: the repair says what was wrong."""
    reviewer = Reviewer("no object", reply("NONE"))
    reflection = await reflected(reviewer)
    assert [turn.variables["repair"] for turn in reviewer.turns] == [None, "not_json"]
    assert (reflection.status, reflection.content["written"]) == ("decided", None)


async def test_two_bad_extractions_teach_nothing() -> None:
    """R21: counted as a gate error, and kept for people."""
    reflection = await reflected(Reviewer("no object", reply("UPDATE", "3-0")))
    assert (reflection.status, reflection.diagnosis) == ("gate_error", None)
    first, second = reflection.audit["replies"]
    assert (reflection.audit["reason"], first) == ("bad_operation", "no object")
    assert second.startswith(reflection.audit["excerpt"]), "of the reply that the reason is about"


# --- commits ----------------------------------------------------------------------------------------------------


def state(version: int) -> BankState:
    """One lesson, at this chain version."""
    payload = MemoryPayload(scenario="parcels", experience=f"text {version}", sources=(3,))
    record = Record(
        collection=LESSONS,
        id="3-0",
        version=version,
        payload=payload.to_json(),
        vectors={"c": Vector.of([1.0] * 16)},
    )
    return BankState(20, {"3-0": record})


async def proposed(operation: str) -> Proposal:
    reflection = await reflected(Reviewer(reply(operation, "3-0")), SHOWN)
    return Proposal(
        run_id="r",
        position=20,
        task="t",
        attempt="a",
        read_version=17,
        outcome=Outcome.FAILURE,
        diagnosis=reflection.diagnosis,
        content=reflection.content,
    )


def done(prepared: Prepared) -> list[tuple[str, str, str | None]]:
    assert prepared.requests == ()
    return [(event.op, event.kind, event.id) for event in prepared.events]


async def test_a_commit_adds_rewrites_or_notes() -> None:
    """R34, R43: an update keeps the lesson's id and its provenance, and moves what it is found by."""
    assert done(METHOD.prepare(state(4), await proposed("ADD"))) == [("put", "content.insert", "20-0")]
    assert done(METHOD.prepare(state(4), await proposed("NONE"))) == [("note", "content.none", None)]
    prepared = METHOD.prepare(state(4), await proposed("UPDATE"))
    assert done(prepared) == [("put", "content.update", "3-0")]
    [event] = prepared.events
    assert event.payload == {**TEXTS, "value": 0.0, "count": 0, "sources": [3, 20]}
    assert event.vectors == {"c": (await EMBEDDER.embed([TEXTS["scenario"]], "document"))[0]}
    assert event.detail["before"] == {"scenario": "parcels", "experience": "text 4"}


async def test_a_target_that_is_gone_becomes_a_lesson_of_its_own() -> None:
    assert done(METHOD.prepare(BankState(20), await proposed("UPDATE"))) == [("put", "content.insert", "20-0")]


async def test_an_update_of_a_lesson_that_changed_meanwhile_is_redone_at_the_head() -> None:
    """R7 (design "Reads and the window"): both texts go into one, so no episode's lesson is overwritten."""
    proposal = await proposed("UPDATE")
    [request] = METHOD.prepare(state(5), proposal).requests
    assert (request.key, request.data) == (
        "3-0",
        {"current": {"scenario": "parcels", "experience": "text 5"}, "new": TEXTS},
    )
    models = Reviewer({"scenario": "all parcels", "experience": "both texts"})
    answer = await METHOD.answer(request, models, 1.0)
    [event] = METHOD.finish(state(5), proposal, [answer])
    assert (event.kind, event.id, event.detail["combined"]) == ("content.update", "3-0", True)
    assert (event.payload or {})["experience"] == "both texts"
    assert (event.detail["item_version_read"], event.detail["item_version"]) == (4, 5)


@pytest.mark.parametrize("said", ["no object", {"scenario": "s", "experience": " "}, {"scenario": "s"}])
async def test_where_nobody_can_combine_them_both_texts_stay(said: Any) -> None:
    """R34: the conflict is journalled, and the newer text is added."""
    proposal = await proposed("UPDATE")
    [request] = METHOD.prepare(state(5), proposal).requests
    for answer in (await METHOD.answer(request, Reviewer(said), 1.0), await METHOD.fallback(request, Reviewer())):
        assert answer == CommitReply(key="3-0")
        events = METHOD.finish(state(5), proposal, [answer])
        assert [(event.op, event.kind, event.id) for event in events] == [
            ("note", "content.conflict", "3-0"),
            ("put", "content.insert", "20-0"),
        ]


# --- runs -------------------------------------------------------------------------------------------------------

SWEEP = """\
name: umem
benchmarks: [{{name: credit_world, families: 2, tasks_per_family: 20, steps: 2, noise: 0.1}}]
methods: [umem]
backbones: [{{name: m, scripted: {{script: credit_world, gate_accuracy: 0.8}}}}]
orderings: [0]
embedder: {{kind: hashing, dim: 64}}
protocol: {{epochs: 2, window: 6}}
cluster:
  slots: {slots}
  endpoints: {{m: {{kind: scripted, latency_s: {latency}}}}}
"""


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> list[LaunchDirectory]:
    """One sweep, one episode at a time and six at a time in any order."""
    texts = [SWEEP.format(slots=1, latency="[0.0, 0.0]"), SWEEP.format(slots=6, latency="[0.0, 0.01]")]
    return [asyncio.run(launched(tmp_path_factory.mktemp("umem"), text)) for text in texts]


def test_timing_changes_nothing_although_updates_collide(launches: list[LaunchDirectory]) -> None:
    """R7: the same content chain whatever the slots, with collisions in it."""
    [one], [six] = (list(launch.manifest.runs) for launch in launches)
    journals = [journal_of(launches[0], one), journal_of(launches[1], six)]
    assert [e.content_hash for e in journals[0]] == [e.content_hash for e in journals[1]]
    events = [event for entry in journals[0] for event in entry.events]
    assert {"content.insert", "content.update", "content.none"} <= {event.kind for event in events}
    assert any(event.detail.get("combined") for event in events)
    assert {event.op for event in events} <= {"put", "note"}


def test_every_episode_costs_one_plan_and_one_extraction(launches: list[LaunchDirectory]) -> None:
    """R43: beside the executor's steps; an eval episode is not extracted from."""
    [run] = launches[0].manifest.runs
    for phase, gate in (("train", {"gate": 1}), ("eval", {})):
        for record in records_of(launches[0], run, phase):
            spent = {role: used.calls for role, used in record.usage.items() if role != "embedder"}
            assert spent == {"planner": 1, "executor": 2, **gate}
    assert dict(METHOD.calls(2)) == {Role.PLANNER: 1, Role.GATE: 1}
