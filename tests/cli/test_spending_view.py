"""What was spent at commits and before the runs is shown beside what episodes used, and in every sum."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

from rich.console import Console

from chime_dist.cli.spending_view import spending_document, spending_table
from chime_dist.core.episode import Usage
from chime_dist.core.spending import Payer, Price, Spent
from tests.cli.conftest import Program
from tests.spec.sweeps import SWEEP, journal_of, launched, runs_of

SPENT = Spent(
    {
        Payer("m", "gate"): Usage(calls=5, requests=5, prompt_tokens=5_000, completion_tokens=500),
        Payer("m", "gate", "commits"): Usage(calls=2, requests=3, prompt_tokens=200, completion_tokens=20),
        Payer("m", "executor", "prerequisites"): Usage(calls=9, requests=9, prompt_tokens=900),
        Payer("embedder", "embedder", "commits"): Usage(calls=2, requests=2, prompt_tokens=30),
    },
    {"m": Price(input=1.0, output=1.0)},
    60.0,
)


def test_a_role_has_a_line_for_each_thing_that_it_was_asked_for() -> None:
    out = io.StringIO()
    Console(file=out, width=120).print(spending_table(SPENT))
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert [line for line in lines if line.startswith(("m ", "embedder ", "all "))] == [
        "embedder embedder at commits 2 2 30 0 0 -",
        "m executor for prerequisites 9 9 900 0 0 0.000900 USD",
        "m gate at commits 2 3 200 0 20 0.000220 USD",
        "m gate 5 5 5,000 0 500 0.005500 USD",
        "all 18 19 6,130 0 520 -",
    ]


def test_programs_are_told_what_for() -> None:
    document = spending_document(SPENT)
    assert document["tokens"] == 6_650 == sum(b["prompt_tokens"] + b["completion_tokens"] for b in document["by"])
    assert {(line["role"], line["purpose"]): line["calls"] for line in document["by"]} == {
        ("gate", "episodes"): 5,
        ("gate", "commits"): 2,
        ("executor", "prerequisites"): 9,
        ("embedder", "commits"): 2,
    }


def test_show_tells_of_a_launch_a_run_and_an_episode_what_commits_asked(tmp_path: Path, program: Program) -> None:
    launch = asyncio.run(launched(tmp_path / "shown", SWEEP.replace("[0, 1, 2]", "[0]")))
    [run] = runs_of(launch, "chime")
    asked = [entry for entry in journal_of(launch, run) if entry.usage]
    used = sum((usage for entry in asked for usage in entry.usage.values()), Usage())
    tokens = used.prompt_tokens + used.completion_tokens
    assert tokens > 0
    lines = program.json("show", launch.path)["spent"]["by"]
    assert sum(line["prompt_tokens"] for line in lines if line["purpose"] == "commits") == used.prompt_tokens
    assert f"at commits: {tokens:,} tokens, cost -" in program("show", launch.path, run).stdout
    document = program.json("show", launch.path, run)
    assert document["at_commits"]["gate"]["prompt_tokens"] == used.prompt_tokens
    assert document["costs"].keys() == {"train", "eval", "at commits"}
    episode = program("show", launch.path, run, f"train:{asked[0].position}").stdout
    assert "gate at commits on m: 1 call, 1 request, tokens " in episode
