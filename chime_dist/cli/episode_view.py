"""One episode for people: what it read, did, was told, and wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from chime_dist.adapters.directory.run_writer import FailedAttempt
from chime_dist.cli.output import counted, foreign, plain_table
from chime_dist.cli.spending_view import asked_as
from chime_dist.core.bank import Event
from chime_dist.core.canonical import canonical_json
from chime_dist.core.episode import EpisodeRecord, EpisodeTrace, Json, Recall, Step
from chime_dist.core.journal import JournalEntry
from chime_dist.core.spending import Spent, money
from chime_dist.core.task import TaskView

_MOVE = "value.update"


def episode_view(trace: EpisodeTrace, entry: JournalEntry | None, spent: Spent) -> Iterator[RenderableType]:
    """``entry`` is what the journal holds of the episode's position; None in eval, and before the commit."""
    trajectory = trace.trajectory
    yield _heading(trace.record)
    yield from _task(trajectory.view)
    yield from _recalls(trajectory.recalls)
    if trajectory.plan is not None:
        yield _section("Plan")
        yield foreign(trajectory.plan)
    yield _section("Steps")
    for step in trajectory.steps:
        again = step.kind == "plan" and step.content == trajectory.plan
        yield Text(f"{step.index} plan: as above") if again else _step(step)
    yield from _outcome(trace)
    yield from _writes(trace.record, entry)
    if spent.usage:
        yield _section("Calls and tokens")
        yield from _usage(spent)


def empty_view(run_id: str, entry: JournalEntry, attempts: Sequence[FailedAttempt]) -> Iterator[RenderableType]:
    """A train position without a final attempt that was committed all the same: why, and what was tried."""
    yield foreign(
        f"{run_id}:train:{entry.position}\n"
        f"task {entry.task}, read bank version {entry.read_version}\n"
        f"version {entry.position} to {entry.position + 1}, committed {entry.committed_at}\n"
        f"committed empty: {entry.empty_reason or entry.outcome.value}"
    )
    yield _section("Attempts")
    if not attempts:
        yield Text("failures.jsonl holds none")
    for failed in attempts:
        record = failed.record
        when = f"started {record.started_at}, {record.duration_s:.2f} s"
        yield foreign(
            f"{record.attempt} (delivery {record.delivery}), {when}: {record.end_reason.value}: {record.detail}"
        )
        if failed.plan:
            yield _indented(foreign(f"plan: {failed.plan}"))
        for step in failed.last_steps:
            yield _indented(_step(step))


def _heading(record: EpisodeRecord) -> Text:
    unit = record.unit
    return foreign(
        f"{unit.key}\n"
        f"task {unit.task}, epoch {unit.epoch}, reads bank version {unit.read_version}\n"
        f"attempt {record.attempt} (delivery {record.delivery}) on {record.worker or 'an unnamed worker'}, "
        f"started {record.started_at}, {record.duration_s:.2f} s"
    )


def _task(view: TaskView) -> Iterator[RenderableType]:
    yield _section("Task")
    if view.policy:
        yield foreign(f"policy: {view.policy}", "dim")
    yield foreign(view.request)
    names = [str(tool.get("function", {}).get("name", "?")) for tool in view.tools]
    if names:
        yield foreign(f"tools: {', '.join(names)}", "dim")


def _recalls(recalls: Sequence[Recall]) -> Iterator[RenderableType]:
    for recall in recalls:
        yield _section(f"Memories: {recall.collection}, at version {recall.version}")
        yield foreign(f"query: {recall.query}", "dim")
        if not recall.candidates:
            yield Text("none found")
            continue
        table = plain_table("rank", "before", "memory", "sim", "v~", "score", "used")
        for column in table.columns[3:6]:
            column.justify = "right"
        for candidate in sorted(recall.candidates, key=lambda found: found.rank_after):
            table.add_row(
                str(candidate.rank_after),
                str(candidate.rank_before),
                foreign(f"{candidate.id} (v{candidate.item_version})"),
                f"{candidate.sim:.6f}",
                f"{candidate.adjusted_value:+.4f}",
                f"{candidate.score:.6f}",
                "yes" if candidate.selected else "",
            )
        yield table
        for memory in recall.selected:
            yield foreign(f"{memory.id}: {memory.scenario}")
            yield _indented(foreign(memory.experience))


