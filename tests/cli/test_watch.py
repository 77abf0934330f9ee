"""``watch``: a launch of another process, as lines, as documents, and as a picture."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.benchmarks.credit_world.benchmark import CreditWorld
from chime_dist.cli import watching
from chime_dist.cli.progress import Pace
from chime_dist.cli.watch_view import watch_view
from chime_dist.errors import BenchmarkError
from chime_dist.ports import Environment
from chime_dist.wiring.watching import Observer
from tests.cli.conftest import CHIME_EPISODES, NO_PLAN_EPISODES, Program, run_of
from tests.cli.test_ctl import PATIENCE_S, SWEEP, sweeping

ALL = CHIME_EPISODES + NO_PLAN_EPISODES


def _watching(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "chime_dist", "watch", "runs/latest", "--interval", "0.1", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _documents(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_a_running_launch_is_watched_until_its_driver_is_killed(program: Program) -> None:
    """kill -9 of the driver: whoever watches is told that nobody drives the launch, and how to go on."""
    with sweeping(program) as process, _watching(program.folder, "--json") as watcher:
        assert watcher.stdout is not None
        give_up = time.monotonic() + PATIENCE_S
        for line in watcher.stdout:
            assert time.monotonic() < give_up
            seen = json.loads(line)
            if seen["done"] and seen["in_flight"]:
                break
        assert (seen["state"], seen["holder"]["pid"], seen["exit_code"]) == ("running", process.pid, None)
        assert 0 < seen["done"] < seen["planned"] == 40
        assert seen["spent"]["tokens"] > 0
        assert program("watch", "runs/latest", "--once").exit_code == 0
        process.kill()
        rest, _ = watcher.communicate(timeout=PATIENCE_S)
        last = _documents(rest)[-1]
        assert watcher.returncode == 3
        assert (last["state"], last["over"], last["exit_code"], last["in_flight"]) == ("interrupted", True, 3, 0)
    told = program("watch", "runs/latest")
    assert told.exit_code == 3
    path = LaunchDirectory.open(program.folder / "runs/latest").path.relative_to(program.folder)
    assert told.stdout.splitlines()[0] == f"{path}: interrupted"
    assert "Nobody drives it: its driver is gone without a word, " in told.stdout
    assert told.stdout.rstrip().endswith(f"Go on with:\n  chime-dist resume {path}")


def test_watching_ends_with_the_launch_and_its_exit_code(program: Program) -> None:
    fast = SWEEP.replace("[0.3, 0.5]", "[0.0, 0.02]")
    program.write(fast)
    with subprocess.Popen(
        [sys.executable, "-m", "chime_dist", "sweep", "sweep.yaml", "--quiet"], cwd=program.folder
    ) as process:
        give_up = time.monotonic() + PATIENCE_S
        while not list(program.folder.glob("runs/*/*/sweep.json")):
            assert time.monotonic() < give_up
            time.sleep(0.02)
        watched = program("watch", "runs/latest", "--interval", "0.1")
        assert process.wait(PATIENCE_S) == 0
    assert watched.exit_code == 0
    assert "40/40" not in watched.stdout.splitlines()[0]
    assert "eval 12/12" in watched.stdout
    assert "It is complete; its results:\n  chime-dist report runs/steered/" in watched.stdout


def test_a_finished_launch_shows_its_end(program: Program, launch: LaunchDirectory) -> None:
    with launch.run(run_of(launch, "chime")).episodes.open("ab") as file:
        file.write(b'{"unit":{"run_id')
    told = program("watch", launch.path)
    assert told.exit_code == 0
    assert "train 42/42 (committed 42), eval 12/12" in told.stdout
    assert "tokens, cost -; wall time" in told.stdout
    [document] = _documents(program("watch", launch.path, "--json").stdout)
    assert (document["state"], document["exit_code"]) == ("complete", 0)
    assert document["done"] == document["planned"] == ALL
    totals = [program.json("show", launch.path, run)["totals"] for run in launch.manifest.runs]
    shown = [phase for total in totals for phase in total.values()]
    tokens = sum(u["prompt_tokens"] + u["completion_tokens"] for p in shown for u in p["usage"].values())
    assert document["spent"]["tokens"] == tokens
    scored = [sum(phase[name] for phase in shown) for name in ("success", "failure")]
    assert document["success_rate"] == pytest.approx(scored[0] / sum(scored))


EMPTY = """\
name: empty
benchmarks: [{name: credit_world, families: 1, tasks_per_family: 6, steps: 1}]
methods: [chime]
backbones: [{name: m, scripted: {script: credit_world}}]
orderings: [0]
embedder: {kind: hashing, dim: 32}
protocol: {epochs: 1, window: 2}
cluster:
  slots: 2
  redelivery_pause_s: 0.0
  endpoints: {m: {kind: scripted}}
