"""``bank verify`` and ``bank rebuild``: proof that a journal is whole and its projection follows from it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import typer
from rich.text import Text

from chime_dist.adapters.directory.file_journal import JOURNAL_NAME
from chime_dist.adapters.directory.launch_directory import LaunchDirectory, RunFolder
from chime_dist.cli.bank.opened import OpenedBank
from chime_dist.cli.boundary import ExitCode
from chime_dist.cli.invocation import suggested
from chime_dist.cli.output import counted, foreign, say, show, show_json
from chime_dist.cli.targets import find
from chime_dist.core.bank import BankState, apply
from chime_dist.core.journal import GENESIS, JournalEntry
from chime_dist.errors import JournalError, RunDirectoryError
from chime_dist.wiring.bank_projection import ProjectionCheck, check_projection, rebuild
from chime_dist.wiring.results import Disagreement, JournalFile, disagreements, evaluation_of

_ALONE = ProjectionCheck("not_checked", "a journal was named, not a launch")
_SHOWN = 12
"""Leading hex digits of a hash that people compare by eye."""
_TOLD = 5
"""Positions whose result is not the journal's that are told one by one; the JSON form has all."""
_UNSOUND = ProjectionCheck("not_checked", "the journal is damaged")


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of the check of one journal and of its projection."""

    journal: Path
    run_id: str
    entries: int
    unfinished_bytes: int
    """Of a last line that is being written, or that a crash cut; a resume writes it again."""
    projection: ProjectionCheck
    items: int | None = None
    digest: str | None = None
    content_hash: str | None = None
    damaged_entry: int | None = None
    """0-based position of the first bad entry; None where it is not in one entry."""
    damage: str | None = None
    """What is wrong with the journal and where; None for one that is whole."""
    disagreements: Sequence[Disagreement] = ()
    """Committed positions whose outcome no final row of episodes.jsonl has."""
    rows_damage: str | None = None
    """Why the rows could not be compared with the journal; None where they were, or were not to be."""

    @property
    def sound(self) -> bool:
        """Whether nothing that was checked is wrong."""
        agree = not self.disagreements and self.rows_damage is None
        return self.damage is None and agree and self.projection.status != "damaged"


def verify(path: Path, run: str | None, as_json: bool) -> ExitCode:
    """Check journals: line hashes, order, content chain, replay, and the digests that the evaluation noted; then,
    of those that are whole, the final rows of what was committed, and the projections where the store is within
    reach."""
    launch, folders = _chosen(path, run)
    findings = [asyncio.run(_checked(launch, folder)) for folder in folders]
    if as_json:
        show_json({"damaged": sum(not found.sound for found in findings), "journals": findings})
    else:
        for found in findings:
            show(_finding_view(found))
    for found in findings:
        if found.damage is not None:
            say(f"error: {found.damage}")
        for told in _row_faults(launch, found):
            say(f"error: {told}")
        if (audit := found.projection.audit) is not None:
            for fault in audit.faults:
                say(f"error: projection of {found.run_id}, fence {audit.fence}: {fault}")
    return ExitCode.COMPLETE if all(found.sound for found in findings) else ExitCode.ERROR


def _chosen(path: Path, run: str | None) -> tuple[LaunchDirectory | None, list[RunFolder]]:
    if path.is_file():
        if run is not None:
            raise typer.BadParameter(f"{path} is one journal; leave RUN out")
        if path.name != JOURNAL_NAME:
            raise typer.BadParameter(f"{path} is not a journal; expected a file named {JOURNAL_NAME}")
        return None, [RunFolder(path.parent)]
    target = find(path, [] if run is None else [run])
    runs = list(target.launch.manifest.runs) if target.run_id is None else [target.run_id]
    return target.launch, [target.launch.run(run_id) for run_id in runs]


async def _checked(launch: LaunchDirectory | None, folder: RunFolder) -> Finding:
    journal = JournalFile.read(folder.journal)
    facts = (journal.path, folder.run_id, journal.head, journal.unfinished)
    entries: list[JournalEntry] = []
    state = BankState()
    try:
        for entry in journal.entries():
            state = apply(state, entry)
            entries.append(entry)
    except JournalError as error:
        return Finding(*facts, _UNSOUND, damaged_entry=len(entries), damage=str(error))
    try:
        _check_evaluation(folder, journal, state)
    except JournalError as error:
        return Finding(*facts, _UNSOUND, damage=str(error))
    content_hash = entries[-1].content_hash if entries else GENESIS
    sizes = (len(state.records), state.digest(), content_hash)
    if launch is None:
        return Finding(*facts, _ALONE, *sizes)
    rows_damage, unlike = None, list[Disagreement]()
    try:
        unlike = disagreements(launch, folder.run_id, entries)
    except RunDirectoryError as error:
        rows_damage = str(error)
    projection = await check_projection(launch, folder.run_id, entries)
    return Finding(*facts, projection, *sizes, disagreements=unlike, rows_damage=rows_damage)


def _row_faults(launch: LaunchDirectory | None, found: Finding) -> Iterator[str]:
    if found.rows_damage is not None:
        yield found.rows_damage
    if launch is None or not found.disagreements:
        return
    for unlike in found.disagreements[:_TOLD]:
        yield f"{found.run_id} {unlike}"
    more = len(found.disagreements) - _TOLD
    first = found.disagreements[0].position
    fork = suggested("ctl", launch.path, "requeue", found.run_id, "--fork-at", first)
    others = f"and {more} more like these; " if more > 0 else ""
    yield (
        f"{found.run_id}: {others}restore episodes.jsonl from a backup, or fork the run before the first: {fork}"
    )


def _check_evaluation(folder: RunFolder, journal: JournalFile, head: BankState) -> None:
    noted = evaluation_of(folder)
    if noted is None:
        return
    if noted.version > journal.head:
        raise JournalError(
            f"{journal.path}: it holds {journal.head} entries, but version {noted.version} was evaluated; "
            f"{noted.version - journal.head} entries are missing at its end"
        )
    replayed = (head if noted.version == head.version else journal.state_at(noted.version)[0]).digest()
    for when, digest in (("before", noted.digest_before_eval), ("after", noted.digest_after_eval)):
        if digest != replayed:
            raise JournalError(
                f"{folder.evaluation}: {when} the evaluation, version {noted.version} had the digest "
                f"{digest}, but {journal.path} replays to {replayed}"
            )


def _finding_view(found: Finding) -> Text:
    rest = (
        f", {counted(found.unfinished_bytes, 'byte')} of an unfinished line ignored"
        if found.unfinished_bytes
        else ""
    )
    if found.damage is not None:
        at = "" if found.damaged_entry is None else f"entry {found.damaged_entry} is bad, "
        return foreign(f"DAMAGED {found.run_id}: {at}version {found.entries}{rest}", "bold red")
    wrong = counted(len(found.disagreements), "result") if found.disagreements else ""
    # The whole hashes are in the JSON form, and in bank at.
    digest, content = ((whole or "")[:_SHOWN] for whole in (found.digest, found.content_hash))
    journal = (
        f"{found.run_id}: version {found.entries}, {counted(found.items or 0, 'item')}, digest {digest}, "
        f"content {content}{rest}"
    )
    projection = found.projection
    if wrong or found.rows_damage is not None:
        told = f"{wrong} not the journal's" if wrong else "its results cannot be read"
        return foreign(f"DAMAGED {journal}; {told}; {projection.detail}", "bold red")
    if projection.status == "damaged":
        faults = "" if projection.audit is None else f": {counted(len(projection.audit.faults), 'fault')}"
        return foreign(f"DAMAGED {journal}; {projection.detail}{faults}", "bold red")
    if projection.status == "not_checked":
        return foreign(f"whole   {journal}; only the journal was checked ({projection.detail})")
    return foreign(f"whole   {journal}; {projection.detail}")


def rebuild_projection(path: Path, run: str, as_json: bool) -> ExitCode:
    """Make a fresh projection of one run's journal, compare it, and throw it away."""
    bank = OpenedBank.of(path, run)
    named = [checkpoint.version for checkpoint in bank.checkpoints if checkpoint.version <= bank.head]
    made = asyncio.run(rebuild(bank.launch, bank.run_id, bank.entries, named))
    if as_json:
        show_json({"run_id": bank.run_id, **asdict(made)})
    else:
        points = "" if made.points is None else f", {counted(made.points, 'point')}"
        how = f"in a fresh projection ({made.store}), made in {made.seconds:.2f} s"
        facts = f"version {made.version}, {counted(made.items, 'item')}{points} {how}, digest {made.digest}"
        show(foreign(f"{'DAMAGED' if made.faults else 'whole  '} {bank.run_id}: {facts}"))
    for fault in made.faults:
        say(f"error: fresh projection of {bank.run_id}: {fault}")
    return ExitCode.ERROR if made.faults else ExitCode.COMPLETE
