"""Last stop: what may be relied on. Once, in order, by the owner alone, told for ever, taken up where it ended."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.episode_store import EpisodeStore
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.local.memory_store import MemoryStore
from chime_dist.adapters.local.queue import LocalQueue
from chime_dist.benchmarks.credit_world.benchmark import CreditWorld
from chime_dist.benchmarks.credit_world.environment import CreditEnvironment
from chime_dist.core.bank import as_of
from chime_dist.core.blame import blame_item
from chime_dist.core.episode import EpisodeTrace, Unit
from chime_dist.core.history import diff
from chime_dist.core.memory import Stage
from chime_dist.engine import bank_owner, driver
from chime_dist.engine.bank_owner import BankOwner
from chime_dist.engine.driver import Ending
from chime_dist.engine.lane import LaneServices
from chime_dist.engine.outage import Outages
from chime_dist.engine.roles import RunModels
from chime_dist.errors import BenchmarkError, ConfigError, FencedError, JournalError, RunDirectoryError
from chime_dist.methods.chime.method import Chime, ChimeOptions
from chime_dist.ports import Change, Completed
from chime_dist.wiring.fork import fork_run
from chime_dist.wiring.launch import Launch
from tests.spec.parts import RUN, Memory, PlacedEmbedder, touring, verdict
from tests.spec.sweeps import EVAL, SWEEP, TRAIN, journal_of, launched, records_of, resumed, runs_of


async def test_a_launch_that_is_told_of_nothing_looks_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D10: changes are hints. Where all are lost, what is completed and committed is found all the same."""

    async def silent(_: LocalQueue, since: str, timeout_s: float) -> tuple[str, list[Change]]:
        await asyncio.sleep(min(timeout_s, 0.001))
        return since, []

    text = SWEEP.replace("[chime, no_plan]", "[chime]").replace("[0, 1, 2]", "[0]")
    told = await launched(tmp_path / "told", text)
    monkeypatch.setattr(LocalQueue, "changes", silent)
    monkeypatch.setattr(driver, "RECHECK_S", 0.001)
    monkeypatch.setattr(bank_owner, "CHANGE_WAIT_S", 0.001)
    untold = await asyncio.wait_for(launched(tmp_path / "untold", text), 60.0)
    [run] = runs_of(told, "chime")
    assert journal_of(untold, run)[-1].content_hash == journal_of(told, run)[-1].content_hash
    assert len(records_of(untold, run, "eval")) == EVAL


async def test_an_episode_that_is_finished_twice_counts_once(tmp_path: Path) -> None:
    """D2: a worker that lost its lease and finishes late completes nothing; one proposal, one commit."""
    async with touring(tmp_path, [Memory(Stage.PLAN, 0.9)]) as tour:
        unit = Unit(run_id=RUN, phase="train", epoch=0, position=1, task="parcel-1", read_version=1)
        await tour.queue.admit(unit)
        [stale] = await tour.queue.claim("worker-0", 1, 0.0)
        assert await tour.queue.release(stale)
        [lease] = await tour.queue.claim("worker-1", 1, 0.0)
        ours, theirs = await tour.runner.run(unit, 2), await tour.runner.run(unit, 1)
        assert await tour.queue.complete(stale, theirs.proposal) is Completed.LOST
        assert await tour.queue.complete(lease, ours.proposal) is Completed.STORED
        assert await tour.queue.complete(lease, ours.proposal) is Completed.ALREADY_SAME
        await tour.owner.export(RUN, 2)
        entries, memories = await tour.entries(), await tour.memories()
    assert [entry.attempt for entry in entries[1:]] == [ours.record.attempt]
    assert memories["0-0"].count == 1


async def test_an_owner_that_was_replaced_can_write_nothing(tmp_path: Path) -> None:
    """C1, C2: a new owner takes a new fence and starts from the journal; the old one, which may still run
    somewhere, is told at its next commit and stops."""
    async with touring(tmp_path, [Memory(Stage.PLAN, 0.9)]) as tour:
        await tour.learn(verdict=verdict("planning", 0.8))
        embedder = PlacedEmbedder()
        models = RunModels({}, embedder)
        lanes = {RUN: LaneServices(Chime(ChimeOptions()), models, embedder.fingerprint, 1, 3, 60.0)}
        clock = SystemClock()
        heir = BankOwner(
            tour.directory.id, lanes, tour.queue, tour.journal, MemoryStore(), clock, Outages(clock, 60.0)
        )
        assert await heir.open() == {RUN: 2}
        assert await heir.digest(RUN) == await tour.owner.digest(RUN)
        before = await tour.journal.read(RUN)

        stopped = asyncio.create_task(tour.owner.run())
        unit = Unit(run_id=RUN, phase="train", epoch=0, position=2, task="parcel-2", read_version=2)
        await tour.queue.admit(unit)
        [lease] = await tour.queue.claim("worker-0", 1, 0.0)
        trace = await tour.runner.run(unit, 1)
        await tour.queue.complete(lease, trace.proposal)
        with pytest.raises(FencedError, match="a newer owner than fence"):
            await asyncio.wait_for(stopped, 30.0)
        assert await tour.journal.read(RUN) == before
        await heir.close()