"""


@pytest.mark.parametrize("broken", [0, 1])
def test_a_complete_launch_with_positions_committed_empty_ends_as_its_driver_did(
    program: Program, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    """G3, H1: nothing is owed and numbers are missing; ``sweep``, ``resume``, ``report``, ``watch`` say so."""
    opened, shown = CreditWorld.open, list[str]()

    async def open_(world: CreditWorld, task: str) -> Environment:
        shown.append(task)
        if broken and task == shown[0]:
            raise BenchmarkError("the simulator crashed")
        return await opened(world, task)

    monkeypatch.setattr(CreditWorld, "open", open_)
    code = 3 if broken else 0
    assert program("sweep", program.write(EMPTY)).exit_code == code
    told = program("watch", "runs/latest")
    assert told.exit_code == code
    [document] = _documents(program("watch", "runs/latest", "--json").stdout)
    assert (document["state"], document["exit_code"]) == ("complete", code)
    assert ("1 position committed empty will have no score" in told.stdout) is bool(broken)
    for words in (("report", "runs/latest"), ("resume", "runs/latest")):
        assert program(*words).exit_code == code


@pytest.mark.parametrize(("state", "code"), [("preempted", 75), ("incomplete", 3), ("paused", 3)])
def test_a_launch_that_ended_otherwise_has_its_code(
    program: Program, launch: LaunchDirectory, state: Any, code: int
) -> None:
    launch.set_status(state, now=datetime.now(UTC), reason="because")
    told = program("watch", launch.path)
    assert told.exit_code == code
    assert f"{state} (because)" in told.stdout
    assert f"It ended {state}, 0 episodes of {ALL} not done. Go on with:\n  chime-dist resume" in told.stdout


def test_an_interrupt_ends_only_the_watching(
    program: Program, launch: LaunchDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(time, "sleep", interrupt)
    with launch.driver_lock() as lock:
        lock.acquire(datetime.now(UTC))
        told = program("watch", launch.path)
        assert launch.holder() is not None
    assert told.exit_code == 130
    assert told.stderr == "watching ended; the launch is left as it is\n"


def _drawn(launch: LaunchDirectory, draw: Callable[[Observer, Console], None]) -> str:
    out = io.StringIO()
    draw(Observer(launch), Console(file=out, force_terminal=True, width=100, height=40, color_system=None))
    return out.getvalue()


def test_the_picture_fits_a_terminal_of_a_hundred_columns(launch: LaunchDirectory) -> None:
    launch.set_status("paused", now=datetime.now(UTC), reason="limit: tokens 5 of 4")

    def draw(observer: Observer, console: Console) -> None:
        sight = observer.look()
        console.print(*watch_view(sight, Pace(), sight.events, console.height))

    picture = _drawn(launch, draw)
    lines = picture.splitlines()
    assert lines[0].endswith(": paused (limit: tokens 5 of 4)") or lines[1].endswith("5 of 4)")
    assert all(len(line) <= 100 for line in lines)
    assert "\n chime o0 " in picture
    assert f"{ALL}/{ALL} episodes, 0 left" in picture
    assert "…" not in picture


def test_a_terminal_gets_one_picture_that_is_drawn_anew(launch: LaunchDirectory) -> None:
    def draw(observer: Observer, console: Console) -> None:
        with watching.Screen(console) as screen:
            for _ in range(2):
                screen.see(observer.look(), None)

    assert "It is complete; its results:" in _drawn(launch, draw)


def test_lines_tell_what_changed_and_nothing_twice(launch: LaunchDirectory) -> None:
    lines: list[str] = []
    observer = Observer(launch)
    with launch.driver_lock() as lock, watching.Lines(lambda: 0.0, lines.append) as viewer:
        lock.acquire(datetime.now(UTC))
        for _ in range(3):
            viewer.see(observer.look(), None)
        before = list(lines)
        launch.set_status("running", now=datetime.now(UTC))
        viewer.see(observer.look(), None)
    assert [line.split(": ")[1].split(",")[0] for line in before if line.startswith(str(launch.path))] == [
        "starting"
    ]
    assert sum(line.startswith("progress: ") for line in before) == 1
    assert len(lines) == len(before) + 1
    assert ": running, driven by process " in lines[-1]
