"""What a report says about money: by role, per success, by endpoint and for the whole launch."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from chime_dist.core.episode import Usage
from chime_dist.core.spending import Price
from chime_dist.errors import ConfigError
from chime_dist.report.build import build_report
from chime_dist.report.csv_text import spent_to_csv, to_csv
from chime_dist.report.document import Report, ReportOptions
from chime_dist.report.json_text import to_json
from chime_dist.report.markdown import to_markdown
from chime_dist.report.results import RunResults
from chime_dist.report.terminal import to_terminal
from chime_dist.wiring.following import spent_so_far
from chime_dist.wiring.results import launch_report
from tests.report.sweep import run
from tests.spec.sweeps import launched

PRICES = {"scripted": Price(input=1.0, output=10.0, cached_input=0.5, currency="EUR")}
ELSEWHERE = {"user_simulator": "qwen3.6-flash", "embedder": "embedder"}

SWEEP = """\
name: priced
benchmarks: [{name: credit_world, families: 1, tasks_per_family: 6, steps: 1}]
methods: [chime, no_plan]
backbones: [{name: m, scripted: {script: credit_world}}]
roles: {gate: {name: g, scripted: {script: credit_world}}}
orderings: [0]
embedder: {kind: hashing, dim: 64}
protocol: {epochs: 1, window: 2}
cluster:
  slots: 2
  endpoints:
    m: {kind: scripted, price: {input: 2.0, output: 8.0}}
    g: {kind: scripted, price: {input: 1.0, output: 4.0}}
"""


def asking(results: RunResults, **more: Usage) -> RunResults:
    """The run with more roles that ask, in every episode."""
    records = tuple(row.model_copy(update={"usage": {**row.usage, **more}}) for row in results.records)
    return results.model_copy(update={"records": records, "endpoints": ELSEWHERE})


def reported(results: RunResults, prices: dict[str, Price]) -> Report:
    options = ReportOptions(orderings=(results.ordering,), directory="d", prices=prices)
    return build_report([results], options)


def test_costs_are_per_role_per_success_and_in_sum() -> None:
    """Two train episodes of 60 fresh, 40 cached and 10 completion tokens: 2 x 180 millionths; one succeeded."""
    text = to_markdown(reported(run(["+-"], "--"), PRICES))

    assert "| toy | scripted | chime | train | planner | scripted | 220 | 0.000360 | 0.000360 |" in text
    assert "| toy | scripted | chime | eval | planner | scripted | 220 | 0.000360 | - |" in text
    assert "| toy | scripted | chime | train | 1/2 | 4.0 | 200.0 | 20.0 | 0.000360 |" in text
    assert (
        "| scripted | 8 | 12 | 400 | 160 | 40 | 0.000720 |\n| all | 8 | 12 | 400 | 160 | 40 | 0.000720 |" in text
    )
    assert "Costs are in EUR" in text


def test_a_role_that_asks_elsewhere_is_named_and_without_its_price_no_sum_is_known() -> None:
    """R38: roles point to backbones of their own; ``-`` is a cost that is not known."""
    results = asking(run(["+"], "+"), user_simulator=Usage(calls=1, prompt_tokens=7), embedder=Usage(calls=3))
    text = to_markdown(reported(results, PRICES))

    assert "| train | user_simulator | qwen3.6-flash | 7 | - | - |" in text
    assert "| train | planner | scripted | 110 | 0.000180 | 0.000180 |" in text
    assert "| train | embedder | embedder | 0 | - | - |" in text
    assert "| train | all | - | 117 | - | - |" in text
    assert "| qwen3.6-flash | 2 | 0 | 14 | 0 | 0 | - |" in text
    assert "| all | 12 | 6 | 214 | 80 | 20 | - |" in text

    both = reported(results, {**PRICES, "qwen3.6-flash": Price(input=100.0, output=0.0, currency="EUR")})
    assert both.rows[0].cost["train"].cost == pytest.approx(0.00018 + 0.0007)
    assert both.total.cost == pytest.approx(2 * (0.00018 + 0.0007))


def test_without_prices_the_tables_have_no_empty_columns() -> None:
    """What says nothing only makes a table wide; who answered is still said where it is somebody else."""
    plain = to_markdown(reported(run(["+"], "+"), {}))
    assert "Cost by role" not in plain
    assert "Costs are in" not in plain
    assert "| all | 4 | 6 | 200 | 80 | 20 | - |" in plain
    elsewhere = to_markdown(reported(asking(run(["+"], "+"), user_simulator=Usage(calls=1)), {}))
    assert "| train | user_simulator | qwen3.6-flash | 0 | - | - |" in elsewhere


def test_attempts_that_were_tried_again_were_paid_for() -> None:
    """H3: history is in no row, but somebody has paid for it."""
    results = run(["+"], "+")
    lost = results.records[0].model_copy(update={"attempt": "earlier", "final": False})
    with_history = results.model_copy(update={"records": (lost, *results.records)})
    report = reported(with_history, PRICES)
    assert report.rows == reported(results, PRICES).rows
    assert report.total.usage.calls == 6
    assert report.total.cost == pytest.approx(3 * 0.00018)


def merging(results: RunResults) -> RunResults:
    """The run with a bank that asked the gate, elsewhere, at its commits."""
    asked = {
        "gate": Usage(calls=3, requests=4, prompt_tokens=1_000, completion_tokens=100),
        "embedder": Usage(calls=3),
    }
    endpoints = {"gate": "g", "embedder": "embedder"}
    return results.model_copy(update={"at_commits": asked, "endpoints": endpoints})


def test_what_commits_asked_stands_beside_the_episodes_and_is_in_every_sum() -> None:
    """Per episode stays per episode: a method's stated calls are those of its episodes."""
    prices = {**PRICES, "g": Price(input=2.0, output=20.0, currency="EUR")}
    results = run(["+-"], "--")
    report, before = reported(merging(results), prices), reported(results, prices)
    text = to_markdown(report)

    assert report.rows[0].cost == before.rows[0].cost
    assert "| toy | scripted | chime | train, at commits | 1/2 | 3.0 | 1000.0 | 100.0 | 0.004000 |" in text
    assert "| train, at commits | gate | - | - | 3 | 4 | 1000 | 0 | 100 |" in text
    assert "| train, at commits | gate | g | 1100 | 0.004000 | 0.004000 |" in text
    assert "| g | 3 | 4 | 1000 | 0 | 100 | 0.004000 |" in text
    assert "| of it at commits | 6 | 4 | 1000 | 0 | 100 | 0.004000 |" in text
    assert report.total.usage == before.total.usage + sum(merging(results).at_commits.values(), Usage())
    assert report.total.cost == pytest.approx((before.total.cost or 0.0) + 0.004)
    assert "at commits" not in "".join(line for line in to_markdown(before).splitlines() if line.startswith("|"))

    (row,) = csv.DictReader(io.StringIO(to_csv(report)))
    assert (row["commit_calls"], row["commit_prompt_tokens"], row["commit_completion_tokens"]) == (
        "6",
        "1000",
        "100",
    )
    assert float(row["commit_cost"]) == pytest.approx(0.004)
    document = json.loads(to_json(report))
    assert document["rows"][0]["at_commits"]["cost_per_success"] == pytest.approx(0.004)
    assert document["purposes"]["commits"]["usage"]["prompt_tokens"] == 1_000


