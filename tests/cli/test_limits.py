"""Limits on the command line: what they pause can be resumed with the command that is printed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from chime_dist.cli.spending_view import go_on_beyond
from chime_dist.core.spending import Level
from chime_dist.wiring import bookkeeping
from tests.cli.conftest import Program
from tests.wiring.test_limits import SWEEP


def test_a_sweep_that_meets_its_limit_exits_with_3_and_says_how_to_go_on(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookkeeping, "LOOK_EVERY_S", 0.01)
    paused = program(
        "sweep", program.write(SWEEP), "--max-tokens", "4000", "--max-wall", "2h30m", "--max-cost", "9"
    )
    assert paused.exit_code == 3, paused.output
    said = next(line for line in paused.stdout.splitlines() if line.startswith("Paused: limit: tokens "))
    assert " of 4,000. Go on with a higher one: chime-dist resume " in said
    assert "tokens, cost 0.0" in paused.stderr
    shown = program.json("show", "runs/latest")
    assert [limit["limit"] for limit in shown["limits"]] == ["tokens", "cost", "wall"]
    assert shown["limits"][2]["of"] == 9_000
    assert shown["spent"]["tokens"] >= 4_000
    assert shown["spent"]["cost"] == pytest.approx(sum(line["cost"] or 0 for line in shown["spent"]["by"]))
    assert "fix: with a higher limit (--max-tokens" in program("doctor", "runs/latest").stdout
    watched = program("watch", "runs/latest")
    assert watched.exit_code == 3
    command = said.partition("chime-dist ")[2]
    assert watched.stdout.rstrip().endswith(f"Go on with a higher limit:\n  chime-dist {command}")
    assert command.endswith("--max-tokens 8000")
    words = shlex.split(command.replace("8000", "1000000"))
    assert program(*words).exit_code == 0
    table = program("show", "runs/latest").stdout
    assert "limits: tokens " in table
    row = next(line for line in table.splitlines() if line.startswith(" all "))
    assert row.rstrip().endswith(" USD")
    episode = program("show", "runs/latest", "chime", "train:3").stdout
    assert "planner on m: 1 call, 1 request, tokens " in episode
    assert "\nPlan\n" in episode
    assert "0 plan: as above" in episode


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-wall", "soon"], "cluster.limits.wall_s"),
        (["--max-wall", "0"], "cluster.limits.wall_s"),
        (["--max-tokens", "0"], "cluster.limits.tokens"),
        (["--max-cost", "5", "--set", "cluster.endpoints.m.price=null"], "cluster.endpoints.m: has no price"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_wrong_usage(program: Program, words: list[str], message: str) -> None:
    refused = program("sweep", program.write(SWEEP), *words)
    assert refused.exit_code == 2
    assert message in refused.stderr
    assert not (program.folder / "runs").exists()


def test_a_limit_far_below_what_is_spent_is_not_answered_with_one_that_pauses_at_once() -> None:
    level = Level("tokens", 1_671, 100, "tokens 1,671 of 100")
    assert go_on_beyond(Path("runs/x"), level).endswith("--max-tokens 3342")
