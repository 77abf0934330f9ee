"""``sweep --dry-run``: sweeps of the paper that cannot start here yet, and what anything would about take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chime_dist.core.estimate import disk_bytes
from chime_dist.core.paper import ORDERINGS, PAPER
from tests.cli.conftest import CHIME_EPISODES, NO_PLAN_EPISODES, Program

PAPER_CONFIGS = Path(__file__).parents[2] / "configs" / "paper"
ABSENT = ("tau2", "vitabench", "browsecomp_zh")

PAPER_SWEEP = """\
name: elsewhere
benchmarks: [tau2, {name: vitabench, language: english}]
methods: [no_plan, todoevolve]
backbones: [{name: m, scripted: {seed: 2}}]
roles: {user_simulator: {name: u}}
orderings: [0]
embedder: {kind: hashing, dim: 32}
cluster:
  endpoints: {m: {kind: scripted}, u: {kind: scripted}}
"""


@pytest.fixture(scope="module")
def table1(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outline of the paper's first table; read only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("table1"))
        found: dict[str, Any] = Program(Path.cwd()).json("sweep", PAPER_CONFIGS / "table1.yaml", "--dry-run")
    return found


def test_the_papers_first_table_is_counted_without_its_benchmarks(table1: dict[str, Any]) -> None:
    """R3, R4, R6, R43: 2 backbones x 4 benchmarks x 5 methods x 3 orderings, in the paper's sizes and epochs."""
    assert len(table1["runs"]) == 2 * 4 * 5 * ORDERINGS
    for run in table1["runs"]:
        if run["benchmark"] not in ABSENT:
            continue
        paper = PAPER[run["benchmark"]]
        stream, remembers = paper.streams["paper_numbers"], run["method"] in ("chime", "a_mapreduce")
        assert (run["train"], run["eval"], run["window"]) == (stream.train, stream.eval, paper.concurrency)
        assert run["epochs"] == (paper.epochs if remembers else 1)
    assert table1["episodes"] == sum(run["episodes"] for run in table1["runs"])


def test_what_is_not_installed_is_named_with_how_to_get_it(table1: dict[str, Any]) -> None:
    """R3: also the one domain of BFCL-v4 that is not there; its other seven are counted in full."""
    benchmarks, domain = table1["missing"]
    assert benchmarks.startswith("tau2, vitabench, browsecomp_zh: counted from the paper's streams")
    assert "entry point group chime_dist.benchmarks" in benchmarks
    assert domain == ("bfcl_v4: web_search_base is part of a later version; the counts are without its 100 tasks")
    bfcl = next(run for run in table1["runs"] if run["benchmark"] == "bfcl_v4")
    assert (bfcl["train"], bfcl["eval"]) == (1751 - 70, 755 - 30)
    assert {once["benchmark"] for once in table1["prerequisites"]} == {"bfcl_v4"}


def test_tokens_are_given_for_every_backbone_and_bytes_for_every_run(table1: dict[str, Any]) -> None:
    """R9, R38: the evaluation-side roles have a backbone of their own."""
    assert set(table1["tokens"]) == {"qwen3.5-flash", "deepseek-v4-flash", "qwen3.6-flash"}
    for model, size in table1["tokens"].items():
        spent = [run["tokens"][model] for run in table1["runs"] if model in run["tokens"]]
        spent += [once["tokens"] for once in table1["prerequisites"] if once["backbone"] == model]
        assert size == {kind: sum(one[kind] for one in spent) for kind in ("prompt", "completion")}
        assert size["prompt"] > size["completion"] > 0
    assert table1["disk_bytes"] == sum(run["disk_bytes"] for run in table1["runs"])


def test_sessions_before_the_first_episode_are_counted_once_for_each_backbone(table1: dict[str, Any]) -> None:
    """37 sessions of about 9 turns: whatever the methods and orderings, and by whom the tasks are executed."""
    assert [(once["backbone"], once["count"]) for once in table1["prerequisites"]] == [
        ("qwen3.5-flash", 37),
        ("deepseek-v4-flash", 37),
    ]
    for once in table1["prerequisites"]:
        assert (once["calls"], once["calls_at_most"]) == (37 * 9 * 2, 37 * 9 * 10)
        assert once["tokens"] == {"prompt": 666 * 3_800, "completion": 666 * 80}
    for calls in ("calls", "calls_at_most"):
        by_runs = sum(run[calls]["executor"] for run in table1["runs"])
        assert table1[calls]["executor"] == by_runs + sum(once[calls] for once in table1["prerequisites"])


def test_prices_are_estimated_for_each_backbone_that_has_one(program: Program) -> None:
    """About and at most, no prompt taken as cached; a backbone without a price is named and in no sum."""
    priced = PAPER_SWEEP.replace("m: {kind: scripted}", "m: {kind: scripted, price: {input: 0.5, output: 2}}")
    document = program.json("sweep", program.write(priced), "--dry-run")
    assert (document["currency"], document["costs"]["u"]) == ("USD", None)
    for bound, sizes in (("about", "tokens"), ("at_most", "tokens_at_most")):
        size = document[sizes]["m"]
        expected = (0.5 * size["prompt"] + 2 * size["completion"]) / 1_000_000
        assert document["costs"]["m"][bound] == pytest.approx(expected)
    assert document["costs"]["m"]["at_most"] > 2 * document["costs"]["m"]["about"]
    told = program("sweep", program.write(priced), "--dry-run").stdout
    about, at_most = (f"{document['costs']['m'][bound]:,.0f} USD" for bound in ("about", "at_most"))
    assert f"About {about}, at most {at_most}: m\n" in told
    assert f"About {about}, at most {at_most}: all but u, whose price is not known\n" in told

    both = priced.replace("u: {kind: scripted}", "u: {kind: scripted, price: {input: 0.000001, output: 0}}")
    told = program("sweep", program.write(both), "--dry-run").stdout
    assert "USD: u\n" in told
    assert "USD: all\n" in told


