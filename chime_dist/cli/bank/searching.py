"""``bank search``: which memories a text would find, with every number that decides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from rich.console import RenderableType

from chime_dist.cli.bank.contents import memory_of, texts, worth_of
from chime_dist.cli.bank.opened import OpenedBank
from chime_dist.cli.output import counted, foreign, plain_table, show, show_json
from chime_dist.core.bank import BankState
from chime_dist.core.episode import Candidate
from chime_dist.core.memory import Stage
from chime_dist.wiring.bank_tools import CollectionSearch, search


def show_search(
    path: Path, run: str, text: str, stage: Stage | None, version: str, limit: int, as_json: bool
) -> None:
    """Search one run's bank as its episodes do."""
    bank = OpenedBank.of(path, run)
    state = bank.state(bank.version(version))
    found = asyncio.run(search(bank.launch, bank.run_id, state, text, stage))
    if as_json:
        facts = {"run_id": bank.run_id, "version": state.version, "head": bank.head, "query": text}
        show_json({**facts, "stages": {s.recall.collection: _document(s, state, limit) for s in found}})
        return
    show(foreign(f"{bank.run_id}, version {state.version} of {bank.head}"))
    for one in found:
        show(*_stage_view(one, state, limit))


def _shown(found: CollectionSearch, limit: int) -> list[Candidate]:
    return sorted(found.recall.candidates, key=lambda candidate: candidate.rank_after)[:limit]


def _document(found: CollectionSearch, state: BankState, limit: int) -> dict[str, object]:
    return {
        "candidates": len(found.recall.candidates),
        "below_threshold": found.below_threshold,
        "beyond_top": found.beyond_top,
        "found": [
            {**candidate.model_dump(), "payload": state.records[candidate.id].payload}
            for candidate in _shown(found, limit)
        ],
    }


def _stage_view(found: CollectionSearch, state: BankState, limit: int) -> Iterator[RenderableType]:
    recall = found.recall
    rest = f"{found.below_threshold} below the threshold, {found.beyond_top} beyond the Top-N"
    heading = f"{recall.collection}: {counted(len(recall.candidates), 'candidate')} ({rest})"
    if not recall.candidates:
        yield foreign(heading)
        return
    table = plain_table(title=foreign(heading))
    for column in ("Rank", "Before", "Item", "sim", "v~", "Score", "v", "n"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("Used")
    table.add_column("Text", overflow="fold")
    for candidate in _shown(found, limit):
        payload = state.records[candidate.id].payload
        memory = memory_of(payload)
        table.add_row(
            str(candidate.rank_after),
            str(candidate.rank_before),
            foreign(f"{candidate.id} (v{candidate.item_version})"),
            f"{candidate.sim:.6f}",
            f"{candidate.adjusted_value:+.4f}",
            f"{candidate.score:.6f}",
            "" if memory is None else worth_of(memory),
            "" if memory is None else str(memory.count),
            "yes" if candidate.selected else "",
            texts(payload),
            end_section=True,
        )
    yield table
