"""One run's records, checked and counted: the step from episodes.jsonl to tallies (H1, H3, R5)."""

from __future__ import annotations

from dataclasses import dataclass

from chime_dist.core.aggregate import Tally, counted_rows, tally
from chime_dist.core.episode import EpisodeRecord, Outcome
from chime_dist.errors import JournalError, RunDirectoryError
from chime_dist.report.document import EvalMemory, ReportOptions, RunLine
from chime_dist.report.results import RunResults


@dataclass(frozen=True, slots=True)
class CountedRun:
    """A run's rows that count, in order of position, and its line of the report."""

    run: RunResults
    train: tuple[EpisodeRecord, ...]
    """All epochs."""
    eval: tuple[EpisodeRecord, ...]
    """At ``RunResults.eval_version`` only."""
    line: RunLine


def count_run(run: RunResults, options: ReportOptions) -> CountedRun:
    """Raises RunDirectoryError for rows that are stale, doubled or another run's, JournalError where the bank
    changed during eval."""
    counted = sorted(counted_rows(run.records, run.attempts).values(), key=lambda row: row.unit.position)
    for row in counted:
        if row.unit.run_id != run.run_id:
            raise RunDirectoryError(f"{run.run_id}: its records hold {row.unit.key}, which is of another run")
    train = tuple(row for row in counted if row.unit.phase == "train")
    held_out = tuple(
        row for row in counted if row.unit.phase == "eval" and row.unit.read_version == run.eval_version
    )
    epochs = _epochs(run, train)
    line = RunLine(
        ordering=run.ordering,
        run_id=run.run_id,
        train_first=epochs[0] if epochs else Tally(planned=0),
        train_selected=epochs[-1] if epochs else Tally(planned=0),
        eval=tally(held_out, range(run.eval_size)),
        empty_first=_committed_empty(run, train, 0),
        empty_selected=_committed_empty(run, train, run.epochs - 1),
        bank_size=run.bank_size,
        growth=run.growth,
        eval_memory=_eval_memory(run, options),
    )
    return CountedRun(run, train, held_out, line)


def _epochs(run: RunResults, train: tuple[EpisodeRecord, ...]) -> list[Tally]:
    rows: list[list[EpisodeRecord]] = [[] for _ in range(run.epochs)]
    for row in train:
        if not 0 <= row.unit.epoch < run.epochs:
            raise RunDirectoryError(
                f"{row.unit.key}: epoch {row.unit.epoch} (0-based) is not among the run's {run.epochs}"
            )
        rows[row.unit.epoch].append(row)
    size = run.train_size
    return [tally(found, range(epoch * size, (epoch + 1) * size)) for epoch, found in enumerate(rows)]


def _committed_empty(run: RunResults, train: tuple[EpisodeRecord, ...], epoch: int) -> int:
    return sum(
        row.outcome is Outcome.INFRA and row.unit.epoch == epoch and row.unit.position < len(run.attempts)
        for row in train
    )


def _eval_memory(run: RunResults, options: ReportOptions) -> EvalMemory:
    if not run.has_bank:
        return "none"
    before, after = run.bank_digest_before_eval, run.bank_digest_after_eval
    if before is None or after is None:
        return "unverified"
    if before != after:
        raise JournalError(
            f"{run.run_id}: the bank changed during eval (digest {before} before, {after} after), but eval memory"
            " is frozen (R5); its eval numbers mean nothing, check the bank with"
            f" `{options.command('bank', 'verify', options.directory, run.run_id)}`"
        )
    return "frozen"
