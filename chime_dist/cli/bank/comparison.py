"""``bank diff``: what was inserted, removed and changed between two versions, and by which positions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from chime_dist.cli.bank.contents import memory_of, texts, worth_of
from chime_dist.cli.bank.opened import OpenedBank
from chime_dist.cli.output import counted, foreign, plain_table, show, show_json
from chime_dist.core.history import BankDiff, ItemChange, Snapshot, diff


def show_diff(path: Path, run: str, start: str, end: str, as_json: bool) -> None:
    """The difference between two versions of one run's bank."""
    bank = OpenedBank.of(path, run)
    found = diff(bank.entries, bank.version(start), bank.version(end))
    if as_json:
        show_json({"run_id": bank.run_id, "head": bank.head, **found.model_dump(mode="json")})
    else:
        show(*_diff_view(bank.run_id, found))


def _diff_view(run_id: str, found: BankDiff) -> Iterator[RenderableType]:
    counts = Counter(change.change for change in found.changes)
    parts = [f"{counts[kind]} {kind}" for kind in ("inserted", "removed", "changed")]
    yield foreign(f"{run_id}, version {found.start} to {found.end}: {', '.join(parts)}")
    if found.changes:
        yield _table(found)
    if found.passing:
        names = ", ".join(found.passing)
        yield foreign(f"inserted and removed in between: {counted(len(found.passing), 'item')} ({names})")


def _table(found: BankDiff) -> Table:
    table = plain_table()
    for column in ("Item", "Bank", "Change"):
        table.add_column(column, no_wrap=True)
    for column in ("v", "n", "Version"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("By", overflow="fold")
    table.add_column("Text", overflow="fold")
    for change in found.changes:
        (old_v, old_n), (new_v, new_n) = _worth(change.before), _worth(change.after)
        versions = _step(_version(change.before), _version(change.after))
        table.add_row(
            foreign(change.id),
            foreign(change.collection),
            change.change,
            _step(old_v, new_v),
            _step(old_n, new_n),
            versions,
            foreign(_by(change)),
            _texts(change),
            end_section=True,
        )
    return table


def _by(change: ItemChange) -> str:
    """``value.update at 14-22, 25``, a line for each kind of event."""
    positions: dict[str, list[int]] = {}
    for touch in change.by:
        for kind in touch.kinds:
            positions.setdefault(kind, []).append(touch.position)
    return "\n".join(f"{kind} at {_ranges(found)}" for kind, found in positions.items())


def _ranges(positions: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for position in positions:
        if runs and position == runs[-1][-1] + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _worth(snapshot: Snapshot | None) -> tuple[str, str]:
    memory = None if snapshot is None else memory_of(snapshot.payload)
    return ("", "") if memory is None else (worth_of(memory), str(memory.count))


def _version(snapshot: Snapshot | None) -> str:
    return "" if snapshot is None else str(snapshot.version)


def _step(old: str, new: str) -> str:
    return old if old == new else f"{old} -> {new}".strip()


def _texts(change: ItemChange) -> Text:
    shown = [texts(snapshot.payload) for snapshot in (change.before, change.after) if snapshot is not None]
    if len(shown) == 2 and shown[0] == shown[1]:
        del shown[1]
    return Text("\n->\n").join(shown)
