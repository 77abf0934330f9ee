"""A look at a launch for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from chime_dist.cli.invocation import suggested
from chime_dist.cli.output import counted, foreign
from chime_dist.cli.progress import Pace, Totals, progress_view, spent_text
from chime_dist.cli.spending_view import go_on_beyond, limits_document, limits_text, spending_document
from chime_dist.core.episode import Json, Outcome
from chime_dist.wiring.health.activity import Logged
from chime_dist.wiring.watching import Sight

EVENTS_SHOWN = 5
_OTHER_LINES = 10
"""Of the terminal's height: the table's frame, and the lines around it."""
_STYLES = {"warning": "yellow", "error": "bold red"}
_STATE_STYLES = {"running": "green", "complete": "green", "paused": "yellow", "interrupted": "bold red"}
_LONGEST_DETAIL = 300


def watch_view(sight: Sight, pace: Pace, events: Sequence[Logged], height: int) -> Iterator[RenderableType]:
    """The whole picture, for a terminal of so many lines; ``events`` are the newest, oldest first."""
    yield Text.assemble(foreign(f"{sight.launch.path}: "), _state(sight))
    troubles = list(trouble_lines(sight))
    lines_free = height - _OTHER_LINES - len(troubles) - len(events)
    yield from progress_view(sight.runs, pace if sight.holder is not None else Pace(), sight.spent, lines_free)
    yield Text(limits_text(sight.levels, sight.spent))
    for line in (*troubles, *map(event_line, events)):
        # A line each, so that the picture is as high as it was taken to be.
        line.no_wrap, line.overflow = True, "ellipsis"
        yield line
    yield from map(foreign, closing_lines(sight))


def _state(sight: Sight) -> Text:
    return Text.assemble((sight.state, _STATE_STYLES.get(sight.state, "bold")), foreign(_about(sight)))


def state_line(sight: Sight) -> str:
    """Where the launch stands and who drives it, without its progress."""
    return f"{sight.launch.path}: {sight.state}{_about(sight)}"


def _about(sight: Sight) -> str:
    reason = f" ({sight.reason})" if sight.reason else ""
    if sight.holder is None:
        return reason
    started = _clock(datetime.fromisoformat(sight.holder.started_at))
    return f"{reason}, driven by process {sight.holder.pid} on {sight.holder.host} since {started}"


def trouble_lines(sight: Sight) -> Iterator[Text]:
    """What the launch waits for."""
    for run_id, outage in sight.outages.items():
        reason = outage.reason[:_LONGEST_DETAIL]
        yield foreign(
            f"outage since {_clock(outage.since)}: the models of {run_id} do not answer: {reason}", "red"
        )


def event_line(event: Logged) -> Text:
    """A line of the log."""
    told = {key: value for key, value in event.details.items() if key != "exception" and value is not None}
    details = ", ".join(f"{key}={value}" for key, value in told.items())
    text = f"{_clock(event.at)} {event.level}: {event.name}: {details}".removesuffix(": ")
    return foreign(text[:_LONGEST_DETAIL].replace("\n", " "), _STYLES.get(event.level, "dim"))


def closing_lines(sight: Sight) -> list[str]:
    """What to do with a launch that nobody drives, commands in lines of their own; nothing while somebody does."""
    if not sight.over:
        return []
    path, totals = sight.launch.path, Totals.of(sight.runs)
    resume = suggested("resume", path)
    if sight.state == "complete":
        empty = sum(run.outcomes.get(Outcome.INFRA, 0) for run in sight.runs)
        but = f", but {counted(empty, 'position')} committed empty will have no score" if empty else ""
        return [f"It is complete{but}; its results:", f"  {suggested('report', path)}"]
    owed = f"{counted(totals.planned - totals.done, 'episode')} of {totals.planned:,} not done"
    if sight.state == "interrupted":
        return [f"Nobody drives it: its driver is gone without a word, {owed}. Go on with:", f"  {resume}"]
    if sight.state == "new":
        return ["Nobody drives it, and nobody has begun. Start it with:", f"  {resume}"]
    reached = [level for level in sight.levels if level.reached]
    if sight.reason.startswith("limit: ") and reached:
        return [f"It ended paused, {owed}. Go on with a higher limit:", f"  {go_on_beyond(path, reached[0])}"]
    return [f"It ended {sight.state}, {owed}. Go on with:", f"  {resume}"]


def progress_line(sight: Sight, pace: Pace) -> str:
    """Everything that moves, in one line."""
    totals = Totals.of(sight.runs)
    rate = totals.success_rate
    success = "" if rate is None else f", {100 * rate:.1f} % success so far"
    shown = pace if sight.holder is not None else Pace()
    return f"{totals.line(shown)}{success}, {spent_text(sight.spent)}; {limits_text(sight.levels, sight.spent)}"


def watch_document(sight: Sight, pace: Pace, exit_code: int | None) -> Json:
    """The same for programs; ``exit_code`` is None while the launch may still move."""
    totals = Totals.of(sight.runs)
    driven = sight.holder is not None
    eta = pace.eta(totals.planned - totals.done) if driven else None
    return {
        "at": sight.at.isoformat(),
        "launch": sight.launch.id,
        "directory": sight.launch.path,
        "state": sight.state,
        "reason": sight.reason,
        "holder": sight.holder,
        "done": totals.done,
        "planned": totals.planned,
        "in_flight": totals.in_flight,
        "success_rate": totals.success_rate,
        "episodes_per_minute": pace.per_minute if driven else None,
        "eta_s": None if eta is None else eta.total_seconds(),
        "runs": sight.runs,
        "spent": spending_document(sight.spent),
        "limits": limits_document(sight.levels),
        "outages": sight.outages,
        "events": sight.events,
        "over": sight.over,
        "exit_code": exit_code,
    }


def _clock(moment: datetime) -> str:
    return f"{moment.astimezone():%H:%M:%S}"
