"""The episode store: durable before acknowledged, whole rows only, and the first final attempt wins."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chime_dist.adapters.directory.durable_file import Disk
from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.episode_store import EpisodeStore
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.core.aggregate import counted_rows
from chime_dist.core.episode import Outcome, Usage
from chime_dist.errors import RunDirectoryError
from chime_dist.ports import RecordStore
from tests.adapters.traces import NOW, RUN, launch_in, rows, trace, unit


@pytest.fixture
def launch(tmp_path: Path) -> LaunchDirectory:
    return launch_in(tmp_path / "runs")


@pytest.fixture
async def store(launch: LaunchDirectory) -> AsyncIterator[EpisodeStore]:
    opened = await EpisodeStore.open(launch, now=NOW)
    yield opened
    await opened.close()


async def test_a_written_trace_is_the_units_final_one_also_after_a_restart(launch: LaunchDirectory) -> None:
    first: RecordStore = await EpisodeStore.open(launch, now=NOW)
    written = trace(unit(12), "a")
    assert await first.final(unit(12)) is None
    assert await first.write(written) is written
    assert await first.final(unit(12)) == written
    assert isinstance(first, EpisodeStore)
    await first.close()
    second = await EpisodeStore.open(launch, now=NOW)
    assert await second.final(unit(12)) == written
    assert await second.settled(RUN) == {unit(12).key}
    assert await second.settled("another-run") == frozenset()
    await second.close()
    assert (launch.path / RUN / "trajectories" / "train" / "0" / "12.json.zst").is_file()


async def test_the_first_final_attempt_wins_and_the_loser_leaves_no_row(
    launch: LaunchDirectory, store: EpisodeStore
) -> None:
    """D2, D10: two owners of one unit finish; both are told the same trace."""
    winner = trace(unit(3), "winner")
    await store.write(winner)
    assert await store.write(trace(unit(3), "loser", outcome=Outcome.FAILURE)) == winner
    assert await store.write(trace(unit(3), "late", outcome=Outcome.INFRA, final=False)) == winner
    assert await store.write(winner) == winner
    assert rows(launch) == ["winner"]


async def test_an_infra_attempt_is_history_and_the_unit_stays_owed(
    launch: LaunchDirectory, store: EpisodeStore
) -> None:
    """H3: attempts are kept as history, and an errored row never counts as done."""
    failed = trace(unit(1), "a", outcome=Outcome.INFRA, final=False, detail="503 from the backbone")
    assert await store.write(failed) is failed
    assert await store.write(failed) is failed
    assert await store.final(unit(1)) is None
    await store.write(trace(unit(1), "b", delivery=2))
    assert rows(launch) == ["a", "b"]
    archive = EpisodeArchive(launch)
    (known,) = archive.failures(RUN)
    assert known.record == failed.record
    assert [step.index for step in known.last_steps] == [2, 3, 4]
    assert list(archive.finals(RUN)) == [unit(1).key]


async def test_a_row_of_another_config_is_refused(store: EpisodeStore) -> None:
    await store.write(trace(unit(1, "eval", version=4), "a"))
    with pytest.raises(RunDirectoryError, match="belongs to another config"):
        await store.final(unit(1, "eval", version=4).model_copy(update={"task": "other"}))


async def test_eval_units_of_different_checkpoints_are_different_units(
    launch: LaunchDirectory, store: EpisodeStore
) -> None:
    for version in (4, 8):
        await store.write(trace(unit(1, "eval", version=version), f"v{version}"))
    archive = EpisodeArchive(launch)
    assert {record.attempt for record in archive.finals(RUN).values()} == {"v4", "v8"}
    stored = archive.trace(unit(1, "eval", version=8))
    assert stored is not None
    assert stored.record.attempt == "v8"
    with pytest.raises(RunDirectoryError, match="evaluated at versions 4, 8"):
        archive.trace_at(RUN, "eval", 1)


class _GatedDisk(Disk):
    """Holds its first write until told to go on, and notes what happens to which file."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.order: list[str] = []
        self._names: dict[int, str] = {}

    def open(self, path: Path, flags: int) -> int:
        descriptor = super().open(path, flags)
        self._names[descriptor] = path.name
        return descriptor

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        self.reached.set()
        assert self.go_on.wait(timeout=30)
        self.order.append(f"write {self._names[descriptor]}")
        return super().write(descriptor, data, offset)

    def fsync(self, descriptor: int) -> None:
        super().fsync(descriptor)
        self.order.append(f"fsync {self._names[descriptor]}")

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self.order.append(f"replace {target.name}")


