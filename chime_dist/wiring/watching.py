"""One look at a launch from outside: who drives it, how far it is, what it has spent, what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from chime_dist.adapters.directory.directory_lock import Holder
from chime_dist.adapters.directory.launch_directory import LaunchDirectory, LaunchStatus, State
from chime_dist.core.spending import Level, Spent, levels
from chime_dist.engine.driven_run import Progress
from chime_dist.wiring.following import Follower
from chime_dist.wiring.health.activity import Logged, Outage
from chime_dist.wiring.spending import stored_limits

START_S = 15.0
"""How long after its creation a launch may be without a driver that starts it, in seconds."""

Seen = State | Literal["new", "starting", "interrupted"]
"""``starting``: its driver has not said anything yet. ``interrupted``: it says running, and nobody holds it."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A launch at one moment."""

    at: datetime
    """UTC."""
    launch: LaunchDirectory
    state: Seen
    reason: str
    holder: Holder | None
    """Its driver."""
    runs: tuple[Progress, ...]
    spent: Spent
    levels: tuple[Level, ...]
    """Of its limits."""
    outages: Mapping[str, Outage]
    """By run id."""
    events: tuple[Logged, ...]
    """What the log told since the last look, oldest first."""
    recent_ends: tuple[float, ...]
    """See ``Follower.recent_ends``."""
    over: bool
    """Whether nobody drives it, and nobody is about to."""


class Observer:
    """Looks again and again, and reads only what is new."""

    def __init__(self, launch: LaunchDirectory) -> None:
        """Raises ConfigError where another version of chime_dist wrote the manifest."""
        self._follower = Follower(launch)

    def look(self) -> Sight:
        """Raises RunDirectoryError, and ConfigError likewise."""
        follower, now = self._follower, datetime.now(UTC)
        launch = follower.launch
        holder, status = launch.holder(), launch.status()
        if holder is None and (status is None or status.state == "running"):
            # A driver may have come between the two looks; one that left said before how it ended.
            holder = launch.holder()
        since = None if holder is None else _moment(holder.started_at)
        follower.look(since)
        launch = follower.launch
        state = _state(holder, status)
        spent = follower.spent(now, since)
        age_s = (now - _moment(launch.manifest.created_at)).total_seconds()
        events = follower.take_events()
        return Sight(
            at=now,
            launch=launch,
            state=state,
            reason=status.reason if status is not None and state == status.state else "",
            holder=holder,
            runs=tuple(follower.progress),
            spent=spent,
            levels=levels(stored_limits(launch), spent),
            outages=dict(follower.activity.outages) if holder is not None else {},
            events=events,
            recent_ends=tuple(follower.recent_ends),
            over=holder is None and (state != "new" or age_s > START_S),
        )


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _state(holder: Holder | None, status: LaunchStatus | None) -> Seen:
    if holder is not None:
        # What an earlier driver said is of no interest any more.
        said = status is not None and _moment(status.changed_at) >= _moment(holder.started_at)
        return status.state if said and status is not None else "starting"
    if status is None:
        return "new"
    return "interrupted" if status.state == "running" else status.state
