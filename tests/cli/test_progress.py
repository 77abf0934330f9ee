"""Progress: the rate, the lines without a terminal, the table on one, and that none of it can stop a run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from rich.console import Console

from chime_dist.cli.progress import (
    LINE_EVERY_S,
    PACE_WINDOW_S,
    Lines,
    LiveTable,
    Pace,
    Silence,
    Watch,
    short_labels,
)
from chime_dist.core.episode import Usage
from chime_dist.core.spending import Payer, Spent
from chime_dist.engine.driven_run import Progress


def _run(head: int, *, evaluated: int = 0, in_flight: int = 2, name: str = "bench-chime-m-o0") -> Progress:
    return Progress(
        run_id=name,
        position=min(20, head + in_flight),
        head=head,
        total=20,
        evaluated=evaluated,
        eval_total=10,
        in_flight=in_flight,
        outcomes={"success": head, "failure": 0, "infra": 1, "gate_error": 2},
    )


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_is_that_of_the_window_and_gives_the_eta() -> None:
    pace = Pace()
    assert pace.per_minute is None
    pace.see(0.0, 0)
    assert (pace.per_minute, pace.eta(10)) == (None, None)
    pace.see(30.0, 5)
    assert pace.per_minute == pytest.approx(10.0)
    assert pace.eta(20) == timedelta(minutes=2)
    pace.see(60.0, 50)
    pace.see(60.0 + PACE_WINDOW_S, 52)
    assert pace.per_minute == pytest.approx(1.0)


def test_a_pace_of_nothing_has_no_eta() -> None:
    pace = Pace()
    pace.see(0.0, 4)
    pace.see(60.0, 4)
    assert (pace.per_minute, pace.eta(3)) == (0.0, None)


def test_lines_come_at_most_every_ten_seconds_and_at_the_end() -> None:
    clock, lines = _Clock(), list[str]()
    with Lines(clock, lines.append) as display:
        for second in range(25):
            clock.now = 100.0 + second
            display.show([_run(second // 2), _run(0, name="other")])
    assert [line.split("committed ")[1].split(")")[0] for line in lines] == ["0", "5", "10", "12"]
    assert LINE_EVERY_S == 10.0
    assert lines[1] == (
        "progress: 2 runs, train 9/40 (committed 5), eval 0/20, 4 in flight, success 5, failure 0, infra 2,"
        " gate error 4, 30.0 episodes/min, 55 left, ETA 0:01:50"
    )


def test_the_last_report_is_not_told_twice() -> None:
    lines: list[str] = []
    with Lines(_Clock(), lines.append) as display:
        display.show([_run(1)])
    assert len(lines) == 1


def test_without_a_report_there_is_no_line() -> None:
    lines: list[str] = []
    with Lines(_Clock(), lines.append):
        pass
    assert lines == []


def test_a_terminal_gets_a_row_per_run_and_the_sums() -> None:
    out, clock = io.StringIO(), _Clock()
    console = Console(file=out, force_terminal=True, width=140, height=40, color_system=None)
    with LiveTable(console, clock) as display:
        display.show([_run(3)])
        clock.now += 30.0
        display.show([_run(8, evaluated=1)])
    row = [line for line in out.getvalue().splitlines() if "bench-chime-m-o0" in line][-1]
    assert "━" in row
    assert row.split()[-8:] == ["10/20", "v8", "1/10", "2", "8", "0", "1", "2"]
    assert "9/30 episodes, 12.0 episodes/min, 21 left, ETA 0:01:45" in out.getvalue()


def test_what_is_spent_is_told_where_it_is_known() -> None:
    spent = Spent({Payer("m", "gate"): Usage(prompt_tokens=12_000, completion_tokens=345)}, {}, 60.0)
    out, lines, clock = io.StringIO(), list[str](), _Clock()
    console = Console(file=out, force_terminal=True, width=100, height=40, color_system=None)
    with LiveTable(console, clock) as table, Lines(clock, lines.append) as told:
        for display in (table, told):
            display.show([replace(_run(8), outcomes={"success": 6, "failure": 2})], spent)
    assert "75.0 % success so far, 12,345 tokens, cost -" in out.getvalue()
    assert lines[0].endswith("22 left, 12,345 tokens, cost -")
    watch = Watch(Silence(), lambda: spent)
    watch([_run(1)])
    assert watch.in_flight == 2


def test_a_low_terminal_shows_the_runs_that_have_work() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=140, height=12, color_system=None)
    runs = [_run(20, evaluated=10, in_flight=0, name=f"done-{k}") for k in range(9)]
    with LiveTable(console, _Clock()) as display:
        display.show([*runs, _run(2, name="working")])
    assert "working" in out.getvalue()
    assert "7 more runs have nothing open or are done" in out.getvalue()


def test_runs_have_short_labels_and_no_name_is_cut() -> None:
    ids = [f"bfcl_v4-{method}-smollm2-o{k}-0a1b2c3{k}" for method in ("chime", "no_plan") for k in range(3)]
    assert list(short_labels(ids).values())[:3] == ["chime o0", "chime o1", "chime o2"]
    twice = ["b-chime-m-o0-11111111", "b-chime-m-o0-22222222", "b-chime-m-o0-22222222-fork7"]
    assert list(short_labels(twice).values()) == ["chime o0 11111111", "chime o0 22222222", "chime o0 fork7"]
    models = ["a-chime-m-o0-11111111", "a-chime-n-o0-22222222"]
    assert list(short_labels(models).values()) == ["chime m o0", "chime n o0"]
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=40, color_system=None)
    with LiveTable(console, _Clock()) as display:
        display.show([_run(3, name=name) for name in ids])
    for label in short_labels(ids).values():
        assert f"\n {label} " in out.getvalue()
    assert "…" not in out.getvalue()


def test_eighty_columns_are_enough_without_bars() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=40, color_system=None)
    with LiveTable(console, _Clock()) as display:
        display.show([_run(1_680, name=f"bfcl_v4-a_mapreduce-m-o{k}-0a1b2c3{k}") for k in range(3)])
    head = next(line for line in out.getvalue().splitlines() if "success" in line)
    assert head.split() == ["run", "train", "bank", "eval", "open", "success", "failure", "infra", "errors"]
    assert "━" not in out.getvalue()


class _Broken(Silence):
    shown = 0

    def show(self, runs: Sequence[Progress], spent: Spent | None = None) -> None:
        self.shown += 1
        raise BrokenPipeError


def test_a_display_that_fails_is_left_alone_and_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    display = _Broken()
    watch = Watch(display)
    watch([_run(1)])
    watch([_run(2, in_flight=5), _run(0)])
    assert (display.shown, watch.in_flight) == (1, 7)
    assert "progress.display_failed" in capsys.readouterr().out
