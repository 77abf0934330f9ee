"""From a launch's folder to its results: for reports, and for whoever asks how far its runs are.

Read-only but for ``write_report``, and sound while a driver writes: a line without its break is not there yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chime_dist.adapters.directory.artifact_json import read, unreadable, unwritable
from chime_dist.adapters.directory.durable_file import make_folders, replace_files
from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import MANIFEST, LaunchDirectory, RunEntry, RunFolder
from chime_dist.adapters.directory.prerequisite_files import PrerequisiteCosts
from chime_dist.config.policy import ProtocolSpec
from chime_dist.config.run import RunConfig
from chime_dist.config.validation import validated
from chime_dist.core.aggregate import Denominator
from chime_dist.core.bank import BankState, as_of
from chime_dist.core.checkpoint import checkpoints
from chime_dist.core.episode import EpisodeRecord, Outcome, Role, Usage
from chime_dist.core.history import size_by_collection, states_at
from chime_dist.core.journal import GENESIS, JournalEntry, usage_in, verified
from chime_dist.core.spending import add_usage
from chime_dist.engine.driven_run import RunEnd
from chime_dist.report.build import build_report
from chime_dist.report.csv_text import comparisons_to_csv, spent_to_csv, to_csv
from chime_dist.report.document import Report, ReportOptions
from chime_dist.report.markdown import to_markdown
from chime_dist.report.results import BankPoint, RunResults
from chime_dist.wiring.spending import payer, stored_prices


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A ``journal.jsonl`` as it was when it was read."""

    path: Path
    lines: tuple[str, ...]
    """Finished lines. A byte that is not UTF-8 is a surrogate in them, which no line hash accepts."""
    unfinished: int
    """Bytes of a last line that is being written, or that a crash cut: as good as absent."""

    @classmethod
    def read(cls, path: Path) -> JournalFile:
        """Without lines where there is no file. Raises RunDirectoryError where it cannot be read."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            data = b""
        except OSError as error:
            raise unreadable(path, error) from error
        *lines, tail = data.split(b"\n")
        return cls(path, tuple(line.decode("utf-8", "surrogateescape") for line in lines), len(tail))

    @property
    def head(self) -> int:
        """The newest version: the number of entries."""
        return len(self.lines)

    def entries(self) -> Iterator[JournalEntry]:
        """All entries, each checked as it comes; raises JournalError at the first bad one."""
        return verified(self.lines, str(self.path))

    def usage(self, start: int = 0) -> dict[str, Usage]:
        """By role, what the requests of the commits from ``start`` on used; nothing is checked."""
        sums: dict[str, Usage] = {}
        for line in self.lines[start:]:
            add_usage(sums, usage_in(line.encode("utf-8", "surrogateescape")).items())
        return sums

    def state_at(self, version: int) -> tuple[BankState, str]:
        """The bank at ``version`` and the content hash of its last entry.

        Every entry is checked, also those after ``version``. Raises JournalError for a bad entry, and where there
        is no such version.
        """
        entries = tuple(self.entries())
        state = as_of(entries, version)
        return state, entries[version - 1].content_hash if version else GENESIS


def evaluation_of(folder: RunFolder) -> RunEnd | None:
    """What the driver noted when the run's evaluation was over; None before. Raises RunDirectoryError."""
    return read(RunEnd, folder.evaluation, "remove it, and resume: the driver writes it anew")


def run_config(launch: LaunchDirectory, run_id: str) -> RunConfig:
    """The config of a run of the manifest. Raises ConfigError where another version of chime_dist wrote it."""
    place = f"{launch.path / MANIFEST}, run {run_id}"
    return validated(RunConfig, launch.manifest.runs[run_id].config, place)


