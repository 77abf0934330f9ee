"""How long a launch with many finished episodes takes until its first new one, beside reading its files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from chime_dist.adapters.directory.artifact_json import encode
from chime_dist.adapters.directory.durable_file import AppendLog
from chime_dist.adapters.directory.file_journal import FileJournal
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.benchmarks.credit_world.benchmark import CreditWorld
from chime_dist.core.episode import EndReason, EpisodeRecord, Outcome, Unit, Usage
from chime_dist.core.journal import GENESIS, JournalEntry, content_hash
from chime_dist.logs import Logging
from chime_dist.wiring.launch import Launch
from chime_dist.wiring.plans import PlannedRun, plan_runs
from tests.bench.measurement import Mark, Measurement, alone
from tests.bench.rig import resized, spied, sweep_of

_AIM_S = 5.0
_USAGE = {
    role: Usage(calls=calls, requests=calls, prompt_tokens=4000 * calls, completion_tokens=300 * calls)
    for role, calls in (("planner", 1), ("executor", 12), ("gate", 1), ("embedder", 4))
}
_BATCH = 1000


class _Case(NamedTuple):
    backbones: int
    """Each with three orderings."""
    train: int
    """Positions of each run, all committed empty."""
    evaluated: int
    """Finished eval indexes of each run; one more is owed."""

    @property
    def runs(self) -> int:
        return 3 * self.backbones

    @property
    def episodes(self) -> int:
        return self.runs * (self.train + self.evaluated)


_FULL = (_Case(14, 1, 4761), _Case(16, 2800, 1367))
_QUICK = (_Case(1, 3, 4),)


async def measure(quick: bool) -> list[Measurement]:
    """Seconds from ``resume`` to the first new episode, with evaluation only and with 70 percent training."""
    found: list[Measurement] = []
    for case in _QUICK if quick else _FULL:
        with tempfile.TemporaryDirectory(prefix="chime-bench-") as folder:
            path = alone(_write, case, Path(folder))
            found += alone(_measure, case, path)
    return found


async def _write(case: _Case, folder: Path) -> Path:
    """A launch as it lies on the disk when it was stopped."""
    tasks = case.train + case.evaluated + 1
    sweep = sweep_of(folder, tasks=tasks, orderings=3, backbones=case.backbones, method="no_plan")
    runs = [resized(run, case.train, case.evaluated + 1) for run in plan_runs(sweep)]
    launch = Launch.new(sweep, runs)
    for run in runs:
        _append(launch.directory.run(run.run_id).episodes, (encode(r, "a row") for r in _records(run)))
        # The fence is the journal's own business; the lines are what a long run leaves behind.
        await FileJournal(lambda run_id: launch.directory.run(run_id).path).take_fence(run.run_id)
        _append(launch.directory.run(run.run_id).journal, _lines(run))
    return launch.directory.path


def _append(path: Path, lines: Iterator[bytes]) -> None:
    log = AppendLog(path)
    batch = list[bytes]()
    for line in lines:
        batch.append(line)
        if len(batch) == _BATCH:
            log.append(batch)
            batch.clear()
    log.append(batch)
    log.close()


def _records(run: PlannedRun) -> Iterator[EpisodeRecord]:
    units = [run.plan.train_unit(position) for position in range(len(run.plan.train))]
    units += [run.plan.eval_unit(index) for index in range(len(run.plan.eval) - 1)]
    for unit in units:
        yield _record(unit)


def _record(unit: Unit) -> EpisodeRecord:
    return EpisodeRecord(
        unit=unit,
        attempt=f"{unit.position:032x}",
        delivery=1,
        final=True,
        outcome=Outcome.FAILURE if unit.position % 3 else Outcome.SUCCESS,
        end_reason=EndReason.SCORED,
        started_at=datetime.now(UTC).isoformat(),
        duration_s=12.5,
        steps=25,
        usage=_USAGE,
        worker="worker-0",
    )


def _lines(run: PlannedRun) -> Iterator[bytes]:
    link = GENESIS
    for position in range(len(run.plan.train)):
        unit = run.plan.train_unit(position)
        outcome = Outcome.FAILURE if position % 3 else Outcome.SUCCESS
        link = content_hash(link, position=position, task=unit.task, outcome=outcome, diagnosis=None, events=())
        entry = JournalEntry(
            position=position,
            task=unit.task,
            outcome=outcome,
            diagnosis=None,
            events=(),
            content_hash=link,
            run_id=run.run_id,
            fence=1,
            attempt=f"{position:032x}",
            read_version=unit.read_version,
            committed_at=datetime.now(UTC).isoformat(),
        )
        yield entry.line().encode()


async def _measure(case: _Case, path: Path) -> list[Measurement]:
    began = Mark.now()
    bytes_read = _read_bare(path)
    bare = Mark.now().since(began)
    opened = list[Mark]()
    with (
        Logging(file=path / "log.jsonl"),
        spied(CreditWorld, "open", lambda task_id: opened.append(Mark.now())),
    ):
        began = Mark.now()
        stopped = Launch.resume(path)
        # The sweep's own split is another one than what was written.
        runs = [resized(run, case.train, case.evaluated + 1) for run in stopped.runs]
        await Launch(stopped.sweep, runs, stopped.directory).drive(lambda _: None)
    spent = opened[0].since(began)
    assert len(opened) == case.runs, f"{len(opened)} new episodes instead of {case.runs}"
    name = f"{case.episodes:,} finished in {case.runs} runs, {case.train:,} + {case.evaluated:,} each"
    return [
        Measurement(
            bench="resume",
            case=name,
            metric=metric,
            unit="s",
            value=value,
            floor=floor,
            floor_of=f"json.loads of every line ({bytes_read / 1e6:.0f} MB)",
            aim=_AIM_S if metric == "start" else None,
        )
        for metric, value, floor in (("start", spent.wall_s, bare.wall_s), ("CPU", spent.cpu_s, bare.cpu_s))
    ]


def _read_bare(path: Path) -> int:
    """Parse every row and journal line; returns their bytes."""
    size = 0
    for folder in LaunchDirectory.open(path).runs():
        for file in (folder.episodes, folder.journal):
            with file.open("rb") as lines:
                for line in lines:
                    json.loads(line)
                    size += len(line)
    return size
