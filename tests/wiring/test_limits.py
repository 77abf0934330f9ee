"""Limits pause a launch: nothing is killed, nothing is committed empty, and a higher one goes on."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.models.scripted import ScriptedBackbone
from chime_dist.config.loading import load_sweep
from chime_dist.core.episode import Outcome, Usage
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.core.spending import Payer, tokens_of
from chime_dist.engine.driver import Ending
from chime_dist.errors import ConfigError, RunDirectoryError
from chime_dist.wiring import bookkeeping
from chime_dist.wiring.following import spent_so_far
from chime_dist.wiring.launch import Launch
from chime_dist.wiring.plans import plan_runs
from chime_dist.wiring.results import standings
from chime_dist.wiring.spending import stored_limits, stored_prices
from tests.spec.sweeps import journal_of, written
from tests.steered import steered

EPISODES = 32

SWEEP = steered(endpoint="latency_s: [0.01, 0.02], price: {input: 1.0, output: 4.0}")
"""Two runs of 16 episodes each, and what they cost."""


@pytest.fixture
def new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Launch]:
    """Makes a launch of two runs; its books are looked at all the time."""
    monkeypatch.setattr(bookkeeping, "LOOK_EVERY_S", 0.01)
    file = written(tmp_path, SWEEP)

    def make(*overrides: str) -> Launch:
        sweep = load_sweep(file, overrides, environ={})
        return Launch.new(sweep, plan_runs(sweep))

    return make


def _rows(launch: LaunchDirectory) -> int:
    archive = EpisodeArchive(launch)
    return sum(len(list(archive.records(run))) for run in launch.manifest.runs)


async def test_a_launch_that_spent_its_tokens_is_paused_and_goes_on_under_a_higher_limit(
    new: Callable[..., Launch],
) -> None:
    first = new("cluster.limits.tokens=3000")
    path = first.directory.path
    with capture_logs() as told:
        assert await first.drive(lambda _: None) is Ending.PAUSED
    status = first.directory.status()
    assert status is not None
    assert status.state == "paused"
    assert re.fullmatch(r"limit: tokens [\d,]+ of 3,000", status.reason)
    [near] = [line for line in told if line["event"] == "limit.near"]
    assert (near["log_level"], near["limit"]) == ("warning", "tokens")
    done = _rows(first.directory)
    assert 0 < done < EPISODES
    for standing in standings(first.directory):
        assert standing.committed_empty == 0
        assert standing.outcomes[Outcome.INFRA] == 0
    assert first.books is not None
    assert first.books.spent is not None
    assert first.books.spent.tokens == spent_so_far(first.directory).tokens >= 3_000

    again = Launch.resume(path)
    assert await again.drive(lambda _: None) is Ending.PAUSED
    assert again.reason == f"limit: tokens {first.books.spent.tokens:,} of 3,000"
    assert _rows(again.directory) == done, "what is spent counts for all drivers of a launch"

    higher = Launch.resume(path, ["cluster.limits.tokens=1000000"])
    assert await higher.drive(lambda _: None) is Ending.COMPLETE
    assert _rows(higher.directory) == EPISODES
    kept = LaunchDirectory.open(path)
    assert stored_limits(kept).tokens == 1_000_000, "a raised limit stays raised"


async def test_merges_of_the_bank_count_towards_a_limit(
    new: Callable[..., Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what commits ask is dear here: the episodes alone would stay far below the limit."""
    complete = ScriptedBackbone.complete

    async def dear(self: ScriptedBackbone, request: ChatRequest, budget_s: float) -> ChatReply:
        reply = await complete(self, request, budget_s)
        if not request.session_id.startswith("merge:"):
            return reply
        return reply.model_copy(update={"usage": Usage(calls=1, requests=1, prompt_tokens=1_000_000)})

    monkeypatch.setattr(ScriptedBackbone, "complete", dear)
    launch = new("methods=[chime]", "cluster.limits.tokens=1000000", "protocol.window=4")
    assert await launch.drive(lambda _: None) is Ending.PAUSED
    assert re.fullmatch(r"limit: tokens [\d,]+ of 1,000,000", launch.reason)
    assert 0 < _rows(launch.directory) < EPISODES
    usage = spent_so_far(launch.directory).usage
    assert sum(tokens_of(used) for who, used in usage.items() if who.purpose == "episodes") < 500_000
    asked = {who: used for who, used in usage.items() if who.purpose == "commits"}
    assert {who.role for who in asked} == {"gate", "embedder"}
    merges = sum(bool(entry.usage) for run in launch.runs for entry in journal_of(launch.directory, run.run_id))
    assert asked[Payer("m", "gate", "commits")].calls >= merges > 0
    last = Launch.resume(launch.directory.path, ["cluster.limits.tokens=null"])
    assert await last.drive(lambda _: None) is Ending.COMPLETE


