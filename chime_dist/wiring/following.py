"""How far a launch is and what it has spent, kept up with while its driver writes.

Every file is read once and then only where it has grown, so a look costs what is new, not what there is. Nothing
here holds the launch or writes into its folder.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ConfigDict

from chime_dist.adapters.directory.artifact_json import decode
from chime_dist.adapters.directory.episode_rows import EpisodeIndex
from chime_dist.adapters.directory.growing_file import GrowingFile
from chime_dist.adapters.directory.launch_directory import MANIFEST, LaunchDirectory, RunEntry, RunFolder
from chime_dist.adapters.directory.prerequisite_files import PrerequisiteCosts
from chime_dist.core.episode import Outcome, Usage
from chime_dist.core.frozen import Frozen
from chime_dist.core.journal import attempt_in, usage_in
from chime_dist.core.spending import BusyTime, Spent, add_usage, prerequisite_payer
from chime_dist.engine.driven_run import Progress
from chime_dist.wiring.health.activity import Activity, Logged, logged
from chime_dist.wiring.spending import payer, stored_prices

RECENT_S = 120.0
"""How far back the ends of episodes are remembered, in seconds."""

JOIN_S = 60.0
"""Longest time between two episodes that counts as work, in seconds."""

LOG_BYTES = 16 * 2**20
"""How much of the log is read at the first look, from its end."""

EVENTS_KEPT = 20

_QUIET = frozenset({"info", "debug"})
_TOLD = frozenset({"run.finished", "control.command", "outage.ended", "launch.extended"})
"""Events below a warning that are worth a line all the same."""


class _Reduced(Frozen):
    model_config = ConfigDict(extra="ignore")


class _UnitPart(_Reduced):
    phase: str
    position: int
    read_version: int


class _Row(_Reduced):
    """What counts of a row of ``episodes.jsonl``."""

    unit: _UnitPart
    attempt: str
    final: bool
    outcome: str
    gate_status: str
    started_at: datetime
    duration_s: float
    usage: dict[str, Usage] = {}


class FollowedRun:
    """One run's rows and journal."""

    def __init__(self, folder: RunFolder, entry: RunEntry) -> None:
        self.run_id = folder.run_id
        self.entry = entry
        self.usage: dict[str, Usage] = {}
        """By role, over all attempts."""
        self.usage_at_commits: dict[str, Usage] = {}
        """Likewise, over all commits."""
        self._copied = entry.forked_from.position if entry.forked_from is not None else 0
        """Positions before it lie here as another run has paid for them."""
        self._rows = GrowingFile(folder.episodes)
        self._journal = GrowingFile(folder.journal)
        self._index = EpisodeIndex()
        """Without offsets: no row is read again."""
        self._evaluated: Counter[int] = Counter()
        """Final eval rows by version."""

    @property
    def head(self) -> int:
        """Train positions committed."""
        return len(self._index.attempts)

    def new_rows(self) -> Iterator[_Row]:
        """Take in what was appended; raises RunDirectoryError for a row that cannot be read."""
        for line in self._rows.lines():
            row = decode(_Row, line, f"a row of {self._rows.path}")
            if row.unit.phase == "eval" or row.unit.position >= self._copied:
                add_usage(self.usage, row.usage.items())
            if row.final:
                self._settle(row)
            yield row

    def look_at_journal(self) -> None:
        """Count new commits. To be called before the rows are looked at: each is durable before its commit."""
        for line in self._journal.lines():
            if self.head >= self._copied:
                add_usage(self.usage_at_commits, usage_in(line).items())
            self._index.commit(attempt_in(line))

    def progress(self, opened: int, opened_train: int) -> Progress:
        """As the driver reports it; ``opened`` episodes are in flight, ``opened_train`` of them in train."""
        total = self.entry.train_size * self.entry.epochs
        index, evaluated = self._index, self._evaluated.total()
        taught = len(index.finals) - evaluated - len(index.ahead)
        empty = self.head - taught
        infra = Outcome.INFRA.value
        names = (*(outcome.value for outcome in Outcome), "gate_error")
        return Progress(
            run_id=self.run_id,
            position=min(total, self.head + len(index.ahead) + opened_train),
            head=self.head,
            total=total,
            evaluated=self._evaluated[total],
            eval_total=self.entry.eval_size,
            in_flight=opened,
            outcomes={name: index.tally[name] + (empty if name == infra else 0) for name in names},
        )

    def _settle(self, row: _Row) -> None:
        unit = row.unit
        place = unit.phase, unit.read_version if unit.phase == "eval" else 0, unit.position
        if place in self._index.finals or not self._index.counts(place, row.attempt):
            return
        self._index.settle(place, 0, row.attempt, row.outcome, row.gate_status)
        if unit.phase == "eval":
            self._evaluated[unit.read_version] += 1


