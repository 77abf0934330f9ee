"""The heart: what is committed depends on the stream and the window, never on workers, delays or redelivery."""

from __future__ import annotations

from pathlib import Path

from chime_dist.adapters.change_feed import ChangeFeed
from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.file_journal import FileJournal
from chime_dist.adapters.local_queue import LocalQueue
from chime_dist.adapters.memory_store import MemoryStore
from chime_dist.core.bank import BankState, ItemId, apply
from chime_dist.core.credit import accepted
from chime_dist.core.episode import Outcome, Proposal, Recall, Role
from chime_dist.core.evidence import EvolutionInput, ExperienceVectors, reads_of
from chime_dist.core.evolution import finish, prepare
from chime_dist.core.journal import GENESIS, JournalEntry, content_hash
from chime_dist.core.memory import Stage
from chime_dist.core.model_call import Turn
from chime_dist.core.retrieval import rerank
from chime_dist.core.vector import similarities
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


async def sequential(benchmark: ToyBenchmark, epochs: int = 1) -> list[JournalEntry]:
    """The paper's loop (S0 Eq. 4), one task after the other, with nothing of the engine in it."""
    models = models_on(JitteryBackbone(0.0, 0))
    state, link, entries = BankState(), GENESIS, list[JournalEntry]()
    ids = [task.id for task in benchmark.tasks()] * epochs
    for position, task in enumerate(ids):
        environment = await benchmark.open(task)
        view = environment.view
        shown = view.model_dump(mode="json")

        async def recall(stage: Stage, query: str, state: BankState = state) -> Recall:
            [vector] = await EMBEDDER.embed([query], "query")
            matrix = state.matrix(stage, "c")
            sims = similarities(vector, matrix.rows)
            hits = [Hit(record=state.records[i], sim=s) for i, s in zip(matrix.ids, sims, strict=True) if s >= 0.3]
            hits.sort(key=lambda hit: (-hit.sim, ItemId.parse(hit.record.id)))
            return rerank(hits[:20], OPTIONS.retrieval, stage, query, state.version)

        async def ask(
            role: Role, template: str, view: object = view, shown: object = shown, **more: object
        ) -> str:
            tools = more.pop("tools", ())
            schema = more.pop("schema", None)
            turn = Turn.model_validate(
                {
                    "template": f"chime/{template}",
                    "variables": {"view": shown, "list_tools": role is not Role.EXECUTOR, **more},
                    "conversation": view.messages,  # type: ignore[attr-defined]
                    "tools": tools,
                    "response_schema": schema,
                    "schema_name": "diagnosis" if role is Role.GATE else "action",
                }
            )
            reply = await models.turn(role, turn, "sequential", 60.0)
            if role is Role.EXECUTOR:
                await environment.act(Action(text=reply.text, tool_calls=reply.tool_calls))  # noqa: B023
                how = reply.tool_calls[0].arguments
                steps.append(
                    {"kind": "action", "content": reply.text, "calls": [{"name": "act", "arguments": how}]}
                )  # noqa: B023
            return reply.text

        steps: list[dict[str, object]] = []
        plan_memories = await recall(Stage.PLAN, view.request)
        plan = (await ask(Role.PLANNER, "plan", memories=_texts(plan_memories))).strip()
        exec_memories = await recall(Stage.EXEC, f"{view.request}\n\n{plan}")
        await ask(Role.EXECUTOR, "execute", plan=plan, memories=_texts(exec_memories), tools=view.tools)
        outcome = Outcome.SUCCESS if await environment.score() else Outcome.FAILURE
        memories = [*plan_memories.selected, *exec_memories.selected]
        trace = [
            {"index": 0, "kind": "plan", "content": plan, "data": {}},
            *(
                {"index": 1, "kind": s["kind"], "content": s["content"], "data": {"calls": s["calls"]}}
                for s in steps
            ),
        ]
        ids_shown = [memory.id for memory in memories]
        text = await ask(
            Role.GATE,
            "review",
            plan=plan,
            steps=trace,
            outcome=outcome.value,
            memories=[memory.model_dump(mode="json") for memory in memories],
            repair=None,
            schema=gate_schema(ids_shown, OPTIONS.gate),
        )
        diagnosis = parse_verdict(text, "stop", ids_shown).diagnosis
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
            turn = Turn(
                template="chime/merge",
                variables={
                    "scenario": request.scenario,
                    "old": request.experience,
                    "new": request.new.experience,
                    "new_scenario": request.new.scenario,
                    "rewrite_scenario": False,
                },
                response_schema={},
                schema_name="merge",
            )
            reply = await models.turn(Role.GATE, turn, "sequential", 60.0)
            combined = reply.text.removeprefix('{"experience": "').removesuffix('"}')
            [e] = await EMBEDDER.embed([combined], "document")
            merged.append(request.answered(combined, e, "llm"))
        events = finish(state, given, merged, OPTIONS.evolution) if merged else evolved.events
        proposal = Proposal(
            run_id=RUN,
            position=position,
            task=task,
            attempt="",
            read_version=position,
            outcome=outcome,
            diagnosis=diagnosis.model_dump(mode="json"),
        )
        link = content_hash(
            link, position=position, task=task, outcome=outcome, diagnosis=proposal.diagnosis, events=events
        )
        entry = JournalEntry(
            position=position,
            task=task,
            outcome=outcome,
            diagnosis=proposal.diagnosis,
            events=events,
            content_hash=link,
            run_id=RUN,
            fence=0,
            attempt="",
            read_version=position,
            committed_at="",
        )
        state = apply(state, entry)
        entries.append(entry)
    return entries


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