@dataclass(frozen=True, slots=True)
class Standing:
    """How far one run is, in episodes."""

    run_id: str
    train_total: int
    """Positions of all epochs."""
    committed: int
    """Train positions in the journal, which is the bank's version."""
    committed_empty: int
    """Of them those without a final record: every attempt ended infra, and the position taught nothing (D9)."""
    finished: int
    """Train positions with a final record that are not committed yet; they need not run again."""
    eval_total: int
    evaluated: int
    """Eval indexes scored at the last version; infra is run again, so it does not count."""
    outcomes: dict[Outcome, int]
    """Of all final records, train and eval, and of the positions that were committed empty, which are infra."""

    @property
    def kept(self) -> int:
        """Episodes that a resume does not run again."""
        return self.committed + self.finished + self.evaluated

    @property
    def owed(self) -> int:
        """Episodes that a resume runs."""
        return self.train_total + self.eval_total - self.kept


def standings(launch: LaunchDirectory, plan: Mapping[str, RunEntry] | None = None) -> tuple[Standing, ...]:
    """How far every run is, in the order of ``plan``; None takes the manifest, which a resume may extend.

    Raises RunDirectoryError for damaged records.
    """
    archive, entries = EpisodeArchive(launch), launch.manifest.runs if plan is None else plan
    return tuple(_standing(launch, archive, run_id, entry) for run_id, entry in entries.items())


def _standing(launch: LaunchDirectory, archive: EpisodeArchive, run_id: str, entry: RunEntry) -> Standing:
    total = entry.train_size * entry.epochs
    committed = JournalFile.read(launch.run(run_id).journal).head
    finals = archive.finals(run_id).values()
    scored = sum(r.unit.phase == "train" and r.unit.position < committed for r in finals)
    outcomes = Counter(record.outcome for record in finals)
    outcomes[Outcome.INFRA] += committed - scored
    return Standing(
        run_id=run_id,
        train_total=total,
        committed=committed,
        committed_empty=committed - scored,
        finished=sum(r.unit.phase == "train" and r.unit.position >= committed for r in finals),
        eval_total=entry.eval_size,
        evaluated=sum(r.unit.phase == "eval" and r.unit.read_version == total for r in finals),
        outcomes={outcome: outcomes[outcome] for outcome in Outcome},
    )


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A committed position whose outcome no final row has: the bank learnt what the results do not show."""

    position: int
    attempt: str
    """The journal's."""
    outcome: Outcome
    """The journal's."""
    row_attempt: str | None
    """Of the final row that is there; None without one."""
    row_outcome: Outcome | None

    def __str__(self) -> str:
        there = "none" if self.row_attempt is None else f"attempt {self.row_attempt} ({self.row_outcome})"
        return (
            f"train:{self.position}: the journal has attempt {self.attempt} ({self.outcome}), the final row in"
            f" episodes.jsonl is {there}"
        )


def disagreements(launch: LaunchDirectory, run_id: str, entries: Sequence[JournalEntry]) -> list[Disagreement]:
    """Where the final rows of train positions are not what the journal committed; ``entries`` are all of it.

    A position that was committed empty as infra has no final row, or one that came too late and is history (D9).
    Raises RunDirectoryError for damaged rows.
    """
    rows: dict[int, EpisodeRecord] = {}
    for row in EpisodeArchive(launch).records(run_id):
        position = row.unit.position
        if not row.final or row.unit.phase != "train" or position >= len(entries):
            continue
        if position not in rows or row.attempt == entries[position].attempt:
            rows[position] = row
    found = []
    for entry in entries:
        final = rows.get(entry.position)
        alike = final is not None and final.attempt == entry.attempt
        if (final is not None and alike and final.outcome is entry.outcome) or (
            entry.outcome is Outcome.INFRA and not alike
        ):
            continue
        told = (None, None) if final is None else (final.attempt, final.outcome)
        found.append(Disagreement(entry.position, entry.attempt, entry.outcome, *told))
    return found


