"""``bank at`` and ``bank verify``: the bank at any version, and the proof that its journal is whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from chime_dist.adapters.directory.file_journal import JOURNAL_NAME
from chime_dist.adapters.directory.launch_directory import RunFolder
from chime_dist.cli.boundary import ExitCode
from chime_dist.cli.output import counted, foreign, say, show, show_json
from chime_dist.cli.targets import Target, find
from chime_dist.core.bank import BankState, Record
from chime_dist.core.canonical import canonical_json
from chime_dist.core.memory import MemoryPayload
from chime_dist.errors import JournalError
from chime_dist.wiring.results import JournalFile, evaluation_of

LAST = "last"


def at(path: Path, run: str, version: str, as_json: bool) -> None:
    """The bank of one run at one version."""
    target = find(path, [run])
    run_id = target.require_run()
    journal = JournalFile.read(target.launch.run(run_id).journal)
    wanted = _version(version, journal)
    state, content_hash = journal.state_at(wanted)
    if as_json:
        known = {name: state.collection(name) for name in _collections(state)}
        facts = {"version": state.version, "head": journal.head, "digest": state.digest()}
        show_json({"run_id": run_id, **facts, "content_hash": content_hash, "collections": known})
    else:
        show(*_bank_view(run_id, journal, state, content_hash))


def _version(text: str, journal: JournalFile) -> int:
    if text == LAST:
        return journal.head
    if not text.isdecimal() or int(text) > journal.head:
        raise typer.BadParameter(f"{text!r} is no version of this bank: it has 0 to {journal.head}, or {LAST!r}")
    return int(text)


def _collections(state: BankState) -> list[str]:
    return sorted({record.collection for record in state.records.values()})


def _bank_view(run_id: str, journal: JournalFile, state: BankState, content_hash: str) -> Iterator[RenderableType]:
    yield foreign(
        f"{run_id}, version {state.version} of {journal.head}, {counted(len(state.records), 'item')}\n"
        f"digest  {state.digest()}\n"
        f"content {content_hash}"
    )
    for name in _collections(state):
        yield _collection_view(name, state.collection(name))


def _collection_view(name: str, records: Sequence[Record]) -> Table:
    table = Table(title=foreign(f"{name}, {counted(len(records), 'item')}"), title_justify="left")
    for column in ("Item", "v", "n", "Version", "Written at"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("Text", overflow="fold")
    for record in records:
        table.add_row(*_item_row(record), end_section=True)
    return table


def _item_row(record: Record) -> tuple[Text | str, ...]:
    name, version = foreign(record.id), str(record.version)
    try:
        memory = MemoryPayload.of(record)
    except JournalError:
        # Another method's record: its payload says all there is.
        return name, "", "", version, "", foreign(canonical_json(record.payload))
    text = Text.assemble(foreign(memory.scenario, "bold"), "\n", foreign(memory.experience))
    return name, f"{memory.value:+.4f}", str(memory.count), version, ", ".join(map(str, memory.sources)), text


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of the check of one journal."""

    journal: Path
    run_id: str
    entries: int
    unfinished_bytes: int
    """Of a last line that is being written, or that a crash cut; a resume writes it again."""
    items: int | None = None
    digest: str | None = None
    content_hash: str | None = None
    damage: str | None = None
    """What is wrong and where; None for a journal that is whole."""


def verify(path: Path, run: str | None, as_json: bool) -> ExitCode:
    """Check journals: line hashes, order, content chain, replay, and the digests that the evaluation noted."""
    findings = [_checked(folder) for folder in _folders(path, run)]
    if as_json:
        show_json({"damaged": sum(found.damage is not None for found in findings), "journals": findings})
    else:
        for found in findings:
            show(_finding_view(found))
    for found in findings:
        if found.damage is not None:
            say(f"error: {found.damage}")
    return ExitCode.ERROR if any(found.damage for found in findings) else ExitCode.COMPLETE


def _folders(path: Path, run: str | None) -> list[RunFolder]:
    if path.is_file():
        if run is not None:
            raise typer.BadParameter(f"{path} is one journal; leave RUN out")
        if path.name != JOURNAL_NAME:
            raise typer.BadParameter(f"{path} is not a journal; expected a file named {JOURNAL_NAME}")
        return [RunFolder(path.parent)]
    target: Target = find(path, [] if run is None else [run])
    runs = list(target.launch.manifest.runs) if target.run_id is None else [target.run_id]
    return [target.launch.run(run_id) for run_id in runs]


def _checked(folder: RunFolder) -> Finding:
    journal = JournalFile.read(folder.journal)
    facts = (journal.path, folder.run_id, journal.head, journal.unfinished)
    try:
        state, content_hash = journal.state_at(journal.head)
        _check_evaluation(folder, journal, state)
    except JournalError as error:
        return Finding(*facts, damage=str(error))
    return Finding(*facts, items=len(state.records), digest=state.digest(), content_hash=content_hash)


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
        return foreign(f"DAMAGED {found.run_id}: version {found.entries}{rest}", "bold red")
    return foreign(
        f"whole   {found.run_id}: version {found.entries}, {counted(found.items or 0, 'item')}, "
        f"digest {found.digest}, content {found.content_hash}{rest}"
    )