async def test_nothing_is_acknowledged_before_trajectory_and_row_are_on_stable_storage(
    launch: LaunchDirectory,
) -> None:
    """C8: traces are on disk before completion is reported."""
    disk = _GatedDisk()
    disk.go_on.set()
    store = await EpisodeStore.open(launch, now=NOW, disk=disk)
    await store.write(trace(unit(0), "a"))
    assert disk.order[-6:] == [
        "write .0.json.zst.tmp",
        "fsync .0.json.zst.tmp",
        "replace 0.json.zst",
        "fsync 0",
        "write episodes.jsonl",
        "fsync episodes.jsonl",
    ]
    await store.close()


async def test_a_hundred_concurrent_writes_share_their_fsyncs_and_each_unit_has_one_row(
    launch: LaunchDirectory,
) -> None:
    disk = _GatedDisk()
    store = await EpisodeStore.open(launch, now=NOW, disk=disk)
    first = asyncio.create_task(store.write(trace(unit(0), "first")))
    await asyncio.to_thread(disk.reached.wait, 30)
    rest = [asyncio.create_task(store.write(trace(unit(i % 50), f"{i}"))) for i in range(100)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in [first, *rest])
    disk.go_on.set()
    stored = await asyncio.gather(first, *rest)
    await store.close()
    # One batch held the gate, everything that waited for it was the second.
    assert disk.order.count("fsync episodes.jsonl") == 2
    assert sorted(rows(launch), key=lambda a: -1 if a == "first" else int(a)) == [
        "first",
        *(str(i) for i in range(1, 50)),
    ]
    assert all(answer.record.attempt == stored[1 + i % 50].record.attempt for i, answer in enumerate(stored[1:]))


async def test_a_cancelled_write_disturbs_no_other(launch: LaunchDirectory) -> None:
    disk = _GatedDisk()
    store = await EpisodeStore.open(launch, now=NOW, disk=disk)
    tasks = [asyncio.create_task(store.write(trace(unit(i), f"{i}"))) for i in range(3)]
    await asyncio.to_thread(disk.reached.wait, 30)
    late = [asyncio.create_task(store.write(trace(unit(i), f"{i}"))) for i in (3, 4)]
    await asyncio.sleep(0)
    late[0].cancel()
    await asyncio.sleep(0)
    disk.go_on.set()
    answers = await asyncio.gather(*tasks, *late, return_exceptions=True)
    await store.close()
    assert isinstance(answers[3], asyncio.CancelledError)
    assert sorted(rows(launch)) == ["0", "1", "2", "4"]


