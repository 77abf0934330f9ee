"""What people type to name a launch, a run and an episode."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer

from chime_dist.adapters.directory.launch_directory import LATEST, MANIFEST, LaunchDirectory
from chime_dist.errors import RunDirectoryError

_EPISODE = re.compile(r"(?:(?P<run>.+):)?(?P<phase>train|eval):(?:v(?P<version>\d+):)?(?P<position>\d+)")


@dataclass(frozen=True, slots=True)
class EpisodeName:
    """``train:12``, ``eval:3`` or ``eval:v40:3``."""

    phase: Literal["train", "eval"]
    position: int
    """Train position or eval index, 0-based."""
    version: int | None = None
    """Of an evaluation, where it must be said."""

    def __str__(self) -> str:
        version = "" if self.version is None else f"v{self.version}:"
        return f"{self.phase}:{version}{self.position}"


@dataclass(frozen=True, slots=True)
class Target:
    """A launch, and what in it."""

    launch: LaunchDirectory
    run_id: str | None
    episode: EpisodeName | None

    def require_run(self) -> str:
        """The run that was named, or the launch's only one. Raises typer.BadParameter."""
        return self.run_id if self.run_id is not None else pick_run(self.launch, "")


def find(path: Path, words: Sequence[str] = ()) -> Target:
    """``path`` is a launch's folder, ``.../latest``, or either with a run's name as its last part; ``words`` may
    name a run and an episode.

    A unit's key as logs hold it (``RUN:train:12``) names both. Raises typer.BadParameter for words that name
    nothing or too much, RunDirectoryError where there is no launch.
    """
    launch, run = _opened(path)
    runs = [] if run is None else [run]
    episodes = []
    for word in words:
        if (found := _EPISODE.fullmatch(word)) is None:
            runs.append(word)
            continue
        version = None if found["version"] is None else int(found["version"])
        phase: Literal["train", "eval"] = "train" if found["phase"] == "train" else "eval"
        episodes.append(EpisodeName(phase, int(found["position"]), version))
        if found["run"] is not None:
            runs.append(found["run"])
    if len(runs) > 1 or len(episodes) > 1:
        named = [*runs, *map(str, episodes)]
        raise typer.BadParameter(
            f"name at most one run and one episode (train:12, eval:3), not: {', '.join(named)}"
        )
    return Target(launch, pick_run(launch, runs[0]) if runs else None, episodes[0] if episodes else None)


def _opened(path: Path) -> tuple[LaunchDirectory, str | None]:
    try:
        return LaunchDirectory.open(path), None
    except RunDirectoryError:
        if path.parent.name != LATEST and not (path.parent / MANIFEST).is_file():
            raise
    return LaunchDirectory.open(path.parent), path.name


def pick_run(launch: LaunchDirectory, text: str) -> str:
    """The run of ``launch`` that ``text`` abbreviates: its id, a prefix of one id only, or a part of one only.

    Raises typer.BadParameter that lists the candidates.
    """
    known = launch.manifest.runs
    if text in known:
        return text
    starting = [run for run in known if run.startswith(text)]
    holding = [run for run in known if text in run]
    for found in (starting, holding):
        if len(found) == 1:
            return found[0]
    if not known:
        raise typer.BadParameter(f"{launch.path} has no runs")
    if not text:
        raise typer.BadParameter(f"{launch.path} has {len(known)} runs; name one of them:{_listed(known)}")
    if holding:
        raise typer.BadParameter(f"{text!r} fits {len(holding)} runs; name more of one of them:{_listed(holding)}")
    raise typer.BadParameter(f"{launch.path} has no run {text!r}; it has:{_listed(known)}")


def _listed(runs: Collection[str]) -> str:
    return "".join(f"\n  {run}" for run in runs)