def run_results(launch: LaunchDirectory) -> tuple[RunResults, ...]:
    """The results of every planned run in the manifest's order, those that have not started included.

    The sizes of a bank come from replaying its journal. Raises RunDirectoryError, ConfigError, and JournalError
    for a journal that does not verify.
    """
    archive = EpisodeArchive(launch)
    return tuple(_results(launch, archive, run_id, entry) for run_id, entry in launch.manifest.runs.items())


def _results(launch: LaunchDirectory, archive: EpisodeArchive, run_id: str, entry: RunEntry) -> RunResults:
    config, folder = run_config(launch, run_id), launch.run(run_id)
    version = entry.train_size * entry.epochs
    end = evaluation_of(folder)
    if end is not None and end.version != version:
        # The run was made longer: its evaluation at the last version is still to come.
        end = None
    journal = JournalFile.read(folder.journal)
    growth = _growth(journal, entry) if entry.stateful else ()
    copied = entry.forked_from.position if entry.forked_from is not None else 0
    return RunResults(
        benchmark=config.benchmark.name,
        backbone=config.backbone.name,
        method=config.method.label,
        endpoints={role: payer(entry.config, role).endpoint for role in Role},
        ordering=config.ordering,
        run_id=run_id,
        deviations=entry.deviations,
        train_size=entry.train_size,
        epochs=entry.epochs,
        eval_size=entry.eval_size,
        eval_version=version,
        attempts=tuple(archive.attempts(run_id)),
        records=tuple(archive.records(run_id)),
        at_commits=journal.usage(copied),
        forked_at=copied,
        has_bank=entry.stateful,
        bank_size=next((point.total for point in growth if point.version == version), None),
        growth=growth,
        bank_digest_before_eval=end and end.digest_before_eval,
        bank_digest_after_eval=end and end.digest_after_eval,
    )


def _growth(journal: JournalFile, entry: RunEntry) -> tuple[BankPoint, ...]:
    reached = [point for point in checkpoints(entry.train_size, entry.epochs) if point.version <= journal.head]
    # The head among them, so that entries after the last checkpoint are checked as well.
    wanted = {*(point.version for point in reached), min(journal.head, entry.train_size * entry.epochs)}
    sizes = {state.version: size_by_collection(state) for state in states_at(journal.entries(), wanted)}
    return tuple(
        BankPoint(name=point.name, version=point.version, sizes=sizes[point.version]) for point in reached
    )


def launch_report(
    launch: LaunchDirectory,
    *,
    partial: bool = False,
    denominator: Denominator | None = None,
    compare: tuple[str, str] | None = None,
    program: str = "chime-dist",
) -> Report:
    """The launch's report; ``denominator`` None takes the sweep's, ``program`` is what hints call this program.
    ``compare`` is as in ``ReportOptions``.

    Raises what ``run_results`` and ``report.build.build_report`` raise.
    """
    protocol = validated(
        ProtocolSpec,
        launch.manifest.config.get("protocol", {}),
        str(launch.path / MANIFEST),
        ("config", "protocol"),
    )
    results = run_results(launch)
    options = ReportOptions(
        orderings=tuple({run.ordering for run in results}),
        directory=str(launch.path),
        program=program,
        denominator=denominator or protocol.denominator,
        train_metric=protocol.train_metric,
        partial=partial,
        compare=compare,
        prices=stored_prices(launch),
    )
    return build_report(results, options, PrerequisiteCosts(launch.path).look())


def write_report(launch: LaunchDirectory, report: Report) -> None:
    """Put the report into the launch's folder, as Markdown and CSV. Raises RunDirectoryError."""
    files = {
        "report.md": to_markdown(report),
        "report.csv": to_csv(report),
        "comparisons.csv": comparisons_to_csv(report),
        "spent.csv": spent_to_csv(report),
    }
    try:
        make_folders(launch.report)
        replace_files([(launch.report / name, text.encode()) for name, text in files.items()])
    except OSError as error:
        raise unwritable(launch.report, error) from error