@pytest.mark.parametrize(
    ("limit", "reason"), [("cost=0.003", "limit: cost 0.0"), ("wall_s=0.4", "limit: wall time")]
)
async def test_money_and_time_are_limits_too(new: Callable[..., Launch], limit: str, reason: str) -> None:
    launch = new(f"cluster.limits.{limit}")
    assert await launch.drive(lambda _: None) is Ending.PAUSED
    assert launch.reason.startswith(reason)
    assert 0 < _rows(launch.directory) < EPISODES
    last = Launch.resume(launch.directory.path, [f"cluster.limits.{limit.partition('=')[0]}=null"])
    assert await last.drive(lambda _: None) is Ending.COMPLETE


async def test_a_price_that_a_resume_learns_is_kept_for_reports(new: Callable[..., Launch]) -> None:
    launch = new("cluster.endpoints.m.price=null", "cluster.limits.tokens=1")
    await launch.drive(lambda _: None)
    assert spent_so_far(launch.directory).cost is None
    priced = Launch.resume(launch.directory.path, ["cluster.endpoints.m.price={input: 2, output: 2}"])
    await priced.drive(lambda _: None)
    kept = LaunchDirectory.open(launch.directory.path)
    assert stored_prices(kept)["m"].input == 2.0
    spent = spent_so_far(kept)
    assert spent.cost == pytest.approx(2 * spent.tokens / 1_000_000)


@pytest.mark.parametrize("limit", [None, "cluster.limits.tokens=1000000"])
async def test_rows_that_cannot_be_counted_pause_only_where_there_is_a_limit(
    new: Callable[..., Launch], limit: str | None
) -> None:
    """H8: a damaged row is told by who needs it, not as a limit that nobody set."""
    launch = new(*([limit] if limit else []))
    folder = launch.directory.run(launch.runs[0].run_id)
    folder.path.mkdir()
    folder.episodes.write_text("{}\n")
    if limit is None:
        with pytest.raises(RunDirectoryError, match=r"episodes\.jsonl, line 1"):
            await launch.drive(lambda _: None)
    else:
        assert await launch.drive(lambda _: None) is Ending.PAUSED
        assert launch.reason.startswith("limit: what was spent cannot be counted")


def test_a_cost_limit_needs_the_price_of_every_model_that_is_asked(new: Callable[..., Launch]) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.endpoints\.m: has no price, so cluster\.limits\.cost"):
        new("cluster.limits.cost=5", "cluster.endpoints.m.price=null")


def test_a_cost_limit_needs_the_price_of_an_embedder_that_a_server_answers(new: Callable[..., Launch]) -> None:
    served = ("embedder={kind: http, model: e, dim: 8}", "cluster.limits.cost=5")
    at = "cluster.endpoints.embedder={kind: http, url: 'http://localhost:1/v1'PRICE}"
    with pytest.raises(ConfigError, match=r"cluster\.endpoints\.embedder: has no price"):
        new(*served, at.replace("PRICE", ""))
    assert new(*served, at.replace("PRICE", ", price: {input: 0.1, output: 0}")).sweep.unpriced_endpoints() == []


def test_prices_are_in_one_currency(new: Callable[..., Launch]) -> None:
    other = "cluster.endpoints.n={kind: scripted, price: {input: 1, output: 1, currency: EUR}}"
    with pytest.raises(ConfigError, match="prices are in EUR and USD"):
        new(other)
