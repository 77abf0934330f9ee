"""The heart: what is committed depends on the stream and the window, never on workers, delays or redelivery."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.directory.file_journal import FileJournal
from chime_dist.adapters.local.change_feed import ChangeFeed
from chime_dist.adapters.local.memory_store import MemoryStore
from chime_dist.adapters.local.queue import LocalQueue
from chime_dist.core.bank import BankState, ItemId, apply
from chime_dist.core.credit import accepted
from chime_dist.core.episode import Outcome, Recall, Role
from chime_dist.core.evidence import EvolutionInput, ExperienceVectors, reads_of
from chime_dist.core.evolution import finish, prepare
from chime_dist.core.journal import GENESIS, JournalEntry, content_hash
from chime_dist.core.memory import Stage
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.core.retrieval import rerank
from chime_dist.core.vector import similarities, unit_rows
from chime_dist.core.verdict import gate_schema, parse_verdict
from chime_dist.engine.driver import Ending
from chime_dist.ports import Action, Hit
from tests.integration.launching import (
    EMBEDDER,
    OPTIONS,
    RUN,
    Launched,
    UnreliableQueue,
    models_on,
    new_directory,
    plan_of,
)
from tests.integration.toy import JitteryBackbone, ToyBenchmark

SIZE = 40


async def sequential(benchmark: ToyBenchmark) -> list[JournalEntry]:
    """The paper's loop (S0 Eq. 4), one task after the other, with nothing of the engine in it."""
    state, link, entries = BankState(), GENESIS, list[JournalEntry]()
    for position, task in enumerate(benchmark.tasks()):
        entry = await one_position(position, benchmark, task.id, state, link)
        state, link = apply(state, entry), entry.content_hash
        entries.append(entry)
    return entries


async def one_position(
    position: int, benchmark: ToyBenchmark, task: str, state: BankState, link: str
) -> JournalEntry:
    """Retrieve, plan, retrieve, act, score, diagnose, evolve."""
    models = models_on(JitteryBackbone(0.0, 0))
    environment = await benchmark.open(task)
    view = environment.view

    async def recall(stage: Stage, query: str) -> Recall:
        [vector] = await EMBEDDER.embed([query], "query")
        held = state.collection(stage)
        sims = similarities(vector, unit_rows([record.vectors["c"] for record in held])) if held else []
        hits = [Hit(record=record, sim=sim) for record, sim in zip(held, sims, strict=True) if sim >= 0.3]
        hits.sort(key=lambda hit: (-hit.sim, ItemId.parse(hit.record.id)))
        return rerank(hits[:20], OPTIONS.retrieval, stage, query, state.version)

    async def ask(role: Role, template: str, variables: dict[str, Any], **turn: Any) -> ChatReply:
        shared = {"view": view.model_dump(mode="json"), "list_tools": role is not Role.EXECUTOR}
        asked = Turn(
            template=f"chime/{template}", variables=shared | variables, conversation=view.messages, **turn
        )
        return await models.turn(role, asked, "sequential", 60.0)

    plan_memories = await recall(Stage.PLAN, view.request)
    plan = (await ask(Role.PLANNER, "plan", {"memories": _texts(plan_memories)})).text.strip()
    exec_memories = await recall(Stage.EXEC, f"{view.request}\n\n{plan}")
    reply = await ask(
        Role.EXECUTOR, "execute", {"plan": plan, "memories": _texts(exec_memories)}, tools=view.tools
    )
    await environment.act(Action(text=reply.text, tool_calls=reply.tool_calls))
    outcome = Outcome.SUCCESS if await environment.score() else Outcome.FAILURE

    memories = [*plan_memories.selected, *exec_memories.selected]
    calls = [{"name": call.name, "arguments": call.arguments} for call in reply.tool_calls]
    steps = [
        {"index": 0, "kind": "plan", "content": plan, "data": {}},
        {"index": 1, "kind": "action", "content": reply.text, "data": {"calls": calls}},
    ]
    shown = [memory.id for memory in memories]
    verdict = await ask(
        Role.GATE,
        "review",
        {
            "plan": plan,
            "steps": steps,
            "outcome": outcome.value,
            "memories": [memory.model_dump(mode="json") for memory in memories],
            "repair": None,
        },
        response_schema=gate_schema(shown, OPTIONS.gate),
        schema_name="diagnosis",
    )
    diagnosis = parse_verdict(verdict.text, "stop", shown).diagnosis
    assert diagnosis is not None

    vectors = {}
    for stage in accepted(diagnosis, OPTIONS.evolution):
        new = diagnosis.experience[stage]
        c, e = await EMBEDDER.embed([new.scenario, new.experience], "document")
        vectors[stage] = ExperienceVectors(c=c, e=e)
    given = EvolutionInput(
        position=position,
        outcome=outcome,
        diagnosis=diagnosis,
        reads=reads_of([plan_memories, exec_memories]),
        vectors=vectors,
    )
    evolved = prepare(state, given, OPTIONS.evolution)
    merged = []
    for request in evolved.requests:
        texts = {"scenario": request.scenario, "old": request.experience, "new": request.new.experience}
        turn = Turn(
            template="chime/merge",
            variables={**texts, "new_scenario": request.new.scenario, "rewrite_scenario": False},
            response_schema={},
            schema_name="merge",
        )
        combined = json.loads((await models.turn(Role.GATE, turn, "sequential", 60.0)).text)["experience"]
        [e] = await EMBEDDER.embed([combined], "document")
        merged.append(request.answered(combined, e, "llm"))
    events = finish(state, given, merged, OPTIONS.evolution) if merged else evolved.events
    content: dict[str, Any] = {
        "position": position,
        "task": task,
        "outcome": outcome,
        "diagnosis": diagnosis.model_dump(mode="json"),
        "events": events,
    }
    return JournalEntry.model_validate(
        {
            **content,
            "content_hash": content_hash(link, **content),
            "run_id": RUN,
            "fence": 0,
            "attempt": "",
            "read_version": position,
            "committed_at": "",
        }
    )