def _step(step: Step) -> Text:
    lines = [f"{step.index} {step.kind}: {step.content}".rstrip()]
    for call in step.data.get("calls", ()):
        given = call["raw"] if "error" in call else canonical_json(call["arguments"])
        lines.append(f"  call {call['name']}({given})" + (f" refused: {call['error']}" if "error" in call else ""))
    lines += [f"  {key}: {value}" for key, value in step.data.items() if key != "calls"]
    return foreign("\n".join(lines))


def _outcome(trace: EpisodeTrace) -> Iterator[RenderableType]:
    record = trace.record
    yield _section("Outcome")
    detail = f": {record.detail}" if record.detail else ""
    yield foreign(f"{record.outcome.value} ({record.end_reason.value}{detail}), {counted(record.steps, 'step')}")
    if record.gate_status == "off":
        return
    yield _section("Diagnosis")
    diagnosis = trace.proposal.diagnosis if trace.proposal is not None else None
    if diagnosis is None:
        yield foreign(f"gate error: {trace.gate.get('reason', 'no decision')}")
    else:
        yield _fields(diagnosis)
    if dropped := {key: value for key, value in trace.gate.items() if key.startswith("dropped") and value}:
        yield _fields(dropped)


def _writes(record: EpisodeRecord, entry: JournalEntry | None) -> Iterator[RenderableType]:
    yield _section("Bank")
    if record.unit.phase == "eval":
        yield Text(f"frozen at version {record.unit.read_version}: an evaluation writes nothing")
        return
    if entry is None:
        yield Text("not committed yet")
        return
    version = f"version {entry.position} to {entry.position + 1}, committed {entry.committed_at}"
    if entry.empty_reason is not None:
        yield foreign(f"{version}, empty: {entry.empty_reason}")
        return
    yield Text(f"{version}, {counted(len(entry.events), 'event')}")
    moves = [event for event in entry.events if _is_move(event)]
    if moves:
        yield _moved(moves)
    for event in entry.events:
        if _is_move(event):
            continue
        yield foreign(f"{event.kind} {event.collection} {event.id or ''}".rstrip())
        # What is there now says more than a copy of it before and after.
        told = event.detail if event.payload is None else {**_without_copies(event.detail), **event.payload}
        yield _indented(_fields(told))


def _is_move(event: Event) -> bool:
    """Whether all that it did was to move a memory's value (Eq. 9)."""
    return event.kind == _MOVE and {"before", "after", "delta"} <= event.detail.keys()


def _without_copies(detail: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in detail.items() if key not in ("before", "after")}


def _moved(moves: Sequence[Event]) -> Table:
    table = plain_table("Memory", "v", "n", "Delta", "Why")
    for column in table.columns[1:4]:
        column.justify = "right"
    for event in moves:
        detail = event.detail
        before, after = detail["before"], detail["after"]
        table.add_row(
            foreign(f"{event.collection} {event.id}"),
            f"{before['value']:+.4f} to {after['value']:+.4f}",
            f"{before['count']} to {after['count']}",
            f"{detail['delta']:+.4f}",
            foreign("misleading" if detail.get("misleading") else f"label {detail.get('label')}"),
        )
    return table


def _usage(spent: Spent) -> Iterator[RenderableType]:
    for who, used in spent.usage.items():
        requests = f"{counted(used.calls, 'call')}, {counted(used.requests, 'request')}"
        tokens = f"{used.prompt_tokens:,} ({used.cached_tokens:,} cached) in, {used.completion_tokens:,} out"
        cost = money(spent.cost_of(who), spent.currency)
        yield foreign(f"{asked_as(who)} on {who.endpoint}: {requests}, tokens {tokens}, cost {cost}")
    yield Text(f"all: {spent.tokens:,} tokens, cost {money(spent.cost, spent.currency)}")


def _section(title: str) -> Text:
    return Text(f"\n{title}", style="bold underline")


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 4), expand=False)


def _fields(values: Mapping[str, Json]) -> Text:
    return foreign("\n".join(f"{key}: {_compact(value)}" for key, value in values.items()))


def _compact(value: Json) -> str:
    return value if isinstance(value, str) else canonical_json(value)