async def test_writes_that_wait_when_the_store_closes_are_finished_and_later_ones_refused(
    launch: LaunchDirectory,
) -> None:
    """H9: finished rows are flushed."""
    store = await EpisodeStore.open(launch, now=NOW)
    pending = [asyncio.create_task(store.write(trace(unit(i), f"{i}"))) for i in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert len(await asyncio.gather(*pending)) == 20
    with pytest.raises(RunDirectoryError, match="closed"):
        await store.write(trace(unit(99), "late"))
    await store.close()
    assert len(rows(launch)) == 20


async def test_two_stores_of_one_launch_are_refused(launch: LaunchDirectory, store: EpisodeStore) -> None:
    with pytest.raises(RunDirectoryError, match="records lock is held by process"):
        await EpisodeStore.open(launch, now=NOW)


async def test_a_trace_that_is_no_json_fails_alone(launch: LaunchDirectory, store: EpisodeStore) -> None:
    bad = trace(unit(1), "bad").model_copy(update={"gate": {"raw": object()}})
    good = trace(unit(2), "good")
    results = await asyncio.gather(store.write(bad), store.write(good), return_exceptions=True)
    assert isinstance(results[0], RunDirectoryError)
    assert "cannot be stored as JSON" in str(results[0])
    assert results[1] is good
    assert rows(launch) == ["good"]


async def test_half_an_emoji_in_a_model_reply_is_stored_and_read_back(store: EpisodeStore) -> None:
    odd = trace(unit(1), "a", detail="cut here: \ud83d")
    odd = odd.model_copy(update={"gate": {"raw": "\ud83d"}})
    await store.write(odd)
    assert await store.final(unit(1)) == odd
    assert unit(1).key in await store.settled(RUN)


async def test_totals_count_units_once_and_attempts_all(launch: LaunchDirectory, store: EpisodeStore) -> None:
    """G3: infra stays visible, next to what was scored and what is still owed."""
    await store.write(trace(unit(0), "a"))
    await store.write(trace(unit(1), "b", outcome=Outcome.INFRA, final=False))
    await store.write(trace(unit(1), "c", outcome=Outcome.FAILURE))
    await store.write(trace(unit(2), "d", outcome=Outcome.INFRA))
    await store.write(trace(unit(0, "eval", version=3), "e", outcome=Outcome.INFRA, final=False))
    assert await store.tally(RUN) == {"success": 1, "failure": 1, "infra": 1, "gate_error": 0}
    assert await store.tally("never-started") == {"success": 0, "failure": 0, "infra": 0, "gate_error": 0}
    totals = EpisodeArchive(launch).totals(RUN)
    train = totals["train"]
    assert (train.success, train.failure, train.infra, train.unsettled, train.attempts) == (1, 1, 1, 0, 4)
    assert train.usage == {"planner": Usage(calls=4, requests=8, prompt_tokens=400)}
    assert train.duration_s == 6.0
    assert (totals["eval"].unsettled, totals["eval"].attempts) == (1, 1)


async def test_a_tally_is_rebuilt_from_the_rows(launch: LaunchDirectory) -> None:
    """R21: episodes without a gate decision are counted."""
    for _ in range(2):
        store = await EpisodeStore.open(launch, now=NOW)
        good = trace(unit(0), "a")
        record = good.record.model_copy(update={"unit": unit(1), "gate_status": "gate_error"})
        await store.write(good)
        await store.write(good.model_copy(update={"record": record}))
        assert await store.tally(RUN) == {"success": 2, "failure": 0, "infra": 0, "gate_error": 1}
        await store.close()


async def test_reading_works_while_the_writer_holds_the_launch(
    launch: LaunchDirectory, store: EpisodeStore
) -> None:
    await store.write(trace(unit(7), "a"))
    archive = EpisodeArchive(LaunchDirectory.open(launch.path))
    stored = archive.trace_at(RUN, "train", 7)
    assert stored is not None
    assert stored.proposal is not None
    assert archive.trace_at(RUN, "train", 8) is None
    assert list(archive.records("never-started")) == []
    assert list(archive.failures("never-started")) == []
    assert archive.totals("never-started") == {}


async def test_the_journal_decides_which_attempt_of_a_committed_position_counts(tmp_path: Path) -> None:
    """D9: 0 was committed as it was stored; 1 was stored before, and 2 after it was committed empty; 3 is not
    committed. Whoever reads, while the store is open or later, sees 0 and 3."""
    launch = launch_in(tmp_path)
    folder = launch.run(RUN)
    store = await EpisodeStore.open(launch, now=NOW)
    lost = [trace(unit(n), f"lost-{n}", outcome=Outcome.INFRA, final=False) for n in (1, 2)]
    for one in [*lost, trace(unit(0), "a0"), trace(unit(1), "late-1", outcome=Outcome.FAILURE)]:
        await store.write(one)
    with folder.journal.open("ab") as journal:
        journal.write(b"".join(b'{"attempt":"%s",}\n' % name for name in (b"a0", b"lost-1", b"lost-2")))
    for one in (trace(unit(2), "late-2"), trace(unit(3), "a3")):
        await store.write(one)
    counting = {unit(0).key, unit(3).key}
    tally = {"success": 2, "failure": 0, "infra": 0, "gate_error": 0}
    for opened in (True, False):
        if not opened:
            store = await EpisodeStore.open(launch, now=NOW)
        assert await store.settled(RUN) == counting
        assert await store.tally(RUN) == tally
        assert [await store.final(unit(n)) is not None for n in range(4)] == [True, False, False, True]
        await store.close()
    archive = EpisodeArchive(launch)
    assert archive.finals(RUN).keys() == counting
    assert archive.ahead(RUN) == {3: "a3"}
    assert archive.trace(unit(2)) is None
    totals = archive.totals(RUN)["train"]
    assert (totals.success, totals.failure, totals.unsettled, totals.attempts) == (2, 0, 2, 6)
    counted = counted_rows(archive.records(RUN), archive.attempts(RUN))
    assert [row.attempt for row in counted.values()] == ["lost-1", "lost-2", "a0", "a3"]
