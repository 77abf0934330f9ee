"""``sweep`` and ``resume``: from a config or a folder to a launch that ran, and to what is worth looking at."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.cli.boundary import ExitCode, Session
from chime_dist.cli.dry_run import Outline
from chime_dist.cli.interruption import Interruptions
from chime_dist.cli.invocation import program, suggested
from chime_dist.cli.output import abandon_stdout, counted, say, show, show_json, show_text, terminal
from chime_dist.cli.progress import Display, Lines, LiveTable, Silence, Watch
from chime_dist.cli.spending_view import go_on_beyond
from chime_dist.config.loading import load_sweep
from chime_dist.core.episode import Json
from chime_dist.engine.driver import Ending
from chime_dist.errors import ChimeDistError
from chime_dist.report.document import Report
from chime_dist.report.json_text import to_json
from chime_dist.report.terminal import to_terminal
from chime_dist.wiring.launch import Launch
from chime_dist.wiring.plans import counted_runs, plan_runs, warnings
from chime_dist.wiring.requirements import missing, require_parts, told_together
from chime_dist.wiring.results import Standing, evaluation_of, launch_report, standings, write_report
from chime_dist.wiring.services import secrets_of

log = structlog.get_logger()

_EXIT_CODES = {
    Ending.COMPLETE: ExitCode.COMPLETE,
    Ending.INCOMPLETE: ExitCode.INCOMPLETE,
    Ending.PAUSED: ExitCode.INCOMPLETE,
    Ending.PREEMPTED: ExitCode.PREEMPTED,
    None: ExitCode.KILLED,
}


@dataclass(frozen=True, slots=True)
class Manner:
    """How a command talks."""

    as_json: bool
    quiet: bool
    """No progress, and of the results only where they are."""


def sweep(session: Session, file: Path, overrides: Sequence[str], dry_run: bool, manner: Manner) -> ExitCode:
    """Launch a sweep, or say what it would do."""
    config = load_sweep(file, overrides)
    session.secrets += secrets_of(config.cluster)
    if not dry_run:
        require_parts(config)
    with told_together(config):
        runs = counted_runs(config) if dry_run else plan_runs(config)
    surprises = [*(f"not installed here: {lack}" for lack in missing(config)), *warnings(runs)]
    for surprise in surprises:
        say(f"warning: {surprise}")
    if dry_run:
        # Those of the config were told when it was loaded.
        outline = Outline.of(config, runs, [*config.warnings(), *surprises])
        if manner.as_json:
            show_json(outline.document())
        else:
            show(*outline.rendered())
        return ExitCode.COMPLETE
    return _driven(session, Launch.new(config, runs), manner)


def resume(session: Session, path: Path, overrides: Sequence[str], manner: Manner) -> ExitCode:
    """Go on with a launch; says what is kept and what is owed."""
    LaunchDirectory.open(path).require_undriven()
    launch = Launch.resume(path, overrides)
    session.secrets += secrets_of(launch.sweep.cluster)
    say(f"resuming {launch.directory.path}")
    found = standings(launch.directory, {run.run_id: run.entry for run in launch.runs})
    for standing in found:
        say(f"  {standing.run_id}: {_kept(standing)}{_unnoted(launch, standing)}")
    if _owes_nothing(launch, found):
        say("nothing is owed: no service is started")
        return _ended(launch, Ending.COMPLETE, manner)
    return _driven(session, launch, manner)


def _owes_nothing(launch: Launch, found: Sequence[Standing]) -> bool:
    """Whether a driver has nothing to do. One that was cut off before it said so still has to tidy up."""
    status = launch.directory.status()
    said = status is not None and status.state == "complete" and launch.directory.holder() is None
    done = not any(one.owed or one.finished or _unnoted(launch, one) for one in found)
    return said and done and not launch.extends


def _unnoted(launch: Launch, standing: Standing) -> str:
    """What is to be said of a run that has nothing to run, and of which only the bank's digests are not kept."""
    if standing.owed or standing.finished or evaluation_of(launch.directory.run(standing.run_id)) is not None:
        return ""
    return "; its evaluation.json is missing and will be written"


def _kept(standing: Standing) -> str:
    parts = [f"{standing.committed} of {standing.train_total} train positions committed"]
    if standing.finished:
        parts.append(f"{standing.finished} finished and not committed")
    parts.append(f"{standing.evaluated} of {standing.eval_total} evaluated")
    return f"kept {counted(standing.kept, 'episode')} ({', '.join(parts)}), owed {standing.owed}"


def _driven(session: Session, launch: Launch, manner: Manner) -> ExitCode:
    directory = launch.directory
    with session.log_to(directory.log_file):
        try:
            with _display(manner) as display:
                watch = Watch(display, lambda: launch.books.spent if launch.books is not None else None)
                ending = asyncio.run(_drive(launch, watch, manner))
        except Exception as error:
            if isinstance(error, ChimeDistError):
                log.error("launch.failed", error=str(error))
            else:
                log.exception("launch.crashed")
            error.add_note(f"the log is {directory.log_file}")
            error.add_note(f"fix it, then: {suggested('resume', directory.path)}")
            raise
    return _ended(launch, ending, manner)


