"""Banks of a given size, and the proposals that make them grow, with vectors as a large embedder gives them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np

from chime_dist.adapters.embedding.hashing import HashingEmbedder
from chime_dist.core.bank import Event, ItemId
from chime_dist.core.episode import Outcome, Proposal
from chime_dist.core.evidence import EvolutionContent, ExperienceVectors, Read
from chime_dist.core.journal import GENESIS, JournalEntry, content_hash
from chime_dist.core.memory import EXPERIENCE_VECTOR, SCENARIO_VECTOR, MemoryPayload, Stage
from chime_dist.core.vector import Vector
from chime_dist.core.verdict import Diagnosis, Label, NewExperience
from chime_dist.engine.bank_owner import BankOwner
from chime_dist.engine.roles import RunModels
from chime_dist.ports import Journal, Queue
from chime_dist.wiring import services
from chime_dist.wiring.plans import plan_runs
from tests.bench.rig import sweep_of

DIM = 1024
_WORDS = "confirm the booking with the customer before any payment is taken, then write the reference down"


def vector_of(*key: int) -> Vector:
    """Unit vectors around a common direction: any two have a cosine of about 0.6, so all are candidates (R12)
    and none is merged or refused as known (R30, R32)."""
    generator = np.random.default_rng(key)
    values = np.ones(DIM) * np.sqrt(0.6 / DIM) + generator.standard_normal(DIM) * np.sqrt(0.4 / DIM)
    return Vector.of(values / np.linalg.norm(values))


def vectors_of(position: int, stage: Stage) -> ExperienceVectors:
    """Of the memory that ``position`` inserts into ``stage``."""
    k = list(Stage).index(stage)
    return ExperienceVectors(c=vector_of(position, k, 0), e=vector_of(position, k, 1))


def proposals(run_id: str, start: int, count: int) -> Iterator[Proposal]:
    """Proposals of ``count`` positions from ``start`` on: each moves six memories and inserts two."""
    for position in range(start, start + count):
        experience = {
            stage: NewExperience(scenario=f"{_WORDS} {position}", experience=_WORDS, actionable=True)
            for stage in Stage
        }
        diagnosis = Diagnosis(label=Label.BOTH, confidence=0.8, experience=experience)
        content = EvolutionContent(
            reads=tuple(
                Read(id=str(ItemId(read, k)), stage=stage, item_version=0)
                for read in range(max(0, position - 20), max(0, position - 17))
                for k, stage in enumerate(Stage)
            ),
            vectors={stage: vectors_of(position, stage) for stage in Stage},
        )
        yield Proposal(
            run_id=run_id,
            position=position,
            task=f"task-{position}",
            attempt=f"{position:032x}",
            read_version=max(0, position - 15),
            outcome=Outcome.SUCCESS,
            diagnosis=diagnosis.model_dump(mode="json"),
            content=content.model_dump(mode="json"),
        )


async def fill(journal: Journal, run_id: str, items: int) -> int:
    """Journal the inserts of ``items`` memories, one per stage and position; returns the head."""
    fence = await journal.take_fence(run_id)
    link = GENESIS
    for position in range(items // 2):
        entry = _entry(run_id, fence, position, link)
        link = entry.content_hash
        await journal.append(run_id, fence, position, entry.line())
    return items // 2


def _entry(run_id: str, fence: int, position: int, link: str) -> JournalEntry:
    events = tuple(_insert(position, k, stage) for k, stage in enumerate(Stage))
    task, outcome = f"task-{position}", Outcome.SUCCESS
    return JournalEntry(
        position=position,
        task=task,
        outcome=outcome,
        diagnosis=None,
        events=events,
        content_hash=content_hash(
            link, position=position, task=task, outcome=outcome, diagnosis=None, events=events
        ),
        run_id=run_id,
        fence=fence,
        attempt=f"{position:032x}",
        read_version=max(0, position - 15),
        committed_at=datetime.now(UTC).isoformat(),
    )


def _insert(position: int, k: int, stage: Stage) -> Event:
    payload = MemoryPayload(scenario=f"{_WORDS} {position}", experience=_WORDS)
    vectors = vectors_of(position, stage)
    return Event(
        op="put",
        kind="insert",
        collection=stage.value,
        id=str(ItemId(position, k)),
        payload=payload.to_json(),
        vectors={SCENARIO_VECTOR: vectors.c, EXPERIENCE_VECTOR: vectors.e},
    )


class OneBank:
    """The owner of one CHIME run's bank, as a launch wires it."""

    def __init__(self, folder: Path, queue: Queue, journal: Journal, store: Literal["memory", "edge"]) -> None:
        sweep = sweep_of(folder, tasks=24, dim=DIM, adapters="local" if store == "memory" else "redis + edge")
        (run,) = plan_runs(sweep)
        self.run_id = run.run_id
        spec = services.spec_of("bench", folder, folder / "state", (run,), sweep.cluster)
        embedder = HashingEmbedder(DIM)
        self.owner: BankOwner = services.bank_owner(
            spec, queue, journal, embedder.fingerprint, lambda _: RunModels({}, embedder)
        )

    async def commit_until(self, head: int) -> None:
        """Commit what lies in the queue until the bank is at version ``head``."""
        committing = asyncio.create_task(self.owner.run())
        reading = asyncio.create_task(self.owner.export(self.run_id, head))
        try:
            await asyncio.wait([committing, reading], return_when=asyncio.FIRST_COMPLETED)
            if committing.done():
                committing.result()
        finally:
            for task in (committing, reading):
                task.cancel()
            await asyncio.gather(committing, reading, return_exceptions=True)
