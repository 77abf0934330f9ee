"""The episode store on disks that fill up, processes that are killed, and folders that were damaged."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from chime_dist.adapters.directory.durable_file import Disk
from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.episode_store import EpisodeStore
from chime_dist.adapters.directory.launch_directory import LaunchDirectory, list_launches
from chime_dist.adapters.directory.run_writer import RunWriter
from chime_dist.core.episode import Outcome
from chime_dist.errors import RunDirectoryError
from tests.adapters.faulty_disks import CountingDisk, episodes
from tests.adapters.traces import NOW, RUN, launch_in, rows, trace, unit


@pytest.fixture
def launch(tmp_path: Path) -> LaunchDirectory:
    return launch_in(tmp_path / "runs")


def write_rows(launch: LaunchDirectory) -> bytes:
    writer = RunWriter(launch.run(RUN), Disk())
    writer.write([trace(unit(i), f"{i}", detail="记忆") for i in range(3)])
    writer.close()
    return launch.run(RUN).episodes.read_bytes()


def test_a_row_torn_at_any_byte_is_cut_and_the_rows_before_it_stand(launch: LaunchDirectory) -> None:
    """H8: the torn tail is cut and counted, the unit is owed again, and the next row does not fuse with it."""
    whole = write_rows(launch)
    start = whole[:-1].rindex(b"\n") + 1
    for cut in range(start, len(whole)):
        launch.run(RUN).episodes.write_bytes(whole[:cut])
        assert len(rows(launch)) == 2
        writer = RunWriter(launch.run(RUN), Disk())
        assert writer.torn == cut - start
        assert writer.final(unit(1)) is not None
        assert writer.final(unit(2)) is None
        again = trace(unit(2), "again")
        assert writer.write([again]) == [again]
        writer.close()
        assert rows(launch) == ["0", "1", "again"]


async def test_a_cut_row_is_reported(launch: LaunchDirectory) -> None:
    whole = write_rows(launch)
    launch.run(RUN).episodes.write_bytes(whole[:-10])
    with capture_logs() as logs:
        await (await EpisodeStore.open(launch, now=NOW)).close()
    (event,) = [log for log in logs if log["event"] == "run_directory.torn_row_cut"]
    assert event["bytes"] == len(whole) - 10 - (whole[:-1].rindex(b"\n") + 1)


def test_two_different_final_rows_of_a_unit_are_refused_and_equal_ones_count_once(launch: LaunchDirectory) -> None:
    """H3: duplicates are an error unless identical."""
    whole = write_rows(launch)
    last = whole[whole[:-1].rindex(b"\n") + 1 :]
    file = launch.run(RUN).episodes
    file.write_bytes(whole + last)
    assert len(EpisodeArchive(launch).finals(RUN)) == 3
    assert EpisodeArchive(launch).totals(RUN)["train"].success == 3
    RunWriter(launch.run(RUN), Disk()).close()
    file.write_bytes(whole + last.replace(b'"success"', b'"failure"'))
    with pytest.raises(RunDirectoryError, match="line 4: a second, different final row"):
        RunWriter(launch.run(RUN), Disk())
    with pytest.raises(RunDirectoryError, match="exactly one"):
        EpisodeArchive(launch).finals(RUN)


@pytest.mark.parametrize("damage", [b"not json\n", b'{"unit": {}}\n', b"[1]\n", b"\n"])
def test_a_damaged_row_in_the_middle_is_named_and_never_skipped(launch: LaunchDirectory, damage: bytes) -> None:
    whole = write_rows(launch)
    first = whole.index(b"\n") + 1
    launch.run(RUN).episodes.write_bytes(whole[:first] + damage + whole[first:])
    with pytest.raises(RunDirectoryError, match="line 2 is no EpisodeRow"):
        RunWriter(launch.run(RUN), Disk())


def test_a_row_of_another_run_is_refused(launch: LaunchDirectory) -> None:
    whole = write_rows(launch)
    launch.run(RUN).episodes.write_bytes(whole.replace(RUN.encode(), b"other-run"))
    with pytest.raises(RunDirectoryError, match="a row of run 'other-run'"):
        RunWriter(launch.run(RUN), Disk())


async def test_a_damaged_missing_or_foreign_trajectory_is_named(launch: LaunchDirectory) -> None:
    """G7: a cut file costs that unit only."""
    store = await EpisodeStore.open(launch, now=NOW)
    for i in range(3):
        await store.write(trace(unit(i), f"{i}"))
    files = [launch.run(RUN).trajectory(unit(i)) for i in range(3)]
    content = files[0].read_bytes()
    files[0].write_bytes(content[: len(content) // 2])
    way_out = (
        rf": restore it from a backup, or fork the run there with ctl {launch.path} requeue {RUN} --fork-at 0 "
    )
    with pytest.raises(RunDirectoryError, match=rf"is damaged .*{way_out}"):
        await store.final(unit(0))
    files[0].write_bytes(files[2].read_bytes())
    with pytest.raises(RunDirectoryError, match="does not belong to the final row"):
        await store.final(unit(0))
    files[0].unlink()
    with pytest.raises(RunDirectoryError, match=f"is missing .*{way_out}"):
        await store.final(unit(0))
    assert await store.final(unit(1)) is not None
    await store.close()


async def test_a_disk_that_fails_at_any_system_call_leaves_whole_rows_or_none(tmp_path: Path) -> None:
    """H8: a failed write is no acknowledgement and leaves no byte; a disk that works again is used again."""
    faults = 0
    for step in range(1000):
        launch = launch_in(tmp_path, f"at-{step}")
        disk = CountingDisk()
        store = await EpisodeStore.open(launch, now=NOW, disk=disk)
        disk.at = step
        refused = 0
        for episode in episodes("first"):
            try:
                await store.write(episode)
            except RunDirectoryError:
                refused += 1
                written = launch.run(RUN).episodes
                assert not written.exists() or written.read_bytes().endswith(b"\n") or not written.read_bytes()
                assert not list(launch.path.rglob("*.tmp"))
                assert await store.write(episode) is episode
        await store.close()
        assert rows(launch) == ["first-a", "first-b", "first-c", "first-d"]
        archive = EpisodeArchive(launch)
        assert all(archive.trace(record.unit) is not None for record in archive.finals(RUN).values())
        assert refused <= 1
        if disk.calls <= step:
            break
        faults += refused
    assert faults > 20


async def test_a_full_disk_refuses_every_write_until_it_has_room(launch: LaunchDirectory) -> None:
    """H8: also when the cut back fails, and when rows go in by halves (short writes)."""

    class FullDisk(Disk):
        full = False

        def write(self, descriptor: int, data: memoryview, offset: int) -> int:
            if self.full:
                super().write(descriptor, data[:10], offset)
                raise OSError(28, "No space left on device")
            return super().write(descriptor, data[: max(1, len(data) // 2)], offset)

        def truncate(self, descriptor: int, size: int) -> None:
            if self.full:
                raise OSError(5, "Input/output error")
            super().truncate(descriptor, size)

    disk = FullDisk()
    store = await EpisodeStore.open(launch, now=NOW, disk=disk)
    history = [trace(unit(1), f"a{i}", outcome=Outcome.INFRA, final=False) for i in range(3)]
    await store.write(history[0])
    disk.full = True
    for episode in [*history[1:], trace(unit(1), "b")]:
        with pytest.raises(
            RunDirectoryError,
            match=r"cannot write, .*: (No space .*; free some space|Input.*; check the disk), then",
        ):
            await store.write(episode)
    assert rows(launch) == ["a0"]
    disk.full = False
    await store.write(trace(unit(1), "c"))
    await store.close()
    assert rows(launch) == ["a0", "c"]
    assert len(list(EpisodeArchive(launch).failures(RUN))) == 1


async def test_an_unexpected_error_reaches_every_waiting_writer_and_the_store_goes_on(
    launch: LaunchDirectory,
) -> None:
    class _BuggyDisk(Disk):
        buggy = True

        def fsync(self, descriptor: int) -> None:
            if self.buggy:
                raise ZeroDivisionError
            super().fsync(descriptor)

    disk = _BuggyDisk()
    store = await EpisodeStore.open(launch, now=NOW, disk=disk)
    writes = [store.write(trace(unit(i, run_id=f"run-{i % 2}"), f"{i}")) for i in range(4)]
    assert [type(r) for r in await asyncio.gather(*writes, return_exceptions=True)] == [ZeroDivisionError] * 4
    disk.buggy = False
    await store.write(trace(unit(0, run_id="run-0"), "again"))
    await store.close()
    assert rows(launch, "run-0") == ["again"]


FILE_SIZE_LIMIT = """
import asyncio, resource, sys
from pathlib import Path
from chime_dist.adapters.directory.launch_directory import LaunchDirectory, list_launches
from chime_dist.adapters.directory.episode_store import EpisodeStore
from chime_dist.errors import RunDirectoryError
from tests.adapters.traces import NOW, trace, unit