async def _drive(launch: Launch, watch: Watch, manner: Manner) -> Ending | None:
    with Interruptions(launch, lambda: watch.in_flight, say) as interruptions:
        if not manner.quiet:
            say(_greeting(launch))
            launch.tell = say
        return await interruptions.bear(launch.drive(watch))


def _greeting(launch: Launch) -> str:
    episodes = sum(run.plan.shape.total + len(run.plan.eval) for run in launch.runs)
    sizes = {"run": len(launch.runs), "episode": episodes, "slot": launch.sweep.cluster.slots}
    return f"launch {launch.directory.path}: {', '.join(counted(size, noun) for noun, size in sizes.items())}"


def _display(manner: Manner) -> Display:
    console = terminal(stderr=True)
    if manner.quiet:
        return Silence()
    return LiveTable(console) if console.is_terminal else Lines()


def _ended(launch: Launch, ending: Ending | None, manner: Manner) -> ExitCode:
    directory, code = launch.directory, _EXIT_CODES[ending]
    report = None
    # A preempted process may have seconds left, and there will be more to report.
    if ending in (Ending.COMPLETE, Ending.INCOMPLETE, Ending.PAUSED):
        report = launch_report(directory, program=program())
        write_report(directory, report)
        if code is ExitCode.COMPLETE and not report.complete:
            # Positions that were committed empty are missing from the numbers for good (G3).
            code = ExitCode.INCOMPLETE
    try:
        _show_results(launch, ending, code, report, manner)
    except BrokenPipeError:
        # How the launch ended matters more than who reads about it.
        abandon_stdout()
    return code


def _show_results(
    launch: Launch, ending: Ending | None, code: ExitCode, report: Report | None, manner: Manner
) -> None:
    directory = launch.directory
    if manner.as_json:
        show_json(_document(directory, ending, code, report))
    elif manner.quiet:
        show_text(f"{directory.path}\n")
    else:
        if report is not None:
            show(*to_terminal(report).renderables)
        show_text("\n".join([*_ending_lines(launch, ending), *_pointers(launch, ending), ""]))


def _document(directory: LaunchDirectory, ending: Ending | None, code: ExitCode, report: Report | None) -> Json:
    return {
        "launch": directory.id,
        "directory": str(directory.path),
        "ending": ending.value if ending is not None else "killed",
        "exit_code": int(code),
        "report": report and json.loads(to_json(report)),
    }


def _ending_lines(launch: Launch, ending: Ending | None) -> list[str]:
    path = launch.directory.path
    go_on = f"go on with: {suggested('resume', path)}"
    if ending is None:
        return [f"Killed. Open episodes are lost and run again; {go_on}"]
    if ending is Ending.PREEMPTED:
        return [f"Preempted. Every finished episode is kept; {go_on}"]
    if ending is Ending.INCOMPLETE:
        why = launch.reason or "some eval episodes ended infra"
        return [f"Incomplete: {why}; {go_on}", *_last_failures(launch)]
    reached = launch.books.reached if launch.books is not None else None
    if ending is Ending.PAUSED and reached is not None and launch.reason.startswith("limit: "):
        return [f"Paused: {launch.reason}. Go on with a higher one: {go_on_beyond(path, reached)}"]
    if ending is Ending.PAUSED:
        return [f"Paused: {launch.reason}. Repair the cause, then {go_on}", *_last_failures(launch)]
    return []


def _last_failures(launch: Launch) -> list[str]:
    archive = EpisodeArchive(launch.directory)
    lines = []
    for run in launch.runs:
        for failed in deque(archive.failures(run.run_id), maxlen=1):
            record = failed.record
            lines.append(f"  last failure, {record.unit.key}: {record.end_reason.value}: {record.detail}")
    return lines


def _pointers(launch: Launch, ending: Ending | None) -> list[str]:
    path = launch.directory.path
    lines = [f"Results: {path}"]
    if ending not in (Ending.COMPLETE, Ending.INCOMPLETE):
        return lines
    run = next((run for run in launch.runs if run.stateful), launch.runs[0])
    hints = {
        suggested("show", path, run.run_id, "train:0"): "one episode: memories, plan, steps, diagnosis",
        suggested("report", path, "--format", "markdown"): "this report; it is in report/ as well",
    }
    if run.stateful:
        hints[suggested("bank", "at", path, run.run_id, "last")] = "what is in the bank"
    # A command on a line of its own can be copied from a terminal of any width.
    return [
        *lines,
        "Look next:",
        *(line for command, what in hints.items() for line in (f"  {what}", f"    {command}")),
    ]