class Follower:
    """A launch, as of the last look."""

    def __init__(self, launch: LaunchDirectory) -> None:
        """Nothing is read yet."""
        self.launch = launch
        self.activity = Activity()
        self.recent_ends: deque[float] = deque()
        """When episodes ended, in seconds since 1970: those of ``RECENT_S`` before the newest."""
        self._events: deque[Logged] = deque(maxlen=EVENTS_KEPT)
        self._runs: dict[str, FollowedRun] = {}
        self._log = GrowingFile(launch.log_file, LOG_BYTES)
        self._prerequisites = PrerequisiteCosts(launch.path)
        self._prepared: dict[str, Usage] = {}
        """What prerequisites used, by backbone."""
        self._busy = BusyTime(JOIN_S)
        self._newest_end = 0.0
        self._prices = stored_prices(launch)
        self._manifest = _stamp(launch.path)
        self._driven_since: datetime | None = None
        self._enter_runs()

    def look_at_files(self) -> None:
        """Take in new commits, attempts and prerequisites: all that ``spent`` needs. Raises RunDirectoryError."""
        self._prepared = self._prerequisites.look()
        for run in self._runs.values():
            run.look_at_journal()
        for run in self._runs.values():
            for row in run.new_rows():
                start = row.started_at.timestamp()
                end = start + row.duration_s
                self._busy.add(start, end)
                self.recent_ends.append(end)
                self._newest_end = max(self._newest_end, end)
                while self.recent_ends[0] < self._newest_end - RECENT_S:
                    self.recent_ends.popleft()

    def look(self, since: datetime | None) -> None:
        """Take in everything new; ``since`` is when the driver of now took the launch, None without one.

        Raises RunDirectoryError, and ConfigError where another version of chime_dist wrote the manifest.
        """
        if (stamp := _stamp(self.launch.path)) != self._manifest:
            self._manifest = stamp
            self.launch = LaunchDirectory.open(self.launch.path)
            self._prices = stored_prices(self.launch)
            self._enter_runs()
        if since != self._driven_since:
            # What an earlier driver had open, or waited for, is over.
            self._driven_since, self.activity = since, Activity()
        self._look_at_log()
        self.look_at_files()

    @property
    def progress(self) -> list[Progress]:
        """Every run, in the manifest's order."""
        driven = self._driven_since is not None
        opened = Counter[str]()
        trained = Counter[str]()
        for unit in self.activity.open if driven else ():
            run_id, _, place = unit.partition(":")
            opened[run_id] += 1
            trained[run_id] += place.startswith("train:")
        return [run.progress(opened[run_id], trained[run_id]) for run_id, run in self._runs.items()]

    def take_events(self) -> tuple[Logged, ...]:
        """The newest ``EVENTS_KEPT`` that were not taken before, oldest first."""
        taken = tuple(self._events)
        self._events.clear()
        return taken

    def spent(self, now: datetime, since: datetime | None) -> Spent:
        """Up to ``now`` (UTC); ``since`` as in ``look``."""
        if since is not None and since <= now:
            self._busy.add(since.timestamp(), now.timestamp())
        usage = {prerequisite_payer(backbone): used for backbone, used in self._prepared.items()}
        for run in self._runs.values():
            config = run.entry.config
            add_usage(usage, ((payer(config, role), used) for role, used in run.usage.items()))
            at_commits = run.usage_at_commits.items()
            add_usage(usage, ((payer(config, role, "commits"), used) for role, used in at_commits))
        return Spent(usage, self._prices, self._busy.seconds)

    def _enter_runs(self) -> None:
        for run_id, entry in self.launch.manifest.runs.items():
            if run_id in self._runs:
                self._runs[run_id].entry = entry
            else:
                self._runs[run_id] = FollowedRun(self.launch.run(run_id), entry)

    def _look_at_log(self) -> None:
        for line in self._log.lines():
            if (event := logged(line)) is None:
                continue
            if event.level not in _QUIET or event.name in _TOLD:
                self._events.append(event)
            if self._driven_since is not None and event.at_or_after(self._driven_since):
                self.activity.see(event.at, event.name, event.details)


def spent_so_far(launch: LaunchDirectory) -> Spent:
    """What a launch has spent up to now, all its files read. Raises RunDirectoryError, ConfigError."""
    follower, holder = Follower(launch), launch.holder()
    follower.look_at_files()
    return follower.spent(datetime.now(UTC), None if holder is None else datetime.fromisoformat(holder.started_at))


def _stamp(launch: Path) -> tuple[int, int]:
    """Changes when the manifest is replaced."""
    status = (launch / MANIFEST).stat()
    return status.st_ino, status.st_mtime_ns