async def main():
    store = await EpisodeStore.open(LaunchDirectory.open(Path(sys.argv[1])), now=NOW)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
    position = 0
    try:
        while True:
            await store.write(trace(unit(position), str(position)))
            position += 1
    except RunDirectoryError:
        print(position)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await store.write(trace(unit(position), str(position)))
    await store.close()

asyncio.run(main())
"""


def test_a_real_file_size_limit_is_met_with_whole_rows(launch: LaunchDirectory) -> None:
    """H8: the kernel takes part of a row and refuses the rest."""
    child = subprocess.run(
        [sys.executable, "-c", FILE_SIZE_LIMIT, str(launch.path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    acknowledged = int(child.stdout.splitlines()[-1])
    assert 2 <= acknowledged <= 20
    assert rows(launch) == [str(i) for i in range(acknowledged + 1)]


async def test_a_writer_killed_at_any_system_call_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    """C8, D10, H8: kill -9 in front of every system call, with half of the bytes where it is a write."""
    command = [sys.executable, "-m", "tests.adapters.faulty_disks", str(tmp_path)]
    child = await asyncio.create_subprocess_exec(*command)
    assert await child.wait() == 0
    launches = [LaunchDirectory.open(summary.path) for summary in list_launches(tmp_path)]
    assert len(launches) > 20
    for launch in launches:
        file = launch.path / "acknowledged"
        acknowledged = file.read_text().split() if file.exists() else []
        store = await EpisodeStore.open(launch, now=NOW)
        assert set(acknowledged) <= set(rows(launch))
        for episode in episodes("second"):
            stored = await store.write(episode)
            if episode.record.final and episode.record.attempt.replace("second", "first") in acknowledged:
                assert stored.record.attempt.startswith("first")
        await store.close()
        finals = EpisodeArchive(launch).finals(RUN)
        assert len(finals) == 3
        assert all(EpisodeArchive(launch).trace(record.unit) is not None for record in finals.values())
        assert sum(json.loads(line)["final"] for line in launch.run(RUN).episodes.read_text().splitlines()) == 3
