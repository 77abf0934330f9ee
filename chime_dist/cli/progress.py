"""How a launch is doing, while it runs: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Protocol, Self

import structlog
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from chime_dist.cli.output import counted, plain_table, say
from chime_dist.core.spending import Spent, money
from chime_dist.engine.driven_run import Progress

log = structlog.get_logger()

PACE_WINDOW_S = 120.0
"""How far back the rate looks, in seconds."""
LINE_EVERY_S = 10.0
"""Shortest time between two lines where there is no terminal, in seconds."""
_LINES_KEPT_FREE = 10
"""Of the terminal's height: title, header, borders, sums, and what is said above."""
_BAR_WIDTH = 10
_WIDE = 96
"""Columns from which on there are bars."""
_LABEL_WIDTH = 24
_ID_PARTS = 5
"""Of a run id: benchmark, method, backbone, ordering, digest; a fork's goes on."""

Monotonic = Callable[[], float]
"""Seconds; only differences mean anything."""


class Pace:
    """Episodes per minute over the last ``PACE_WINDOW_S``."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def see(self, now: float, done: int) -> None:
        """At ``now`` (seconds), ``done`` episodes were done."""
        self._seen.append((now, done))
        # The oldest sample may be just outside: a window must span some time even if reports are rare.
        while len(self._seen) > 2 and self._seen[1][0] <= now - PACE_WINDOW_S:
            self._seen.popleft()

    @property
    def per_minute(self) -> float | None:
        """None until some time has passed."""
        if not self._seen:
            return None
        (start, before), (now, done) = self._seen[0], self._seen[-1]
        return 60.0 * (done - before) / (now - start) if now > start else None

    def eta(self, left: int) -> timedelta | None:
        """How long ``left`` episodes take at this pace, to the second; None while nothing moves."""
        rate = self.per_minute
        return timedelta(seconds=round(60.0 * left / rate)) if rate else None


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over runs. Done are committed train positions and evaluated indexes."""

    runs: int
    position: int
    head: int
    train: int
    evaluated: int
    eval: int
    in_flight: int
    outcomes: dict[str, int]

    @classmethod
    def of(cls, runs: Sequence[Progress]) -> Totals:
        """Of a driver's report."""
        names = dict.fromkeys(name for run in runs for name in run.outcomes)
        return cls(
            runs=len(runs),
            position=sum(run.position for run in runs),
            head=sum(run.head for run in runs),
            train=sum(run.total for run in runs),
            evaluated=sum(run.evaluated for run in runs),
            eval=sum(run.eval_total for run in runs),
            in_flight=sum(run.in_flight for run in runs),
            outcomes={name: sum(run.outcomes.get(name, 0) for run in runs) for name in names},
        )

    @property
    def done(self) -> int:
        """Episodes that count as done."""
        return self.head + self.evaluated

    @property
    def success_rate(self) -> float | None:
        """Share of successes among the scored, 0 to 1, train and eval together; None before the first."""
        scored = self.outcomes.get("success", 0) + self.outcomes.get("failure", 0)
        return self.outcomes.get("success", 0) / scored if scored else None

    @property
    def planned(self) -> int:
        """All episodes of the launch."""
        return self.train + self.eval

    def line(self, pace: Pace, spent: Spent | None = None) -> str:
        """One line of text."""
        parts = [
            f"train {self.position}/{self.train} (committed {self.head})",
            f"eval {self.evaluated}/{self.eval}",
            f"{self.in_flight} in flight",
            *(f"{name.replace('_', ' ')} {count}" for name, count in self.outcomes.items()),
            pace_text(pace, self.planned - self.done),
            *([spent_text(spent)] if spent is not None else []),
        ]
        return f"progress: {counted(self.runs, 'run')}, {', '.join(parts)}"


def pace_text(pace: Pace, left: int) -> str:
    """Rate and remaining time in words."""
    rate, eta = pace.per_minute, pace.eta(left)
    if rate is None or eta is None:
        return f"{left} left"
    return f"{rate:.1f} episodes/min, {left} left, ETA {eta}"


def spent_text(spent: Spent) -> str:
    """Tokens and money in words."""
    return f"{spent.tokens:,} tokens, cost {money(spent.cost, spent.currency)}"


def short_labels(run_ids: Sequence[str]) -> dict[str, str]:
    """By run id (``RunConfig.run_id``, or a fork's) a short text that no other run of the launch has.

    Of benchmark and backbone what differs, method and ordering always, and the digest only where the rest is not
    enough, e.g. ``chime o0``. Ids of another form are their own labels.
    """
    parts = {run_id: run_id.split("-") for run_id in run_ids}
    if any(len(found) < _ID_PARTS for found in parts.values()):
        return {run_id: run_id for run_id in run_ids}
    benchmarks, _, backbones, *_ = (set(names) for names in zip(*(p[:4] for p in parts.values()), strict=True))
    labels = {}
    for run_id, (benchmark, method, backbone, ordering, _, *fork) in parts.items():
        told = [benchmark] * (len(benchmarks) > 1) + [method] + [backbone] * (len(backbones) > 1)
        labels[run_id] = " ".join([*told, ordering, *fork])
    doubled = {label for label, count in Counter(labels.values()).items() if count > 1}
    return {
        run_id: f"{label} {parts[run_id][4]}" if label in doubled else label for run_id, label in labels.items()
    }


