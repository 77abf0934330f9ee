"""From a launch's folder to the runs that an analysis is given, and from its finding to files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from chime_dist.adapters.directory.artifact_json import unwritable
from chime_dist.adapters.directory.durable_file import replace_files
from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory, RunEntry, RunFolder
from chime_dist.adapters.directory.trajectory_files import load
from chime_dist.analyses.finding import Finding
from chime_dist.analyses.plotting import to_png
from chime_dist.analyses.studied import StudiedRun
from chime_dist.core.bank import BankState
from chime_dist.core.episode import EpisodeRecord, EpisodeTrace, Outcome
from chime_dist.errors import RunDirectoryError
from chime_dist.wiring.results import JournalFile, run_config


def studied_runs(launch: LaunchDirectory) -> Iterator[StudiedRun]:
    """Every run of the sweep, in the manifest's order; forks are left out, for nobody planned them.

    Raises RunDirectoryError for a run that is not complete (H1) or whose records are damaged, and ConfigError.
    """
    archive = EpisodeArchive(launch)
    for run_id, entry in launch.manifest.runs.items():
        if entry.forked_from is None:
            yield _studied(launch, archive, run_id, entry)


def _studied(launch: LaunchDirectory, archive: EpisodeArchive, run_id: str, entry: RunEntry) -> StudiedRun:
    total, folder = entry.train_size * entry.epochs, launch.run(run_id)
    scored = [record for record in archive.finals(run_id).values() if record.outcome is not Outcome.INFRA]
    train = [record for record in scored if record.unit.phase == "train"]
    held_out = [r for r in scored if r.unit.phase == "eval" and r.unit.read_version == total]
    if (len(train), len(held_out)) != (total, entry.eval_size):
        raise RunDirectoryError(
            f"{folder.path}: {len(train)} of {total} train and {len(held_out)} of {entry.eval_size} eval episodes "
            f"are scored, and an analysis needs all of them; go on with `resume {launch.path}`"
        )
    return StudiedRun(
        run_id=run_id,
        config=run_config(launch, run_id),
        train=tuple(sorted(train, key=_position)),
        eval=tuple(sorted(held_out, key=_position)),
        trace=partial(_trace, folder),
        bank=partial(_bank, folder),
    )


def _position(record: EpisodeRecord) -> int:
    return record.unit.position


def _trace(folder: RunFolder, record: EpisodeRecord) -> EpisodeTrace:
    return load(folder.trajectory(record.unit), record)


def _bank(folder: RunFolder, version: int) -> BankState:
    return JournalFile.read(folder.journal).state_at(version)[0]


def write_finding(finding: Finding, picture: Path) -> Path:
    """Draw the chart at ``picture``, and put the lines as CSV beside it; returns the CSV's path.

    Raises MissingExtraError where nothing can be drawn, RunDirectoryError where nothing can be written.
    """
    lines = picture.with_suffix(".csv")
    files = [(picture, to_png(finding.chart)), (lines, finding.lines.to_csv().encode())]
    try:
        replace_files(files)
    except OSError as error:
        raise unwritable(picture.parent, error) from error
    return lines
