"""Why a launch stands still, or that it does not: from its folder, and from its queue where that can be reached.

Nothing here holds the launch or writes into it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from chime_dist.adapters.directory.control_file import ControlFile
from chime_dist.adapters.directory.directory_lock import Holder
from chime_dist.adapters.directory.launch_directory import LaunchDirectory, LaunchStatus
from chime_dist.engine.control import Command, cancelled_runs
from chime_dist.errors import ChimeDistError, RunDirectoryError
from chime_dist.wiring import services
from chime_dist.wiring.dead_letters import dead_letters
from chime_dist.wiring.health.activity import Activity, activity
from chime_dist.wiring.health.finding import Finding, ok, problem, warning
from chime_dist.wiring.health.leases import lease_findings
from chime_dist.wiring.health.places import place_finding
from chime_dist.wiring.health.streams import Observed, head_findings, journal_finding
from chime_dist.wiring.results import Standing, standings
from chime_dist.wiring.stored_cluster import stored_cluster

QUIET_S = 300.0
"""A driven launch without an end of an episode or a commit for this long is worth a warning, in seconds."""


async def launch_findings(launch: LaunchDirectory, now: datetime) -> AsyncIterator[Finding]:
    """Everything known, the driver first. ``now`` is UTC."""
    try:
        for finding in _told_by_folder(launch, now):
            yield finding
        if launch.holder() is not None:
            for finding in await lease_findings(launch):
                yield finding
    except RunDirectoryError as error:
        yield problem("records", str(error))


def _told_by_folder(launch: LaunchDirectory, now: datetime) -> Iterator[Finding]:
    status, holder, found = launch.status(), launch.holder(), standings(launch)
    since = datetime.fromisoformat(holder.started_at) if holder is not None else None
    doing = activity(launch.log_file, since)
    yield _driver(launch, status, holder, found, doing)
    cancelled = cancelled_runs(ControlFile(launch).exchanges())
    yield from _cancelled(launch, cancelled)
    yield from _places(launch)
    for run_id in launch.manifest.runs:
        yield journal_finding(launch, run_id)
    yield from _dead(launch)
    if holder is None:
        return
    yield from _outages(doing)
    yield from _progress(doing, since, now, paused=status is not None and status.state == "paused")
    observed = Observed(launch, doing, now)
    for standing in found:
        if standing.run_id not in cancelled:
            yield from head_findings(observed, standing)


def _driver(
    launch: LaunchDirectory,
    status: LaunchStatus | None,
    holder: Holder | None,
    found: tuple[Standing, ...],
    doing: Activity,
) -> Finding:
    state = "new" if status is None else status.state
    reason = f": {status.reason}" if status is not None and status.reason else ""
    resume = ("resume", str(launch.path))
    if holder is not None:
        who = f"process {holder.pid} on {holder.host} drives it since {holder.started_at}"
        if state == "paused":
            go_on = ("ctl", str(launch.path), "continue")
            return problem("driver", f"{who}, paused {reason.removeprefix(': ')}", command=go_on)
        return ok("driver", who)
    owed = sum(standing.owed for standing in found)
    if state == "complete":
        if owed:
            return problem("driver", f"the launch was complete, now {owed} episodes are owed", command=resume)
        return ok("driver", "the launch is complete")
    if state == "running":
        return problem("driver", f"its driver is gone without a word; {owed} episodes are owed", command=resume)
    failure = f" ({doing.failure.strip().splitlines()[-1]})" if doing.failure and not reason else ""
    what = f"no driver runs it, {owed} episodes are owed; it is {state}{reason}{failure}"
    limited = state == "paused" and reason.startswith(": limit: ")
    fix = "with a higher limit (--max-tokens, --max-cost or --max-wall)" if limited else ""
    return problem("driver", what, fix, command=resume)


def _cancelled(launch: LaunchDirectory, cancelled: Mapping[str, Command]) -> Iterator[Finding]:
    for run_id, command in cancelled.items():
        what = f"{run_id} is cancelled by {command.by} since {command.at}"
        yield warning("cancelled", what, command=("ctl", str(launch.path), "revive", run_id))


def _places(launch: LaunchDirectory) -> Iterator[Finding]:
    yield place_finding("the launch", launch.path, local=False)
    try:
        cluster = stored_cluster(launch, ("redis", "qdrant", "state_dir"))
    except ChimeDistError as error:
        yield warning("disk of cluster.state_dir", str(error))
        return
    if cluster.redis.mode == "embedded" or cluster.qdrant.mode == "edge":
        state: Path = services.state_dir(cluster, launch.id)
        yield place_finding("cluster.state_dir", state, local=True)


def _dead(launch: LaunchDirectory) -> Iterator[Finding]:
    letters = dead_letters(launch)
    for letter in letters:
        if letter.fate == "held":
            yield problem(
                "held position",
                f"{letter.unit} failed {letter.deliveries} times ({letter.reason.value}: {letter.detail}) and is "
                "not committed",
                "repair the cause, then",
                ("resume", str(launch.path)),
            )
    kept = [letter for letter in letters if letter.fate != "held"]
    if kept:
        fates = {fate: sum(letter.fate == fate for letter in kept) for fate in dict.fromkeys(x.fate for x in kept)}
        counts = ", ".join(f"{count} {fate.replace('_', ' ')}" for fate, count in fates.items())
        look = ("ctl", str(launch.path), "dead-letters")
        yield warning("dead letters", f"episodes that our machinery failed: {counts}", command=look)


def _outages(doing: Activity) -> Iterator[Finding]:
    for run_id, outage in doing.outages.items():
        yield problem(
            "outage",
            f"the models of {run_id} have not answered since {outage.since.isoformat()}: {outage.reason}",
            "bring the backbone back; the launch waits, goes on by itself, and pauses after outage_patience_s",
        )


def _progress(doing: Activity, since: datetime | None, now: datetime, *, paused: bool) -> Iterator[Finding]:
    if doing.write_failure:
        yield problem("records", f"rows cannot be written: {doing.write_failure}", "free some space")
    last = doing.progressed_at or since
    if last is None or paused or doing.outages:
        return
    quiet: timedelta = now - last
    if quiet.total_seconds() > QUIET_S:
        yield warning("progress", f"no episode ended and nothing was committed for {quiet.total_seconds():,.0f} s")