class Display(AbstractContextManager["Display"], Protocol):
    """Something that shows progress between its start and its end."""

    def show(self, runs: Sequence[Progress], spent: Spent | None = None) -> None:
        """The newest report, and what is spent where that is known."""
        ...


class Silence:
    """``Display`` for ``--quiet``."""

    def show(self, runs: Sequence[Progress], spent: Spent | None = None) -> None:
        """Nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class Lines:
    """``Display`` without a terminal: the first report, one line at most every ``LINE_EVERY_S``, and the last."""

    def __init__(self, clock: Monotonic = time.monotonic, write: Callable[[str], None] = say) -> None:
        self._clock = clock
        self._write = write
        self._pace = Pace()
        self._written_at: float | None = None
        self._pending: tuple[Totals, Spent | None] | None = None

    def show(self, runs: Sequence[Progress], spent: Spent | None = None) -> None:
        """See ``Display``."""
        now, totals = self._clock(), Totals.of(runs)
        self._pending = totals, spent
        self._pace.see(now, totals.done)
        if self._written_at is None or now - self._written_at >= LINE_EVERY_S:
            self._flush()
            self._written_at = now

    def _flush(self) -> None:
        if self._pending is not None:
            totals, spent = self._pending
            self._write(totals.line(self._pace, spent))
            self._pending = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flush()


class LiveTable:
    """``Display`` on a terminal: ``progress_view``, again and again."""

    def __init__(self, console: Console, clock: Monotonic = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._pace = Pace()
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=True)

    def show(self, runs: Sequence[Progress], spent: Spent | None = None) -> None:
        """See ``Display``."""
        self._pace.see(self._clock(), Totals.of(runs).done)
        room = self._console.height - _LINES_KEPT_FREE
        self._live.update(Group(*progress_view(runs, self._pace, spent, room)), refresh=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._live.__exit__(kind, error, trace)


def progress_view(
    runs: Sequence[Progress], pace: Pace, spent: Spent | None, room: int
) -> tuple[RenderableType, ...]:
    """One row per run, those with work first and at most ``room`` of them (3 at least), and the sums."""
    shown = sorted(runs, key=lambda run: (run.in_flight == 0, _done(run)))[: max(3, room)]
    labels = short_labels([run.run_id for run in runs])
    table = _RunTable([(run, labels[run.run_id]) for run in runs if run in shown])
    totals = Totals.of(runs)
    sums = f"{totals.done}/{totals.planned} episodes, {pace_text(pace, totals.planned - totals.done)}"
    if len(shown) < len(runs):
        sums += f"; {len(runs) - len(shown)} more runs have nothing open or are done"
    parts = [spent_text(spent)] if spent is not None else []
    if (rate := totals.success_rate) is not None:
        parts.insert(0, f"{100 * rate:.1f} % success so far")
    return (table, Text(sums), Text(", ".join(parts))) if parts else (table, Text(sums))


@dataclass(frozen=True, slots=True)
class _RunTable:
    """One row per run and label; a narrow terminal has no room for bars."""

    rows: Sequence[tuple[Progress, str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        bars = options.max_width >= _WIDE
        heads = ("train", "bank", "eval", "open", "success", "failure", "infra", "gate\nerrors")
        table = plain_table("run", *([""] if bars else []), *heads)
        for column in table.columns[-len(heads) :]:
            column.justify, column.overflow = "right", "fold"
        # Words stay whole where there is room; a name beyond that goes on in the next line.
        table.columns[0].min_width = min(_LABEL_WIDTH, max((len(label) for _, label in self.rows), default=0))
        for run, label in self.rows:
            name, bar, *counts = _row(run, label)
            table.add_row(name, *([bar] if bars else []), *counts)
        yield table


def _done(run: Progress) -> bool:
    return run.head + run.evaluated >= run.total + run.eval_total


def _row(run: Progress, label: str) -> tuple[RenderableType, ...]:
    counts = [str(run.outcomes.get(name, 0)) for name in ("success", "failure", "infra", "gate_error")]
    return (
        Text(label, overflow="fold"),
        ProgressBar(total=run.total + run.eval_total, completed=run.head + run.evaluated, width=_BAR_WIDTH),
        f"{run.position}/{run.total}",
        f"v{run.head}",
        f"{run.evaluated}/{run.eval_total}",
        str(run.in_flight),
        *counts,
    )


class Watch:
    """What a launch reports to. Keeps the newest report, and never raises: a display is not worth a run."""

    def __init__(self, display: Display, spent: Callable[[], Spent | None] = lambda: None) -> None:
        """``spent`` tells what is spent by now."""
        self._display: Display | None = display
        self._spent = spent
        self._newest: Sequence[Progress] = ()

    def __call__(self, runs: Sequence[Progress]) -> None:
        """Take a report."""
        self._newest = runs
        if self._display is None:
            return
        try:
            self._display.show(runs, self._spent())
        except Exception:
            log.exception("progress.display_failed")
            self._display = None

    @property
    def in_flight(self) -> int:
        """Open episodes, as of the newest report."""
        return sum(run.in_flight for run in self._newest)
