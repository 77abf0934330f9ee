"""Where each run of a launch stands: what its head waits for, and whether its journal is sound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.core.episode import EpisodeRecord
from chime_dist.errors import ChimeDistError
from chime_dist.wiring.health.activity import Activity
from chime_dist.wiring.health.finding import Finding, ok, problem, warning
from chime_dist.wiring.results import JournalFile, Standing, run_config

PATIENCE_S = 60.0
"""What takes less than this is not worth a word, in seconds."""
_UNUSUAL = 5.0
"""An episode that takes this many times the median of its run is worth one."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What the findings about runs are made of."""

    launch: LaunchDirectory
    activity: Activity
    now: datetime
    """UTC."""


def journal_finding(launch: LaunchDirectory, run_id: str) -> Finding:
    """Every entry is checked."""
    check = f"journal of {run_id}"
    try:
        journal = JournalFile.read(launch.run(run_id).journal)
        count = sum(1 for _ in journal.entries())
    except ChimeDistError as error:
        return problem(check, str(error), "look closer with", ("bank", "verify", str(launch.path), run_id))
    return ok(check, f"{count} entries, all sound")


def head_findings(observed: Observed, standing: Standing) -> Iterator[Finding]:
    """What a driven run waits for; nothing for one that has ended."""
    if standing.committed < standing.train_total:
        yield _train_head(observed, standing)
    elif standing.evaluated < standing.eval_total:
        yield _eval_tail(observed, standing)


def _train_head(observed: Observed, standing: Standing) -> Finding:
    run_id, head = standing.run_id, standing.committed
    unit, check = f"{run_id}:train:{head}", f"head of {run_id}"
    finals = EpisodeArchive(observed.launch).finals(run_id)
    where = f"version {head} of {standing.train_total} waits for {unit}"
    if unit in finals:
        waits = observed.now - _ended_at(finals[unit])
        what = f"{where}, which ended {_ago(waits)} and is to be committed"
        if waits.total_seconds() <= PATIENCE_S:
            return ok(check, what)
        return problem(check, what, f"the bank's owner does not get on; see {observed.launch.log_file}")
    rest = observed.activity.resting.get(unit)
    if rest is not None and observed.now < rest.until:
        pause = _span(rest.until - observed.now)
        return ok(check, f"{where}, whose delivery {rest.delivery} ended infra: {rest.worker} waits {pause} more")
    if unit not in observed.activity.open:
        return ok(check, f"{where}, which no worker has at the moment")
    return _in_flight(observed, run_id, unit, finals, check, where)


def _eval_tail(observed: Observed, standing: Standing) -> Finding:
    run_id, check = standing.run_id, f"evaluation of {standing.run_id}"
    where = f"{standing.evaluated} of {standing.eval_total} evaluated"
    mine = {u: e for u, e in observed.activity.open.items() if u.startswith(f"{run_id}:eval:")}
    if not mine:
        return ok(check, f"{where}, none in flight")
    oldest = min(mine, key=lambda unit: mine[unit].started_at)
    finals = EpisodeArchive(observed.launch).finals(run_id)
    return _in_flight(observed, run_id, oldest, finals, check, f"{where}; the oldest in flight is {oldest}")


def _in_flight(
    observed: Observed, run_id: str, unit: str, finals: Mapping[str, EpisodeRecord], check: str, where: str
) -> Finding:
    episode = observed.activity.open[unit]
    age = observed.now - episode.started_at
    what = f"{where}, in flight for {_span(age)} at {episode.worker} (delivery {episode.delivery})"
    deadline_s = run_config(observed.launch, run_id).episode.deadline_s
    # The attempt and its gate have a deadline each; an outage stops the clock, and is a finding of its own.
    if age.total_seconds() > 2 * deadline_s + PATIENCE_S and run_id not in observed.activity.outages:
        fix = f"it is past its deadline of {deadline_s:g} s: end that worker's process, another one takes it over"
        return problem(check, what, fix)
    usual = median(record.duration_s for record in finals.values()) if finals else 0.0
    if age.total_seconds() > max(PATIENCE_S, _UNUSUAL * usual):
        return warning(check, f"{what}; episodes of this run usually take {usual:.1f} s")
    return ok(check, what)


def _ended_at(record: EpisodeRecord) -> datetime:
    return datetime.fromisoformat(record.started_at) + timedelta(seconds=record.duration_s)


def _ago(span: timedelta) -> str:
    return f"{_span(span)} ago"


def _span(span: timedelta) -> str:
    return f"{max(0.0, span.total_seconds()):,.0f} s"
