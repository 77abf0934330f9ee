"""A run's bank as the commands get it, and what people type to name a version of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.cli.output import foreign, on_one_line, plain_table, show, show_json
from chime_dist.cli.targets import find
from chime_dist.core.bank import BankState
from chime_dist.core.checkpoint import Checkpoint, checkpoints
from chime_dist.core.history import size_by_collection, states_at
from chime_dist.core.journal import GENESIS, JournalEntry
from chime_dist.wiring.results import JournalFile

LAST = "last"


@dataclass(frozen=True, slots=True)
class OpenedBank:
    """The whole, checked journal of one run."""

    launch: LaunchDirectory
    run_id: str
    journal: JournalFile
    entries: tuple[JournalEntry, ...]
    checkpoints: tuple[Checkpoint, ...]
    """Of the planned stream, reached or not, by version."""

    @classmethod
    def of(cls, path: Path, run: str) -> OpenedBank:
        """Read the bank of a run. Raises typer.BadParameter, RunDirectoryError, JournalError."""
        target = find(path, [run])
        run_id = target.require_run()
        plan = target.launch.manifest.runs[run_id]
        journal = JournalFile.read(target.launch.run(run_id).journal)
        named = checkpoints(plan.train_size, plan.epochs)
        return cls(target.launch, run_id, journal, tuple(journal.entries()), named)

    @property
    def head(self) -> int:
        """The newest version."""
        return len(self.entries)

    def version(self, text: str) -> int:
        """The version that ``text`` names: a number, ``last``, or a checkpoint. Raises typer.BadParameter."""
        if text == LAST:
            return self.head
        named = {checkpoint.name: checkpoint.version for checkpoint in self.checkpoints}
        wanted = int(text) if text.isdecimal() else named.get(text)
        if wanted is None or (wanted > self.head and text not in named):
            raise typer.BadParameter(
                f"{text!r} is no version of this bank: it has 0 to {self.head}, or {LAST!r}, or a checkpoint: "
                f"{', '.join(named)}"
            )
        if wanted > self.head:
            raise typer.BadParameter(
                f"{text!r} is version {wanted}, which this run has not reached; the bank has 0 to {self.head}"
            )
        return wanted

    def state(self, version: int) -> BankState:
        """The bank at a version that it has."""
        [state] = states_at(self.entries, {version})
        return state

    def content_hash(self, version: int) -> str:
        """The content hash of the last entry in it."""
        return self.entries[version - 1].content_hash if version else GENESIS


def show_checkpoints(path: Path, run: str, as_json: bool) -> None:
    """The named versions of one run's bank."""
    bank = OpenedBank.of(path, run)
    reached = {c.version for c in bank.checkpoints if c.version <= bank.head}
    states = {state.version: state for state in states_at(bank.entries, reached)}
    digests = {version: state.digest() for version, state in states.items()}
    if as_json:
        found = [_document(checkpoint, states, digests) for checkpoint in bank.checkpoints]
        show_json({"run_id": bank.run_id, "head": bank.head, "checkpoints": found})
        return
    table = plain_table(title=foreign(f"{bank.run_id}, version {bank.head}"))
    for column in ("Checkpoint", "Version", "Items"):
        table.add_column(column, justify="left" if column == "Checkpoint" else "right", no_wrap=True)
    table.add_column("Digest")
    for checkpoint in bank.checkpoints:
        if (state := states.get(checkpoint.version)) is None:
            table.add_row(checkpoint.name, str(checkpoint.version), "", "not reached")
        else:
            table.add_row(
                checkpoint.name, str(checkpoint.version), _sizes(state), on_one_line(digests[checkpoint.version])
            )
    show(table)


def _document(checkpoint: Checkpoint, states: dict[int, BankState], digests: dict[int, str]) -> dict[str, object]:
    state = states.get(checkpoint.version)
    return {
        **checkpoint.model_dump(),
        "reached": state is not None,
        "items": None if state is None else len(state.records),
        "collections": None if state is None else size_by_collection(state),
        "digest": digests.get(checkpoint.version),
    }


def _sizes(state: BankState) -> str:
    parts = [f"{name} {size:,}" for name, size in size_by_collection(state).items()]
    return f"{len(state.records):,} ({', '.join(parts)})" if parts else "0"