def _texts(recall: Recall) -> list[object]:
    return [memory.model_dump(mode="json") for memory in recall.selected]


def local_launch(
    path: Path,
    *,
    window: int,
    workers: int = 1,
    slots: int = 16,
    delay_s: float = 0.0,
    epochs: int = 1,
    seed: int = 0,
) -> Launched:
    """The toy on the local adapters."""
    benchmark = ToyBenchmark(SIZE)
    directory = new_directory(path)
    clock = SystemClock()
    feed = ChangeFeed(clock)
    return Launched(
        directory=directory,
        plan=plan_of(benchmark, window, epochs),
        benchmark=benchmark,
        backbone=JitteryBackbone(delay_s, seed),
        queue=LocalQueue(clock, feed, 30.0),
        journal=FileJournal(lambda run_id: directory.run(run_id).path, feed),
        store=MemoryStore(),
        workers=workers,
        slots=slots,
    )


async def test_a_window_of_one_is_the_papers_sequential_loop_event_by_event(tmp_path: Path) -> None:
    """R7: W=1 reads what the previous position wrote, so the engine equals the plain loop."""
    expected = await sequential(ToyBenchmark(SIZE))
    kinds = {event.kind for entry in expected for event in entry.events}
    assert kinds >= {"content.insert", "content.merge", "content.discard", "value.update", "prune"}
    launch = local_launch(tmp_path, window=1, workers=3, delay_s=0.002)
    assert await launch.run() is Ending.COMPLETE
    entries = await launch.entries()
    for mine, theirs in zip(entries, expected, strict=True):
        assert mine.events == theirs.events
    assert [entry.content_hash for entry in entries] == [entry.content_hash for entry in expected]


async def test_workers_delays_and_redelivery_change_nothing(tmp_path: Path) -> None:
    """R7: with W=16 the content chain is a function of the stream alone, over two epochs."""
    calm = local_launch(tmp_path / "calm", window=16, epochs=2)
    assert await calm.run() is Ending.COMPLETE
    reference = [entry.content_hash for entry in await calm.entries()]
    for seed in range(2):
        shaken = local_launch(tmp_path / str(seed), window=16, workers=16, delay_s=0.02, epochs=2, seed=seed)
        queue = UnreliableQueue(shaken.queue, seed)
        shaken.queue, shaken.max_deliveries, shaken.lease_s = queue, 50, 0.3
        queue._inner._lease_s = 0.3  # type: ignore[attr-defined]
        assert await shaken.run() is Ending.COMPLETE
        assert min(queue.lost, queue.doubled, queue.released) > 0
        assert [entry.content_hash for entry in await shaken.entries()] == reference


async def test_the_window_is_part_of_the_result(tmp_path: Path) -> None:
    """R7: another W reads other versions, so a run must not be resumed under another one."""
    chains = []
    for window in (1, 4):
        launch = local_launch(tmp_path / str(window), window=window)
        await launch.run()
        chains.append((await launch.entries())[-1].content_hash)
    assert chains[0] != chains[1]


async def test_every_episode_read_the_version_its_position_names(tmp_path: Path) -> None:
    """R7: position t of an epoch that starts at s reads max(s, t-W+1), also under load."""
    launch = local_launch(tmp_path, window=5, workers=4, delay_s=0.01, epochs=2)
    await launch.run()
    read = [entry.read_version for entry in await launch.entries()]
    assert read == [max(t - t % SIZE, t - 4) for t in range(2 * SIZE)]