def test_what_was_built_before_the_runs_is_in_the_sum_of_the_launch_alone() -> None:
    results = run(["+"], "+")
    options = ReportOptions(orderings=(0,), directory="d", prices=PRICES)
    used = Usage(calls=7, requests=7, prompt_tokens=50, completion_tokens=5)
    report = build_report([results], options, {"scripted": used})
    assert report.rows == build_report([results], options).rows
    assert report.total.usage == Usage(
        calls=11, requests=13, prompt_tokens=250, completion_tokens=25, cached_tokens=80
    )
    assert "| of it for prerequisites | 7 | 7 | 50 | 0 | 5 | 0.000100 |" in to_markdown(report)


def test_what_a_fork_shares_was_paid_for_once() -> None:
    """A copy is a row of its own, whose costs say what the experiment costs, but no money was spent on it."""
    results = run(["++"], "+")
    fork = results.model_copy(update={"deviations": {"forked_from": "position 1"}, "forked_at": 1})
    report = build_report([results, fork], ReportOptions(orderings=(0,), directory="d"))
    assert [row.cost["train"].episodes for row in report.rows] == [2, 2]
    assert report.total.usage.calls == (3 + 2) * 2


def test_programs_get_costs_as_numbers_and_unknown_ones_as_nothing() -> None:
    results = asking(run(["+"], "-"), user_simulator=Usage(calls=1, prompt_tokens=7))
    prices = {**PRICES, "qwen3.6-flash": Price(input=100.0, output=0.0, currency="EUR")}
    known, unknown = reported(results, prices), reported(results, PRICES)

    (row,) = csv.DictReader(io.StringIO(to_csv(known)))
    assert float(row["train_cost"]) == pytest.approx(0.00088)
    assert row["eval_cost_per_success"] == ""
    assert float(json.loads(row["train_cost_by_role"])["user_simulator"]) == pytest.approx(0.0007)
    assert json.loads(row["answered_by"]) == {"planner": "scripted", "user_simulator": "qwen3.6-flash"}
    assert row["currency"] == "EUR"
    (row,) = csv.DictReader(io.StringIO(to_csv(unknown)))
    assert (row["train_cost"], json.loads(row["train_cost_by_role"])["user_simulator"]) == ("", None)

    lines = {line["endpoint"]: line for line in csv.DictReader(io.StringIO(spent_to_csv(unknown)))}
    assert list(lines) == ["qwen3.6-flash", "scripted", "all"]
    assert (lines["all"]["prompt_tokens"], lines["all"]["cost"]) == ("214", "")
    assert float(lines["scripted"]["cost"]) == pytest.approx(0.00036)

    document = json.loads(to_json(known))
    assert document["currency"] == "EUR"
    assert document["rows"][0]["endpoints"]["user_simulator"] == "qwen3.6-flash"
    assert document["rows"][0]["cost"]["train"]["costs"]["user_simulator"] == pytest.approx(0.0007)
    assert document["rows"][0]["cost"]["train"]["cost_per_success"] == pytest.approx(0.00088)
    assert document["rows"][0]["cost"]["eval"]["cost_per_success"] is None
    assert document["total"]["cost"] == pytest.approx(2 * 0.00088)
    assert json.loads(to_json(unknown))["spent"]["qwen3.6-flash"]["cost"] is None