async def test_every_version_can_be_had_again_and_two_can_be_compared(tmp_path: Path) -> None:
    """R34: the bank at any version, and what was done between two of them and by which position."""
    async with touring(tmp_path, [Memory(Stage.PLAN, 0.9)]) as tour:
        seen = [(await tour.bank()).digest()]
        for confidence in (0.8, 0.6, 0.7):
            await tour.learn(verdict=verdict("planning", confidence))
            seen.append((await tour.bank()).digest())
        assert [(await tour.owner.export(RUN, version)).digest() for version in (1, 2, 3, 4)] == seen
        entries = await tour.entries()
    assert [as_of(entries, version).digest() for version in (1, 2, 3, 4)] == seen
    [change] = diff(entries, 1, 4).changes
    assert [touch.position for touch in change.by] == [1, 2, 3]


async def test_a_memory_can_name_its_author_its_readers_and_every_hand_that_moved_it(tmp_path: Path) -> None:
    """R17, R34: blame goes from a memory to the episode that wrote it and to those that it influenced."""
    lesson = ("deliveries with a strict deadline", "leave out noon itself")
    async with touring(tmp_path, [Memory(Stage.PLAN, 0.9)]) as tour:
        traces = [
            await tour.learn(success=False, verdict=verdict("planning", plan=lesson)),
            await tour.learn(verdict=verdict("none", misleading=["0-0"])),
        ]
        entries = await tour.entries()
    seed, written = (blame_item(item, entries, traces) for item in ("0-0", "1-0"))
    assert [event.position for event in written.events] == [1]
    assert [event.position for event in seed.events] == [0, 1, 2]
    assert {reading.episode for reading in seed.readings} >= {"train:1", "train:2"}


