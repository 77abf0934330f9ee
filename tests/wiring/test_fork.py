"""A fork shares a run's stream up to a position, to the byte, and runs the rest as the run would have."""

from __future__ import annotations

import asyncio
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import ForkedFrom, LaunchDirectory
from chime_dist.config.loading import load_sweep
from chime_dist.core.journal import JournalEntry
from chime_dist.engine.driver import Ending
from chime_dist.errors import ConfigError, RunDirectoryError
from chime_dist.wiring.fork import fork_run
from chime_dist.wiring.launch import Launch
from chime_dist.wiring.plans import plan_runs
from chime_dist.wiring.results import JournalFile, launch_report, standings
from tests.integration.launching import RUN
from tests.wiring.failed_launch import failed_launch

SWEEP = """\
name: forked
benchmarks: [{name: credit_world, families: 2, tasks_per_family: 8}]
methods: [chime]
backbones: [{name: m, scripted: {script: credit_world}}]
orderings: [0, 1]
embedder: {kind: hashing, dim: 16}
protocol: {window: 2, epochs: 2}
requests: {timeout_s: 30.0, max_retries: 0}
cluster:
  slots: 4
  runs_dir: RUNS
  state_dir: RUNS/state
  redis: REDIS
  endpoints: {m: {kind: scripted}}
"""


def entries(launch: LaunchDirectory, run: str) -> list[JournalEntry]:
    """The verified journal."""
    return list(JournalFile.read(launch.run(run).journal).entries())


def launched(tmp_path: Path, redis: str) -> LaunchDirectory:
    """A complete launch of two orderings."""
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP.replace("RUNS", str(tmp_path)).replace("REDIS", redis), encoding="utf-8")
    sweep = load_sweep(file, environ={})
    launch = Launch.new(sweep, plan_runs(sweep))
    assert asyncio.run(launch.drive(lambda _: None)) is Ending.COMPLETE
    return launch.directory


def resumed(launch: LaunchDirectory, *overrides: str) -> Ending:
    """Go on with it."""
    return asyncio.run(Launch.resume(launch.path, overrides).drive(lambda _: None))


def _contents(launch: LaunchDirectory, run: str) -> dict[Path, bytes]:
    # A new fence is what every driver takes.
    files = (path for path in launch.run(run).path.rglob("*") if path.is_file() and path.name != "journal.fence")
    return {path: path.read_bytes() for path in files}


@pytest.mark.parametrize("redis", ["local", "embedded"])
def test_a_fork_of_a_deterministic_run_ends_as_the_run_did(tmp_path: Path, redis: str) -> None:
    """Up to the position the content chain is copied; after it, the same read versions give the same content."""
    launch = launched(tmp_path, redis)
    run, other = launch.manifest.runs
    before = _contents(launch, run)
    fork = fork_run(launch, run, 7, now=datetime.now(UTC))

    launch = LaunchDirectory.open(launch.path)
    assert fork == f"{run}-fork7"
    assert launch.manifest.runs[fork].forked_from == ForkedFrom(run=run, position=7)
    assert launch.manifest.runs[fork].deviations["forked_from"] == "position 7"
    kept = {standing.run_id: standing.kept for standing in standings(launch)}
    assert kept[fork] == 7
    shared = [(e.content_hash, e.attempt, e.committed_at) for e in entries(launch, fork)]
    assert shared == [(e.content_hash, e.attempt, e.committed_at) for e in entries(launch, run)[:7]]
    assert {entry.run_id for entry in entries(launch, fork)} == {fork}

    assert resumed(launch) is Ending.COMPLETE
    assert [e.content_hash for e in entries(launch, fork)] == [e.content_hash for e in entries(launch, run)]
    finals = EpisodeArchive(launch).finals(fork)
    assert len(finals) == kept[run]
    assert [finals[f"{fork}:train:{p}"].attempt for p in range(7)] == [e[1] for e in shared]
    assert _contents(launch, run) == before
    assert all(standing.owed == 0 for standing in standings(launch))

    report = launch_report(launch)
    assert report.complete
    assert [row.forked for row in report.rows] == [False, True]
    assert [[line.run_id for line in row.runs] for row in report.rows] == [[run, other], [fork]]


