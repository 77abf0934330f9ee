"""``bank blame``: who wrote, moved and read a memory; what an episode read and wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from rich.console import RenderableType
from rich.text import Text

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.cli.bank.contents import memory_of, texts, worth_of
from chime_dist.cli.bank.opened import OpenedBank
from chime_dist.cli.boundary import ExitCode
from chime_dist.cli.invocation import suggested
from chime_dist.cli.output import counted, foreign, plain_table, say, show, show_json
from chime_dist.cli.targets import EpisodeName, find
from chime_dist.core.blame import (
    CommittedEvent,
    EpisodeBlame,
    ItemBlame,
    Reading,
    blame_commit,
    blame_episode,
    blame_item,
)
from chime_dist.core.canonical import canonical_json
from chime_dist.wiring.bank_tools import readable_traces

_TOLD_ELSEWHERE = ("label", "confidence", "delta", "before", "after", "item_version", "decision")


def show_item(path: Path, run: str, item: str, as_json: bool) -> ExitCode:
    """The life of one item: every event of it and every episode that met it.

    A trace that is missing or damaged is told, and makes the answer an incomplete one.
    """
    bank = OpenedBank.of(path, run)
    damaged: list[str] = []
    try:
        found = blame_item(item, bank.entries, readable_traces(bank.launch, bank.run_id, damaged.append))
    except ValueError as error:
        contents = suggested("bank", "at", bank.launch.path, bank.run_id)
        raise typer.BadParameter(f"{error}; `{contents}` lists what is in it") from None
    if as_json:
        show_json({"run_id": bank.run_id, "head": bank.head, **found.model_dump(), "unreadable": damaged})
    else:
        show(*_item_view(bank, found))
    for message in damaged:
        say(f"warning: {message}; what that episode read is known from the journal at most")
    return ExitCode.INCOMPLETE if damaged else ExitCode.COMPLETE


def show_episode(path: Path, run: str, episode: str, as_json: bool) -> None:
    """What one episode read and wrote."""
    bank = OpenedBank.of(path, run)
    named = find(path, [run, episode]).episode
    assert named is not None, "a word that is no episode is a second run, which find refuses"
    found = _blamed(bank, named)
    if as_json:
        show_json({"run_id": bank.run_id, "head": bank.head, **found.model_dump()})
    else:
        show(*_episode_view(bank, found))


def _blamed(bank: OpenedBank, named: EpisodeName) -> EpisodeBlame:
    trace = EpisodeArchive(bank.launch).trace_at(bank.run_id, named.phase, named.position, named.version)
    if trace is not None:
        return blame_episode(trace, bank.entries)
    if named.phase == "train" and named.position < bank.head:
        return blame_commit(named.position, bank.entries)
    raise typer.BadParameter(f"{bank.run_id} has no finished episode {named}")


def _item_view(bank: OpenedBank, found: ItemBlame) -> Iterator[RenderableType]:
    first = found.events[0]
    standing = f"in the bank at version {bank.head}" if found.item_version is not None else "removed"
    memory = memory_of(found.payload or {})
    worth = "" if memory is None else f", v {worth_of(memory)}, n {memory.count}"
    yield foreign(
        f"{bank.run_id}, {found.collection} {found.id}: {standing}{worth}\n"
        f"inserted by train:{first.position} (task {first.task}, attempt {first.attempt}) as version "
        f"{first.position + 1}"
    )
    yield texts(found.payload or {})
    yield from _events(found.events, with_item=False)
    yield from _readings(found.readings, by_episode=True)


def _episode_view(bank: OpenedBank, found: EpisodeBlame) -> Iterator[RenderableType]:
    label = f", label {found.label}" if found.label else ""
    yield foreign(
        f"{bank.run_id}:{found.episode}, task {found.task}, attempt {found.attempt}\n"
        f"{found.outcome.value}{label}, read bank version {found.read_version}"
    )
    yield from _readings(found.readings, by_episode=False)
    if found.committed_version is None:
        frozen = found.episode.startswith("eval")
        yield foreign("wrote nothing: an evaluation is frozen" if frozen else "wrote nothing: not committed yet")
    elif not found.events:
        why = f", empty: {found.empty_reason}" if found.empty_reason else ""
        yield foreign(f"committed as version {found.committed_version}, without events{why}")
    else:
        yield foreign(f"committed as version {found.committed_version}, {counted(len(found.events), 'event')}")
        yield from _events(found.events, with_item=True)


def _events(events: Sequence[CommittedEvent], *, with_item: bool) -> Iterator[RenderableType]:
    table = plain_table(title=Text("Written"))
    table.add_column("Item" if with_item else "By", no_wrap=True)
    table.add_column("Event", no_wrap=True)
    for column in ("Version", "Item version", "v", "n", "Delta", "Confidence"):
        table.add_column(column, justify="right")
    table.add_column("Label")
    rest = []
    for event in events:
        memory = memory_of(event.payload or {})
        detail = event.detail
        more = {key: value for key, value in detail.items() if key not in _TOLD_ELSEWHERE and value is not None}
        name = f"{event.collection} {event.id or ''}".rstrip() if with_item else f"train:{event.position}"
        table.add_row(
            foreign(name),
            foreign(event.kind),
            str(event.position + 1),
            "" if event.item_version is None else str(event.item_version),
            "" if memory is None else worth_of(memory),
            "" if memory is None else str(memory.count),
            _number(detail.get("delta"), "+.4f"),
            _number(detail.get("confidence"), ".2f"),
            foreign(str(detail.get("label", ""))),
        )
        if more:
            told = ", ".join(f"{key}: {canonical_json(value)}" for key, value in more.items())
            rest.append(foreign(f"{name} {event.kind}: {told}", "dim"))
    yield table
    yield from rest


def _readings(readings: Sequence[Reading], *, by_episode: bool) -> Iterator[RenderableType]:
    if not readings:
        yield foreign("met by no episode" if by_episode else "met no memory")
        return
    table = plain_table(title=Text("Read"))
    table.add_column("Episode" if by_episode else "Item", no_wrap=True)
    table.add_column("Used", no_wrap=True)
    for column in ("Bank version", "Item version", "Rank", "sim", "v~", "Score"):
        table.add_column(column, justify="right")
    table.add_column("Outcome")
    table.add_column("Known from")
    for reading in readings:
        table.add_row(
            foreign(reading.episode if by_episode else f"{reading.collection} {reading.id}"),
            "yes" if reading.selected else "candidate",
            str(reading.version),
            str(reading.item_version),
            "" if reading.rank_after is None else str(reading.rank_after),
            _number(reading.sim, ".6f"),
            _number(reading.adjusted_value, "+.4f"),
            _number(reading.score, ".6f"),
            reading.outcome.value,
            reading.source,
        )
    yield table


def _number(value: object, form: str) -> str:
    return format(value, form) if isinstance(value, int | float) else ""
