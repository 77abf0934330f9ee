"""Whole sweeps in this process, from the text of a file to the launch's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.config.loading import load_sweep
from chime_dist.core.episode import EpisodeRecord
from chime_dist.core.journal import JournalEntry
from chime_dist.engine.driver import Ending
from chime_dist.wiring.launch import Launch
from chime_dist.wiring.plans import plan_runs
from chime_dist.wiring.results import JournalFile

SWEEP = """\
name: tour
benchmarks: [{name: credit_world, families: 2, tasks_per_family: 10, steps: 1}]
methods: [chime, no_plan]
backbones: [{name: m, scripted: {script: credit_world}}]
orderings: [0, 1, 2]
embedder: {kind: hashing, dim: 64}
protocol: {epochs: 2, window: 4}
cluster:
  slots: 8
  endpoints: {m: {kind: scripted}}
"""
"""Twenty cases, 14 to learn from and 6 to be examined on, in three orders, with and without memory."""

TRAIN, EVAL, WINDOW = 14, 6, 4


def written(folder: Path, text: str = SWEEP) -> Path:
    """The sweep's file, in a folder that also takes its results and its state."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "sweep.yaml"
    places = f"  runs_dir: {folder / 'runs'}\n  state_dir: {folder / 'state'}\n"
    # Nobody learns anything from waiting for what fails on purpose.
    file.write_text(f"{text}{places}  redelivery_pause_s: 0.002\n", encoding="utf-8")
    return file


async def launched(
    folder: Path, text: str = SWEEP, ending: Ending = Ending.COMPLETE, environ: Mapping[str, str] | None = None
) -> LaunchDirectory:
    """Run a sweep below ``folder`` to this ending."""
    sweep = load_sweep(written(folder, text), environ=dict(environ or {}))
    launch = Launch.new(sweep, plan_runs(sweep))
    assert await launch.drive(_unseen) is ending, launch.reason
    return launch.directory


async def resumed(directory: LaunchDirectory, ending: Ending = Ending.COMPLETE) -> LaunchDirectory:
    """Go on with a launch to this ending."""
    launch = Launch.resume(directory.path)
    assert await launch.drive(_unseen) is ending, launch.reason
    return launch.directory


def _unseen(_: Any) -> None:
    """Progress that nobody looks at."""


def runs_of(launch: LaunchDirectory, method: str) -> list[str]:
    """Run ids of a method, by ordering."""
    return sorted(run for run in launch.manifest.runs if f"-{method}-" in run)


def journal_of(launch: LaunchDirectory, run: str) -> list[JournalEntry]:
    """The verified journal of a run."""
    return list(JournalFile.read(launch.run(run).journal).entries())


def records_of(launch: LaunchDirectory, run: str, phase: str) -> list[EpisodeRecord]:
    """Final records of a phase, by position."""
    finals = EpisodeArchive(launch).finals(run).values()
    return sorted((r for r in finals if r.unit.phase == phase), key=lambda r: r.unit.position)
