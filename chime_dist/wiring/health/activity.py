"""What a launch has been doing, told from the end of its log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
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


@dataclass(slots=True)
class Activity:
    """The state that a driver's events lead to."""

    open: dict[str, OpenEpisode] = field(default_factory=dict)
    """By unit key."""
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
        """Take in the next event."""
        unit, run = str(event.get("unit", "")), str(event.get("run", ""))
        if name in _PROGRESS:
            self.progressed_at = at
            self.write_failure = ""
        if name == "episode.started":
            self.open[unit] = OpenEpisode(at, str(event.get("worker", "")), int(event.get("delivery", 1)))
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
    for event in _tail(log_file):
        try:
            at, name = datetime.fromisoformat(event["timestamp"]), str(event["event"])
        except (KeyError, TypeError, ValueError):
            continue
        # The log's times end with milliseconds.
        if since is None or at >= since.replace(microsecond=since.microsecond // 1000 * 1000):
            found.see(at, name, event)
    return found


def _tail(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            data = file.read()
    except OSError:
        return
    for line in data.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event