def test_a_fork_may_be_forked_again_and_grows_with_the_sweep(tmp_path: Path) -> None:
    launch = launched(tmp_path, "local")
    run, other = launch.manifest.runs
    first = fork_run(launch, run, 9, now=datetime.now(UTC))
    second = fork_run(launch, run, 9, now=datetime.now(UTC))
    third = fork_run(launch, first, 3, now=datetime.now(UTC))
    fourth = fork_run(launch, other, 9, now=datetime.now(UTC))
    assert (second, third) == (f"{run}-fork9.2", f"{run}-fork9-fork3")
    assert resumed(launch, "protocol.epochs=3") is Ending.COMPLETE

    launch = LaunchDirectory.open(launch.path)
    assert list(launch.manifest.runs) == [run, other, first, second, third, fourth]
    lengths = {name: len(entries(launch, name)) for name in launch.manifest.runs}
    assert set(lengths.values()) == {launch.manifest.runs[run].train_size * 3}
    report = launch_report(launch)
    rows = {row.deviations.get("forked_from"): len(row.runs) for row in report.rows}
    assert rows == {None: 2, "position 9": 2, "position 9.2": 1, "position 9 position 3": 1}
    with pytest.raises(ConfigError, match="is not in the config any more"):
        Launch.resume(launch.path, ["orderings=[1]"])


def test_a_position_that_was_not_reached_or_a_launch_that_is_driven_is_refused(tmp_path: Path) -> None:
    launch = launched(tmp_path, "local")
    run = next(iter(launch.manifest.runs))
    total = len(entries(launch, run))
    with pytest.raises(RunDirectoryError, match=f"forked at 0 to {total - 1}, not at {total}"):
        fork_run(launch, run, total, now=datetime.now(UTC))
    with launch.driver_lock() as lock:
        lock.acquire(datetime.now(UTC))
        with pytest.raises(RunDirectoryError, match="the driver lock is held by process"):
            fork_run(launch, run, 3, now=datetime.now(UTC))
    assert LaunchDirectory.open(launch.path).manifest == launch.manifest


def test_what_a_cut_off_fork_left_is_replaced(tmp_path: Path) -> None:
    launch = launched(tmp_path, "local")
    run, other = launch.manifest.runs
    shutil.copytree(launch.run(other).path, launch.run(f"{run}-fork5").path)
    fork = fork_run(launch, run, 5, now=datetime.now(UTC))
    assert [e.content_hash for e in entries(launch, fork)] == [e.content_hash for e in entries(launch, run)[:5]]
    assert len(EpisodeArchive(launch).finals(fork)) == 5


def _tallied(launch: LaunchDirectory, run: str, below: int) -> list[tuple[int, int, str, bool]]:
    rows = [record for record in EpisodeArchive(launch).records(run) if record.unit.position < below]
    return [(row.unit.position, row.delivery, row.outcome.value, row.final) for row in rows]


async def test_positions_committed_empty_before_the_fork_stay_so_with_their_attempts(tmp_path: Path) -> None:
    """G3: they count as infra in the fork too; from the position on nothing is there."""
    launch = await failed_launch(tmp_path)
    fork = await asyncio.to_thread(lambda: fork_run(launch, RUN, 10, now=datetime.now(UTC)))
    assert _tallied(launch, fork, 99) == _tallied(launch, RUN, 10)
    assert [e.position for e in entries(launch, fork) if e.empty_reason] == [7]
    failures = [[f.record.attempt for f in EpisodeArchive(launch).failures(run)] for run in (RUN, fork)]
    assert failures[1] == failures[0][:3]


@pytest.mark.parametrize("overrides", [(), ("cluster.limits.tokens=100000000",), ("protocol.epochs=3",)])
def test_a_resume_never_undoes_a_fork_that_was_made_while_it_began(
    tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    """What it read before it had the lock is not what it may write: the fork stays owed, as the status says."""
    launch = launched(tmp_path, "local")
    run = next(iter(launch.manifest.runs))
    overtaken = Launch.resume(launch.path, overrides)
    fork = fork_run(launch, run, 2, now=datetime.now(UTC))
    status = launch.status()
    assert status is not None
    assert status.state == "incomplete"

    with pytest.raises(RunDirectoryError, match="was changed meanwhile, so resume it again"):
        asyncio.run(overtaken.drive(lambda _: None))
    launch = LaunchDirectory.open(launch.path)
    assert fork in launch.manifest.runs
    assert launch.status() == status

    assert resumed(launch, *overrides) is Ending.COMPLETE
    assert all(standing.owed == 0 for standing in standings(LaunchDirectory.open(launch.path)))
    assert len(entries(launch, fork)) == len(entries(launch, run))


def test_a_fork_that_the_disk_refuses_says_what_to_do(tmp_path: Path) -> None:
    """A message of ours, and the launch is as it was."""
    launch = launched(tmp_path, "local")
    run = next(iter(launch.manifest.runs))
    launch.run(f"{run}-fork2").path.touch()
    with pytest.raises(RunDirectoryError, match=rf"{run}-fork2: cannot be written: File exists; check the path"):
        fork_run(launch, run, 2, now=datetime.now(UTC))
    assert LaunchDirectory.open(launch.path) == launch
