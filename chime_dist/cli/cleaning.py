"""``clean``: what launches left outside their results, shown, asked about and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.cli.boundary import ExitCode
from chime_dist.cli.output import counted, say, show_json, show_text
from chime_dist.core.episode import Json
from chime_dist.wiring.cleaning import Leftover, clean, leftovers

_NAMES = {
    "processes": "processes without an owner",
    "points": "points",
    "keys": "keys",
    "state": "embedded state",
    "socket": "socket",
    "results": "all results",
}


@dataclass(frozen=True, slots=True)
class Manner:
    """How the command behaves."""

    yes: bool
    dry_run: bool
    as_json: bool


def clean_launches(paths: Sequence[Path], results: bool, manner: Manner) -> ExitCode:
    """Look at all launches, ask once, and clean them one by one.

    Raises RunDirectoryError where one of them is driven, before anything is removed; ConfigError, ServiceError.
    """
    launches = list({launch.id: launch for launch in map(LaunchDirectory.open, paths)}.values())
    found = {launch.id: asyncio.run(leftovers(launch, results=results)) for launch in launches}
    there = [launch for launch in launches if found[launch.id]]
    if not manner.as_json:
        for launch in launches:
            say("\n".join(_listed(launch, found[launch.id])))
    removing = there and not manner.dry_run
    if removing and not manner.yes and not _agreed(manner):
        say("nothing was removed")
        return ExitCode.ERROR
    removed: dict[str, list[Leftover]] = {}
    for launch in there if removing else ():
        removed[launch.id] = asyncio.run(clean(launch, results=results))
        if not manner.as_json:
            show_text(f"cleaned {launch.path}: {_sum(removed[launch.id])}\n")
    if manner.as_json:
        shown = [_document(launch, found[launch.id], removed.get(launch.id, [])) for launch in launches]
        show_json({"dry_run": manner.dry_run, "results": results, "launches": shown})
    return ExitCode.COMPLETE


def _agreed(manner: Manner) -> bool:
    if manner.as_json:
        raise typer.BadParameter("nobody can be asked with --json: say --yes, or --dry-run")
    try:
        return typer.confirm("Remove all this?", err=True)
    except typer.Abort:
        # Nobody is there to answer, and the question's line has no end yet.
        say("\nsay --yes to remove it without a question")
        return False


def _listed(launch: LaunchDirectory, found: Sequence[Leftover]) -> list[str]:
    if not found:
        return [f"{launch.path}: nothing to remove"]
    return [f"{launch.path}:", *(f"  {_NAMES[one.what]}: {_amount(one)}, {one.place}" for one in found)]


def _sum(removed: Sequence[Leftover]) -> str:
    return ", ".join(f"{_NAMES[one.what]} ({_amount(one)})" for one in removed) or "nothing was there any more"


def _amount(one: Leftover) -> str:
    if one.unit == "process":
        return f"{one.amount:,} {'process' if one.amount == 1 else 'processes'}"
    return _size(one.amount) if one.unit == "byte" else counted(one.amount, one.unit)


def _size(amount: int) -> str:
    """At least a tenth: an empty folder is something, too."""
    return f"{max(0.1, amount / 2**20):,.1f} MiB"


def _document(launch: LaunchDirectory, found: Sequence[Leftover], removed: Sequence[Leftover]) -> Json:
    return {"launch": launch.id, "directory": launch.path, "found": found, "removed": removed}
