"""``bank at``: what is in the bank at a version, and how a record is shown anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from chime_dist.cli.bank.opened import OpenedBank
from chime_dist.cli.output import counted, foreign, plain_table, show, show_json
from chime_dist.core.bank import BankState, Record
from chime_dist.core.canonical import canonical_json
from chime_dist.core.episode import Json
from chime_dist.core.history import size_by_collection
from chime_dist.core.memory import MemoryPayload


def at(path: Path, run: str, version: str, as_json: bool) -> None:
    """The bank of one run at one version."""
    bank = OpenedBank.of(path, run)
    state = bank.state(bank.version(version))
    if as_json:
        show_json(
            {
                "run_id": bank.run_id,
                "version": state.version,
                "head": bank.head,
                "digest": state.digest(),
                "content_hash": bank.content_hash(state.version),
                "collections": {name: state.collection(name) for name in size_by_collection(state)},
            }
        )
    else:
        show(*_bank_view(bank, state))


def _bank_view(bank: OpenedBank, state: BankState) -> Iterator[RenderableType]:
    yield foreign(
        f"{bank.run_id}, version {state.version} of {bank.head}, {counted(len(state.records), 'item')}\n"
        f"digest  {state.digest()}\n"
        f"content {bank.content_hash(state.version)}"
    )
    for name in size_by_collection(state):
        yield _collection_view(name, state.collection(name))


def _collection_view(name: str, records: Sequence[Record]) -> Table:
    table = plain_table(title=foreign(f"{name}, {counted(len(records), 'item')}"))
    for column in ("Item", "v", "n", "Version", "Written at"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("Text", overflow="fold")
    for record in records:
        memory = memory_of(record.payload)
        worth = ("", "") if memory is None else (worth_of(memory), str(memory.count))
        sources = "" if memory is None else ", ".join(map(str, memory.sources))
        table.add_row(
            foreign(record.id), *worth, str(record.version), sources, texts(record.payload), end_section=True
        )
    return table


def memory_of(payload: Mapping[str, Json]) -> MemoryPayload | None:
    """CHIME's view of a payload, or None for another method's."""
    try:
        return MemoryPayload.model_validate(payload)
    except ValidationError:
        return None


def worth_of(memory: MemoryPayload) -> str:
    """v with its sign."""
    return f"{memory.value:+.4f}"


def texts(payload: Mapping[str, Json]) -> Text:
    """A memory's scenario and experience, or another method's payload, which says all there is."""
    memory = memory_of(payload)
    if memory is None:
        return foreign(canonical_json(payload))
    return Text.assemble(foreign(memory.scenario, "bold"), "\n", foreign(memory.experience))