async def test_redelivery_changes_no_order_and_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H4, D11: a task of one ordering fails for reasons of ours and is delivered again; every content chain is
    that of an undisturbed launch beside it, whose banks are no part of it."""
    calm = await launched(tmp_path)
    failed: set[str] = set()
    opened = CreditWorld.open

    async def unlucky(world: CreditWorld, task: str) -> CreditEnvironment:
        if task.endswith("3") and task not in failed:
            failed.add(task)
            raise BenchmarkError("the simulator was restarted")
        return await opened(world, task)

    monkeypatch.setattr(CreditWorld, "open", unlucky)
    shaken = await launched(tmp_path)
    assert failed
    deliveries = [r.delivery for run in runs_of(shaken, "chime") for r in records_of(shaken, run, "train")]
    assert max(deliveries) == 2
    for run in runs_of(calm, "chime"):
        chains = [[entry.content_hash for entry in journal_of(launch, run)] for launch in (calm, shaken)]
        assert chains[0] == chains[1]
    assert calm.id != shaken.id


async def test_a_resume_runs_what_is_owed_and_keeps_what_is_there(tmp_path: Path) -> None:
    """H3: two eval episodes of a finished launch turn out infra; exactly those are run again, and nothing that was
    kept is written twice."""
    launch = await launched(tmp_path)
    run = runs_of(launch, "no_plan")[0]
    episodes = launch.run(run).episodes
    rows = [json.loads(line) for line in episodes.read_text().splitlines()]
    *kept, first, second = [row for row in rows if row["unit"]["phase"] == "eval"]
    gone = {row["unit"]["position"] for row in (first, second)}
    train = [row for row in rows if row["unit"]["phase"] == "train"]
    infra = [
        {**row, "final": False, "outcome": "infra", "end_reason": "benchmark", "attempt": f"lost-{n}"}
        for n, row in enumerate((first, second))
    ]
    episodes.write_text("".join(json.dumps(row) + "\n" for row in [*train, *kept, *infra]))
    await resumed(launch)
    again = [json.loads(line) for line in episodes.read_text().splitlines()]
    new = again[len(train) + len(kept) + len(infra) :]
    assert {row["unit"]["position"] for row in new} == gone
    assert all(row["unit"]["phase"] == "eval" and row["final"] for row in new)
    assert len(EpisodeArchive(launch).finals(run)) == len(rows)
    assert len(journal_of(launch, run)) == TRAIN


async def test_an_evaluation_is_not_passed_on_to_another_bank(tmp_path: Path) -> None:
    """R5: the digest that was noted stays the proof; a resume over another bank refuses and leaves it."""
    launch = await launched(tmp_path)
    folder = launch.run(runs_of(launch, "chime")[0])
    noted = folder.evaluation.read_text()
    digest = json.loads(noted)["digest_after_eval"]
    folder.evaluation.write_text(of_another := noted.replace(digest, "0" * 64))
    with pytest.raises(JournalError, match=f"had the digest 0+, and the one of .* has {digest}"):
        await resumed(launch)
    assert folder.evaluation.read_text() == of_another


async def test_results_that_were_lost_are_not_taken_for_results_that_never_were(tmp_path: Path) -> None:
    """H1: a row of a committed position is gone. Nothing runs it again, so a resume refuses before the rest is
    paid for; with a fork in front of the loss it goes on, and the run that was left stays as it is."""
    launch = await launched(tmp_path)
    run = runs_of(launch, "chime")[0]
    episodes = launch.run(run).episodes
    rows = episodes.read_text().splitlines(keepends=True)
    left = [row for row in rows if json.loads(row)["unit"]["phase"] == "train" and not _is_train(row, 3)]
    episodes.write_text("".join(left))
    said = f"has a final row of {2 * TRAIN - 1}; the first without one is 3.*--fork-at 3"
    with pytest.raises(RunDirectoryError, match=said):
        await resumed(launch)
    fork = await asyncio.to_thread(fork_run, launch, run, 3, now=datetime.now(UTC))
    await resumed(launch, Ending.INCOMPLETE)
    status = launch.status()
    assert status is not None
    assert "the first without one is 3" in status.reason
    assert len(records_of(launch, fork, "train")) == 2 * TRAIN
    assert episodes.read_text() == "".join(left), "evaluations of a run that can never be complete were paid for"


def _is_train(row: str, position: int) -> bool:
    unit = json.loads(row)["unit"]
    return (unit["phase"], unit["position"]) == ("train", position)


async def test_a_launch_has_one_driver_and_a_results_setting_has_one_value(tmp_path: Path) -> None:
    """C3: a second driver is told who holds the launch; a resume that would change results is refused by key."""
    launch = await launched(tmp_path)
    with launch.driver_lock() as lock:
        lock.acquire(datetime.now(UTC))
        with pytest.raises(RunDirectoryError, match="held by process"):
            await resumed(LaunchDirectory.open(launch.path))
    with pytest.raises(ConfigError, match=r"protocol\.window: 4 -> 8"):
        Launch.resume(launch.path, ["protocol.window=8"])


async def test_a_full_disk_stops_the_work_and_costs_nothing_that_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H8: the write that fails is not acknowledged, no worker claims on, and the launch ends with its error.
    With room again, a resume ends as if the disk had never been full."""
    calm = await launched(tmp_path / "calm")
    write, taken, refused = EpisodeStore.write, 20, 0

    async def full(store: EpisodeStore, trace: EpisodeTrace) -> EpisodeTrace:
        nonlocal taken, refused
        taken -= 1
        if taken < 0:
            refused += 1
            raise RunDirectoryError("episodes.jsonl: no space left on device")
        return await write(store, trace)

    with monkeypatch.context() as patch:
        patch.setattr(EpisodeStore, "write", full)
        with pytest.raises(RunDirectoryError, match="no space left"):
            await launched(tmp_path / "full")
    assert 1 <= refused <= 8, "the slots that were open, and nothing after them"
    [manifest] = (tmp_path / "full").rglob("sweep.json")
    launch = LaunchDirectory.open(manifest.parent)
    status = launch.status()
    assert status is not None
    assert (status.state, "no space left" in status.reason) == ("incomplete", True)
    await resumed(launch)
    for run in runs_of(calm, "chime"):
        chains = [[entry.content_hash for entry in journal_of(each, run)] for each in (calm, launch)]
        assert chains[0] == chains[1]
    finals, expected = EpisodeArchive(launch).finals, EpisodeArchive(calm).finals
    assert all(finals(run).keys() == expected(run).keys() for run in calm.manifest.runs)