def test_on_a_narrow_terminal_every_cost_is_on_one_line() -> None:
    """Names and numbers as long as those of a whole paper sweep, in 100 columns."""
    many = Usage(calls=123_456, requests=123_999, prompt_tokens=987_654_321, completion_tokens=98_765_432)
    backbone, prices = "deepseek-v4-flash", {"qwen3.6-flash": Price(input=2.0, output=3.0)}
    results = asking(run(["+-"], "+-", method="a_mapreduce", benchmark="browsecomp_zh"), user_simulator=many)
    report = reported(
        results.model_copy(update={"backbone": backbone}), {**prices, backbone: prices["qwen3.6-flash"]}
    )
    out = io.StringIO()
    Console(file=out, width=100, color_system=None).print(to_terminal(report))
    _, _, text = out.getvalue().partition("\nCost by role")
    costs, _, spent = text.partition("\nSpent by the launch")
    rows = [line.split() for line in costs.splitlines() if "a_mapreduce" in line]
    assert [row[2] for row in rows] == ["planner", "user_simulator", "all"] * 2
    assert rows[1][-4:] == ["qwen3.6-flash", "2172839506", "4,543.21", "4,543.21"]
    [charged] = [line.split() for line in spent.splitlines() if "qwen3.6-flash" in line]
    assert charged[-1] == "9,086.42"


def test_orderings_that_asked_different_backbones_are_no_row() -> None:
    runs = [run(ordering=0), run(ordering=1).model_copy(update={"endpoints": {"gate": "g"}})]
    with pytest.raises(ConfigError, match="its orderings ask different backbones for the same role"):
        build_report(runs, ReportOptions(orderings=(0, 1), directory="d"))


async def test_a_launchs_report_says_what_watch_and_limits_count(tmp_path: Path) -> None:
    """All forms of a launch agree: the report's total is the sum that its limits are held against."""
    launch = await launched(tmp_path, SWEEP)
    report, spent = launch_report(launch), spent_so_far(launch)
    assert report.total.cost == pytest.approx(spent.cost)
    assert spent.cost is not None
    assert {name: charge.cost for name, charge in report.spent.items() if name != "embedder"} == {
        name: pytest.approx(sum(spent.cost_of(who) or 0.0 for who in spent.usage if who.endpoint == name))
        for name in ("m", "g")
    }
    chime, no_plan = report.rows
    assert (chime.endpoints["gate"], chime.endpoints["executor"]) == ("g", "m")
    assert "gate" not in no_plan.endpoints
    assert chime.at_commits is not None
    assert no_plan.at_commits is None
    # Nothing was tried again, so all of it is in the rows.
    assert sum(cost.cost or 0.0 for row in report.rows for _, cost in row.spending) == pytest.approx(spent.cost)
