"""Launches and runs for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from chime_dist.adapters.directory.episode_archive import Phase, PhaseTotals
from chime_dist.adapters.directory.launch_directory import LaunchDirectory, LaunchSummary, RunEntry
from chime_dist.cli.output import foreign, on_one_line, plain_table
from chime_dist.core.episode import EpisodeRecord, Outcome
from chime_dist.core.spending import Spent, money
from chime_dist.wiring.results import Standing

LAST_EPISODES = 20
"""Episodes that a run's view lists; the JSON form has all."""


def launches_view(launches: Sequence[LaunchSummary]) -> Table:
    """One row and one line per launch, oldest first; a launch's name says when it was created."""
    table = plain_table("Launch", "State", "Changed", "Runs", "Note")
    for column in table.columns[:-1]:
        column.no_wrap = True
    for launch in launches:
        holder = launch.holder
        table.add_row(
            Text(str(launch.path)),
            launch.state,
            launch.changed_at[:16].replace("T", " "),
            str(launch.runs),
            on_one_line(launch.reason if holder is None else f"{holder.pid} on {holder.host}"),
        )
    return table


def launch_view(launch: LaunchDirectory, standings: Sequence[Standing]) -> Iterator[RenderableType]:
    """A launch: what it is, and how far each run is."""
    manifest, status, holder = launch.manifest, launch.status(), launch.holder()
    state: str = "new" if status is None else status.state
    if state == "running" and holder is None:
        state = "interrupted (it says running, but no driver holds it)"
    yield foreign(f"{launch.path}: sweep {manifest.sweep}, {state}, created {manifest.created_at}")
    if status is not None and status.reason:
        yield foreign(f"reason: {status.reason}")
    if holder is not None:
        yield foreign(f"driven by process {holder.pid} on {holder.host} since {holder.started_at}")
    versions = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    yield foreign(f"code {manifest.code_commit or 'not from a checkout'}; {versions}", "dim")
    table = plain_table(
        "Run", "Committed", "Evaluated", "Owed", *(outcome.value.capitalize() for outcome in Outcome)
    )
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.justify = "right"
    for standing in standings:
        table.add_row(
            standing.run_id,
            f"{standing.committed}/{standing.train_total}",
            f"{standing.evaluated}/{standing.eval_total}",
            str(standing.owed),
            *(str(standing.outcomes[outcome]) for outcome in Outcome),
        )
    yield table


def run_view(
    run_id: str,
    entry: RunEntry,
    standing: Standing,
    totals: Mapping[Phase, PhaseTotals],
    spent: Mapping[str, Spent],
    records: Sequence[EpisodeRecord],
) -> Iterator[RenderableType]:
    """A run: its shape, its counts, and its newest episodes."""
    settings = ", ".join(f"{key}={value}" for key, value in entry.deviations.items())
    yield foreign(
        f"{run_id}\n"
        f"{entry.train_size} train tasks x {entry.epochs} epochs, {entry.eval_size} eval tasks, "
        f"window {entry.window}; {settings}\n"
        f"bank at version {standing.committed} of {standing.train_total}, {standing.evaluated} of "
        f"{standing.eval_total} evaluated, {standing.owed} episodes owed"
    )
    counts = plain_table("Phase", "Success", "Failure", "Infra", "Unsettled", "Attempts", "Gate errors", "Seconds")
    for column in counts.columns[1:]:
        column.justify = "right"
    for phase, total in totals.items():
        numbers = (total.success, total.failure, total.infra, total.unsettled, total.attempts, total.gate_errors)
        counts.add_row(phase, *map(str, numbers), f"{total.duration_s:.1f}")
    yield counts
    for name, used in spent.items():
        yield Text(f"{name}: {used.tokens:,} tokens, cost {money(used.cost, used.currency)}")
    shown = records[-LAST_EPISODES:]
    if len(shown) < len(records):
        yield Text(f"the last {len(shown)} of {len(records)} attempts:")
    episodes = plain_table("Episode", "Task", "Outcome", "End", "Label", "Steps", "Seconds")
    for record in shown:
        name = record.unit.key.removeprefix(f"{record.unit.run_id}:")
        episodes.add_row(
            name if record.final else f"{name} (not final)",
            foreign(record.unit.task),
            record.outcome.value,
            record.end_reason.value,
            "gate error" if record.gate_status == "gate_error" else record.label or "",
            str(record.steps),
            f"{record.duration_s:.2f}",
        )
    yield episodes
