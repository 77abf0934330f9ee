"""What a launch has been doing, told from the end of its log."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

TAIL_BYTES = 16 * 2**20
"""How much of the log is read, from its end."""

_ENDS = frozenset({"episode.finished", "episode.worker_lost"})
_PROGRESS = frozenset({"episode.finished", "bank.committed"})


@dataclass(frozen=True, slots=True)
class OpenEpisode:
    """An attempt that was started and has not ended."""

    started_at: datetime
    worker: str
    delivery: int


@dataclass(frozen=True, slots=True)
class Outage:
    """Models of a run that do not answer."""

    since: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Rest:
    """A unit whose attempt ended infra and that its worker gives back after a pause."""

    until: datetime
    worker: str
    delivery: int
    """The one that failed."""


@dataclass(slots=True)
class Activity:
    """The state that a driver's events lead to."""

    open: dict[str, OpenEpisode] = field(default_factory=dict)
    """By unit key."""
    resting: dict[str, Rest] = field(default_factory=dict)
    """By unit key, until its next attempt."""
    outages: dict[str, Outage] = field(default_factory=dict)
    """By run id."""
    progressed_at: datetime | None = None
    """The newest end of an episode, or commit."""
    write_failure: str = ""
    """Why rows could not be written last; empty where they could."""
    failure: str = ""
    """Why the launch ended, where it failed."""
    _down: dict[str, int] = field(default_factory=dict)
    """Processes that have seen an outage of a run begin and not end."""

    def see(self, at: datetime, name: str, event: dict[str, Any]) -> None:
        """Take in the next event. One with values that this version does not write is passed over."""
        with suppress(TypeError, ValueError, OverflowError):
            self._take(at, name, event)

    def _take(self, at: datetime, name: str, event: dict[str, Any]) -> None:
        unit, run = str(event.get("unit", "")), str(event.get("run", ""))
        if name in _PROGRESS:
            self.progressed_at = at
            self.write_failure = ""
        if name == "episode.started":
            self.open[unit] = OpenEpisode(at, str(event.get("worker", "")), int(event.get("delivery", 1)))
            self.resting.pop(unit, None)
        elif name == "episode.rests":
            until = at + timedelta(seconds=float(event.get("pause_s", 0.0)))
            self.resting[unit] = Rest(until, str(event.get("worker", "")), int(event.get("delivery", 1)))
        elif name in _ENDS:
            self.open.pop(unit, None)
        elif name == "outage.began":
            self._down[run] = self._down.get(run, 0) + 1
            self.outages.setdefault(run, Outage(at, str(event.get("reason", ""))))
        elif name == "outage.ended":
            self._down[run] = max(0, self._down.get(run, 0) - 1)
            if not self._down[run]:
                self.outages.pop(run, None)
        elif name == "actor.restarting":
            # What it waited for it has forgotten; the next attempt finds out again.
            self._down.clear()
            self.outages.clear()
        elif name == "run_directory.write_failed":
            self.write_failure = str(event.get("reason", ""))
        elif name in ("launch.failed", "launch.crashed"):
            self.failure = str(event.get("error") or event.get("exception") or "")


def activity(log_file: Path, since: datetime | None) -> Activity:
    """From the events at or after ``since`` (UTC), or from all in the last ``TAIL_BYTES``. Unreadable lines are
    passed over; a log that is not there has no events."""
    found = Activity()
    for line in _tail(log_file):
        if (event := logged(line)) is not None and event.at_or_after(since):
            found.see(event.at, event.name, event.details)
    return found


@dataclass(frozen=True, slots=True)
class Logged:
    """A line of a launch's log."""

    at: datetime
    """UTC, cut to milliseconds."""
    level: str
    name: str
    details: dict[str, Any]

    def at_or_after(self, since: datetime | None) -> bool:
        """Always without ``since``."""
        return since is None or self.at >= since.replace(microsecond=since.microsecond // 1000 * 1000)


def logged(line: bytes) -> Logged | None:
    """None for what is no event of ours: a line that was cut, or another program's."""
    try:
        event = json.loads(line)
        at, name = datetime.fromisoformat(event.pop("timestamp")), str(event.pop("event"))
        level = str(event.pop("level", "info"))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return None
    return None if at.tzinfo is None else Logged(at, level, name, event)


def _tail(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            return file.read().splitlines()
    except OSError:
        return []
