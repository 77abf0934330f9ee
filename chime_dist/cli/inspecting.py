"""``ls``, ``show`` and ``report``: what is in the runs folder. Nothing here holds a launch or needs a service."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import typer

from chime_dist.adapters.directory.episode_archive import EpisodeArchive, Phase, PhaseTotals
from chime_dist.adapters.directory.launch_directory import LaunchDirectory, list_launches
from chime_dist.cli.boundary import ExitCode
from chime_dist.cli.episode_view import empty_view, episode_view
from chime_dist.cli.invocation import program, suggested
from chime_dist.cli.launch_view import launch_view, launches_view, run_view
from chime_dist.cli.output import foreign, say, show, show_json, show_text
from chime_dist.cli.spending_view import limits_document, limits_text, spending_document, spending_table
from chime_dist.cli.targets import EpisodeName, find
from chime_dist.core.aggregate import Denominator
from chime_dist.core.journal import JournalEntry, parse_line
from chime_dist.core.spending import levels
from chime_dist.report.csv_text import comparisons_to_csv, to_csv
from chime_dist.report.json_text import to_json
from chime_dist.report.markdown import to_markdown
from chime_dist.report.terminal import to_terminal
from chime_dist.wiring.following import spent_so_far
from chime_dist.wiring.results import JournalFile, Standing, launch_report, standings, write_report
from chime_dist.wiring.spending import spent_on, stored_limits

Format = Literal["table", "markdown", "csv", "json"]


def ls(runs_dir: Path, as_json: bool) -> None:
    """All launches below a runs folder."""
    launches = list_launches(runs_dir)
    if as_json:
        show_json({"runs_dir": runs_dir, "launches": launches})
    elif launches:
        show(launches_view(launches))
    else:
        say(f"there is no launch below {runs_dir}; start one with `{suggested('sweep')} FILE`, or name --runs-dir")


def show_target(path: Path, words: Sequence[str], as_json: bool) -> None:
    """A launch, a run or an episode."""
    target = find(path, words)
    if target.episode is not None:
        _show_episode(target.launch, target.require_run(), target.episode, as_json)
    elif target.run_id is not None:
        _show_run(target.launch, target.run_id, as_json)
    else:
        _show_launch(target.launch, as_json)


def _show_launch(launch: LaunchDirectory, as_json: bool) -> None:
    found, spent = standings(launch), spent_so_far(launch)
    limits = levels(stored_limits(launch), spent)
    if as_json:
        manifest = {"manifest": launch.manifest, "status": launch.status(), "holder": launch.holder()}
        money = {"spent": spending_document(spent), "limits": limits_document(limits)}
        runs = [_standing_document(run) for run in found]
        show_json({"directory": launch.path, **manifest, "runs": runs, **money})
    else:
        show(*launch_view(launch, found), spending_table(spent), foreign(limits_text(limits, spent)))


def _standing_document(standing: Standing) -> dict[str, object]:
    return {
        "run_id": standing.run_id,
        "train_total": standing.train_total,
        "committed": standing.committed,
        "finished": standing.finished,
        "eval_total": standing.eval_total,
        "evaluated": standing.evaluated,
        "committed_empty": standing.committed_empty,
        "kept": standing.kept,
        "owed": standing.owed,
        "outcomes": standing.outcomes,
    }


def _show_run(launch: LaunchDirectory, run_id: str, as_json: bool) -> None:
    archive = EpisodeArchive(launch)
    entry, records = launch.manifest.runs[run_id], list(archive.records(run_id))
    standing = next(standing for standing in standings(launch) if standing.run_id == run_id)
    totals = _settled(archive.totals(run_id), standing)
    spent = {str(phase): spent_on(launch, run_id, total.usage) for phase, total in totals.items()}
    if at_commits := JournalFile.read(launch.run(run_id).journal).usage():
        spent["at commits"] = spent_on(launch, run_id, {}, at_commits)
    if as_json:
        document = {"standing": _standing_document(standing), "totals": totals, "records": records}
        money = {"costs": {name: used.cost for name, used in spent.items()}, "at_commits": at_commits}
        show_json({"directory": launch.path, "run_id": run_id, "entry": entry, **document, **money})
    else:
        show(*run_view(run_id, entry, standing, totals, spent, records))


def _settled(totals: dict[Phase, PhaseTotals], standing: Standing) -> dict[Phase, PhaseTotals]:
    """The rows of a position that was committed empty are not final, but no resume tries it again: it is infra."""
    if (train := totals.get("train")) is None:
        return totals
    empty = min(standing.committed_empty, train.unsettled)
    counts = {"infra": train.infra + empty, "unsettled": train.unsettled - empty}
    return {**totals, "train": train.model_copy(update=counts)}


def _show_episode(launch: LaunchDirectory, run_id: str, episode: EpisodeName, as_json: bool) -> None:
    trace = EpisodeArchive(launch).trace_at(run_id, episode.phase, episode.position, episode.version)
    entry = _committed(launch, run_id, episode) if episode.phase == "train" else None
    if trace is None and entry is not None:
        _show_empty(launch, run_id, entry, as_json)
    elif trace is None:
        raise typer.BadParameter(_not_there(launch, run_id, episode))
    else:
        spent = spent_on(launch, run_id, trace.record.usage, {} if entry is None else entry.usage)
        if as_json:
            found = {"trace": trace, "commit": entry, "spent": spending_document(spent)}
            show_json({"directory": launch.path, "run_id": run_id, **found})
        else:
            show(*episode_view(trace, entry, spent))


def _show_empty(launch: LaunchDirectory, run_id: str, entry: JournalEntry, as_json: bool) -> None:
    attempts = [
        failed
        for failed in EpisodeArchive(launch).failures(run_id)
        if (failed.record.unit.phase, failed.record.unit.position) == ("train", entry.position)
    ]
    if as_json:
        document = {"trace": None, "commit": entry, "failed_attempts": attempts}
        show_json({"directory": launch.path, "run_id": run_id, **document})
    else:
        show(*empty_view(run_id, entry, attempts))


def _committed(launch: LaunchDirectory, run_id: str, episode: EpisodeName) -> JournalEntry | None:
    journal = JournalFile.read(launch.run(run_id).journal)
    if episode.position >= journal.head:
        return None
    return parse_line(journal.lines[episode.position], f"{journal.path}, entry {episode.position}")


def _not_there(launch: LaunchDirectory, run_id: str, episode: EpisodeName) -> str:
    entry = launch.manifest.runs[run_id]
    last = entry.train_size * entry.epochs - 1 if episode.phase == "train" else entry.eval_size - 1
    if episode.position > last:
        return f"{run_id} has no {episode}: {episode.phase} goes from 0 to {last}"
    ends = [
        f"\n  {record.attempt}: {record.outcome.value} ({record.end_reason.value}) {record.detail}".rstrip()
        for record in EpisodeArchive(launch).records(run_id)
        if (record.unit.phase, record.unit.position) == (episode.phase, episode.position)
    ]
    if ends:
        return f"{run_id} {episode} has no final attempt yet; more on these is in failures.jsonl:{''.join(ends)}"
    return f"{run_id} {episode} has not ended yet"


def report(
    path: Path,
    partial: bool,
    denominator: Denominator | None,
    compare: tuple[str, str] | None,
    form: Format,
) -> ExitCode:
    """Print a launch's report, and put it into the launch's folder."""
    launch = LaunchDirectory.open(path)
    built = launch_report(launch, partial=partial, denominator=denominator, compare=compare, program=program())
    compared = compare is not None
    if form == "table":
        show(*to_terminal(built, compared=compared).renderables)
    elif form == "csv":
        show_text(comparisons_to_csv(built) if compared else to_csv(built))
    elif form == "markdown":
        show_text(to_markdown(built, compared=compared))
    else:
        show_text(to_json(built))
    write_report(launch, built)
    return ExitCode.COMPLETE if built.complete else ExitCode.INCOMPLETE