def test_without_a_price_no_money_is_spoken_of(program: Program) -> None:
    document = program.json("sweep", program.write(PAPER_SWEEP), "--dry-run")
    assert (document["currency"], document["costs"]) == (None, {})


@pytest.mark.parametrize("words", [["--quiet"], ["--json"]])
def test_a_start_without_its_benchmarks_is_refused_and_writes_nothing(program: Program, words: list[str]) -> None:
    result = program("sweep", program.write(PAPER_SWEEP), *words)
    assert result.exit_code == 1
    assert result.stdout == ""
    first, *lines = result.stderr.splitlines()
    assert first == "error: this sweep needs benchmarks that are not installed:"
    assert [line.split(":")[0].strip() for line in lines[:2]] == ["tau2", "vitabench"]
    assert lines[2] == "take them out of 'benchmarks' to start, or count the sweep with --dry-run"
    assert [path.name for path in program.folder.iterdir()] == ["sweep.yaml"]


def test_calls_follow_the_method_and_the_steps_that_the_benchmark_allows(program: Program) -> None:
    """R39, R43: 100 steps at most; TodoEvolve revises before every eighth; the user simulator answers."""
    document = program.json("sweep", program.write(PAPER_SWEEP), "--dry-run")
    no_plan, todoevolve = document["runs"][:2]
    episodes = 1787 + 769
    assert no_plan["calls"] == {"executor": 20 * episodes, "user_simulator": 10 * episodes}
    assert no_plan["calls_at_most"] == {"executor": 100 * episodes, "user_simulator": 50 * episodes}
    assert todoevolve["calls"]["planner"] == (2 + 19 // 8) * episodes
    assert todoevolve["calls_at_most"]["planner"] == (2 + 99 // 8) * episodes
    assert set(document["tokens"]) == {"m", "u"}


def test_the_other_protocol_has_its_own_sizes(program: Program) -> None:
    """R3 paper_text: tau2 140/60 and VitaBench 280/120; a limit counts there as well."""
    sweep = program.write(PAPER_SWEEP)
    words = ("sweep", sweep, "--dry-run", "--set", "protocol.preset=paper_text")
    sizes = [(run["benchmark"], run["train"], run["eval"]) for run in program.json(*words)["runs"]]
    assert sizes == [("tau2", 140, 60)] * 2 + [("vitabench", 280, 120)] * 2
    limited = program.json(*words, "--limit", "10")["runs"]
    assert [(run["train"], run["eval"]) for run in limited] == [(7, 3)] * 4


def test_a_benchmark_that_nobody_knows_is_a_usage_error(program: Program) -> None:
    result = program("sweep", program.write(PAPER_SWEEP.replace("tau2", "tau3")), "--dry-run")
    assert result.exit_code == 2
    assert "there is no benchmark 'tau3'" in result.stderr


def test_people_see_tokens_bytes_and_orderings_on_one_line(program: Program) -> None:
    """Runs that differ in nothing but their ordering are one line."""
    text = program.write().read_text().replace("orderings: [0]", "orderings: [0, 2]")
    result = program("sweep", program.write(text), "--dry-run")
    shown = " ".join(result.stdout.split())
    assert f"chime 0, 2 14 x 2 6 2 {2 * CHIME_EPISODES}" in shown.replace("bfcl_v4 m ", "")
    assert f"4 runs, {2 * (CHIME_EPISODES + NO_PLAN_EPISODES)} episodes" in result.stdout
    assert "prompt and " in result.stdout
    size = 2 * (disk_bytes("bfcl_v4", 28, 6, 4, 32) + disk_bytes("bfcl_v4", 14, 6, 0, 32))
    assert f"About {size / 1000:.3g} kB of results" in result.stdout
    # Whoever asks for some categories misses none of the others.
    assert "NOT INSTALLED" not in result.stdout


def test_settings_of_one_method_are_lines_of_their_own(program: Program) -> None:
    """H1: what tells them apart is shown; orderings of each are on one line."""
    methods = "[webanchor, {name: webanchor, candidates: 2}, {name: webanchor, candidates: 3}]"
    words = ("sweep", program.write(), "--dry-run", "--set", f"methods={methods}", "--set", "orderings=[0, 2]")
    shown = " ".join(program(*words).stdout.split()).replace("bfcl_v4 m ", "")
    for line in (
        "webanchor 0, 2 ",
        "webanchor webanchor.candidates=2 0, 2 ",
        "webanchor webanchor.candidates=3 0, 2 ",
    ):
        assert line in shown
    settings = [run["settings"] for run in program.json(*words)["runs"][::2]]
    assert settings == [{}, {"webanchor.candidates": "2"}, {"webanchor.candidates": "3"}]
