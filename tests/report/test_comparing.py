"""Paired comparison in reports: which rows, which tasks, what is refused, and how it is shown."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from fractions import Fraction

import pytest

from chime_dist.core.comparison import Interval
from chime_dist.core.episode import EndReason, Usage
from chime_dist.errors import ConfigError
from chime_dist.report.build import build_report
from chime_dist.report.csv_text import comparisons_to_csv, to_csv
from chime_dist.report.document import Paired, Report, ReportOptions
from chime_dist.report.json_text import to_json
from chime_dist.report.markdown import to_markdown
from chime_dist.report.results import FORKED, BankPoint, RunResults
from tests.report.sweep import run
from tests.report.test_forms import printed

TWO = ReportOptions(orderings=(0, 1), directory="runs/demo/l1")
ONE = TWO.model_copy(update={"orderings": (0,)})


def against(report: Report) -> list[tuple[str, str, str]]:
    """Split and the two methods of every comparison."""
    rows = report.rows
    return [(pair.split, rows[pair.first].method, rows[pair.second].method) for pair in report.comparisons]


def evaluated(report: Report) -> Paired:
    """The only comparison of eval."""
    (pair,) = [pair for pair in report.comparisons if pair.split == "eval"]
    return pair


def two_methods(chime: str = "++++++++--", no_plan: str = "--------++") -> list[RunResults]:
    return [run(["+-"], chime), run(["-+"], no_plan, method="no_plan", gate=False)]


def test_eight_wins_and_two_losses_have_p_0_109() -> None:
    """8 and 2 give 112/1024; 0 and 0 give 1."""
    pair = evaluated(build_report(two_methods(), ONE))
    assert pair.result is not None
    assert (pair.result.wins, pair.result.losses, pair.result.ties, pair.left_out) == (8, 2, 0, 0)
    assert float(pair.result.p_pairs) == 0.109375
    assert pair.result.difference == Fraction(6, 10)
    same = evaluated(build_report(two_methods("+-", "+-"), ONE)).result
    assert same is not None
    assert same.p_pairs == 1
    assert same.interval == Interval(low=Decimal("0.00"), high=Decimal("0.00"))


def test_pairs_share_ordering_and_task() -> None:
    """R4: two orderings of the same three tasks are six pairs, and three votes."""
    runs = [
        run(["+"], ends, ordering=r, method=method)
        for r in range(2)
        for method, ends in (("chime", "++-"), ("no_plan", "-+-"))
    ]
    found = evaluated(build_report(runs, TWO)).result
    assert found is not None
    assert (found.wins, found.losses, found.ties) == (2, 0, 4)
    assert (found.task_wins, found.tasks) == (1, 3)
    assert (found.p_pairs, found.p_tasks) == (Fraction(1, 2), Fraction(1))


def test_incomplete_orderings_are_not_compared_unless_asked_for() -> None:
    """G3, H1: infra on one side and a missing episode on the other leave two pairs out; nothing is compared."""
    runs = two_methods("++!+", "-+-.")
    refused = evaluated(build_report(runs, ONE))
    assert (refused.result, refused.complete, refused.left_out) == (None, False, 4)
    partial = evaluated(build_report(runs, ONE.model_copy(update={"partial": True})))
    assert partial.result is not None
    assert (partial.result.wins, partial.result.ties, partial.left_out, partial.complete) == (1, 1, 2, False)


def test_a_partial_report_without_a_single_pair_has_no_numbers() -> None:
    report = build_report(two_methods("+!", "!-"), ONE.model_copy(update={"partial": True}))
    pair = evaluated(report)
    assert pair.result is not None
    assert (pair.result.difference, pair.result.interval, pair.left_out) == (None, None, 2)
    assert "| toy | scripted | eval | chime | no_plan | 0/2 | 0/0/0 | - | - | 1.0000 | 1.0000 |" in to_markdown(
        report
    )
    lines = {line["split"]: line for line in csv.DictReader(io.StringIO(comparisons_to_csv(report)))}
    assert (lines["eval"]["pairs"], lines["eval"]["difference_points"], lines["eval"]["low_points"]) == (
        "0",
        "",
        "",
    )


def test_train_pairs_are_of_the_epoch_that_heads_the_table() -> None:
    """R6: chime's second epoch meets no_plan's only one, or first meets first."""
    runs = [run(["--", "++"], "+"), run(["--"], "+", method="no_plan")]
    for metric, wins in (("selected", 2), ("first", 0)):
        report = build_report(runs, ONE.model_copy(update={"train_metric": metric}))
        (pair,) = [pair for pair in report.comparisons if pair.split == "train"]
        assert pair.result is not None
        assert pair.result.wins == wins
    assert "Train pairs are of each method's first epoch." in "\n".join(report.notes)


def test_by_default_chime_meets_every_other_method_once_per_split() -> None:
    """R44: an ablation has a name of its own; the first method stands in where chime is not there."""
    runs = [run(method=method) for method in ("no_plan", "chime no_gate", "chime")]
    assert against(build_report(runs, ONE)) == [
        (split, "chime", other) for split in ("eval", "train") for other in ("no_plan", "chime no_gate")
    ]
    assert against(build_report(runs[:2], ONE)) == [
        (split, "no_plan", "chime no_gate") for split in ("eval", "train")
    ]
    assert against(build_report(runs[:1], ONE)) == []


def test_two_named_methods_are_compared_alone_and_in_that_order() -> None:
    runs = [run(method=method) for method in ("chime", "no_plan", "webanchor")]
    options = ONE.model_copy(update={"compare": ("webanchor", "no_plan")})
    report = build_report(runs, options)
    assert against(report) == [("eval", "webanchor", "no_plan"), ("train", "webanchor", "no_plan")]
    assert "2 paired comparisons were made; no p value is adjusted for that." in "\n".join(report.notes)


def test_a_method_that_is_not_there_is_named_with_those_that_are() -> None:
    options = ONE.model_copy(update={"compare": ("chime", "no_plam")})
    with pytest.raises(ConfigError, match="no method 'no_plam' to compare; it has 'chime', 'no_plan'"):
        build_report(two_methods(), options)


def test_a_method_in_two_settings_is_compared_with_itself_once() -> None:
    """R16: near_tie off beside its default."""
    runs = [run(deviations={"near_tie": mode, "checker": "official"}) for mode in ("relevance", "off")]
    for compare in (None, ("chime", "chime")):
        report = build_report(runs, ONE.model_copy(update={"compare": compare}))
        assert [(pair.first, pair.second) for pair in report.comparisons] == [(0, 1), (0, 1)]


def test_what_was_not_measured_alike_is_not_compared() -> None:
    """R42: another checker, another benchmark, another backbone; and a fork is nobody's rival."""
    other = run(method="no_plan", deviations={"checker": "llm"})
    runs = [
        run(deviations={"checker": "official"}),
        other,
        run(method="no_plan", benchmark="vita", deviations={"checker": "official"}),
        run(method="no_plan", deviations={"checker": "official"}).model_copy(update={"backbone": "large"}),
        run(method="no_plan", deviations={"checker": "official", FORKED: "position 1"}),
    ]
    assert build_report(runs, ONE).comparisons == ()
    assert build_report(runs, ONE.model_copy(update={"compare": ("chime", "no_plan")})).comparisons == ()


def test_every_form_shows_the_same_comparison() -> None:
    """The table, the CSV of comparisons and JSON; no mark of significance anywhere."""
    report = build_report(two_methods(), ONE)
    bounds = report.comparisons[0].result
    assert bounds is not None
    assert bounds.interval is not None
    shown = f"| 10/0 | 8/2/0 | +60.00 | {bounds.interval.low:+}..{bounds.interval.high:+} | 0.1094 | 0.1094 |"
    assert f"| toy | scripted | eval | chime | no_plan {shown}" in to_markdown(report)
    line = next(csv.DictReader(io.StringIO(comparisons_to_csv(report))))
    assert (line["split"], line["first"], line["second"], line["complete"]) == ("eval", "chime", "no_plan", "yes")
    assert (line["pairs"], line["left_out"], line["wins"], line["losses"]) == ("10", "0", "8", "2")
    assert (line["difference_points"], line["difference_exact"], line["p_pairs"]) == ("60.00", "3/5", "0.109375")
    document = json.loads(to_json(report))["comparisons"][0]
    assert (document["methods"], document["benchmark"], document["left_out"]) == (["chime", "no_plan"], "toy", 0)
    assert (document["result"]["difference"], document["result"]["p_tasks"]) == ("3/5", 0.109375)


def test_a_refused_comparison_is_marked_and_empty() -> None:
    """H1: dashes in tables, empty fields in CSV, null in JSON."""
    report = build_report(two_methods("+!", "+-"), ONE)
    assert "| toy | scripted | eval | chime | no_plan | - | - | - | - | - | - |" in to_markdown(report)
    line = next(csv.DictReader(io.StringIO(comparisons_to_csv(report))))
    assert (line["complete"], line["planned"], line["pairs"], line["p_pairs"]) == ("no", "2", "", "")
    assert json.loads(to_json(report))["comparisons"][0]["result"] is None


def test_a_tiny_p_is_not_printed_as_zero() -> None:
    report = build_report(two_methods("+" * 20, "-" * 20), ONE)
    assert "| <0.0001 | <0.0001 |" in to_markdown(report)


def grown(*sizes: dict[str, int], ordering: int = 0) -> RunResults:
    """Two epochs of two tasks, and the bank at as many checkpoints as sizes are given."""
    points = (("25%", 1), ("epoch-1", 2), ("50%", 2), ("75%", 3), ("epoch-2", 4), ("100%", 4))
    found = [BankPoint(name=n, version=v, sizes=s) for (n, v), s in zip(points, sizes, strict=False)]
    return run(["+-", "+-"], "+", ordering=ordering).model_copy(update={"growth": tuple(found)})


def test_the_banks_growth_is_a_mean_over_orderings() -> None:
    """R47: at quarters of the whole train stream, and at the end of every epoch; a collection may be empty."""
    one, two, three = {"plan": 1}, {"plan": 2, "exec": 1}, {"plan": 4, "exec": 2}
    runs = [grown(one, two, two, two, three, three, ordering=r) for r in range(2)]
    runs[1] = grown(one, one, one, two, two, two, ordering=1)
    text = to_markdown(build_report(runs, TWO))
    assert "| toy | scripted | chime | exec | 0.0 | 0.5 | 1.0 | 1.5 | 0.5, 1.5 |" in text
    assert "| toy | scripted | chime | plan | 1.0 | 1.5 | 2.0 | 3.0 | 1.5, 3.0 |" in text
    (line,) = csv.DictReader(io.StringIO(to_csv(build_report(runs, TWO))))
    assert [line[f"bank_{quarter}"] for quarter in (25, 50, 75, 100)] == ["1.0", "2.0", "3.0", "4.5"]


def test_a_checkpoint_that_an_ordering_has_not_reached_is_left_out() -> None:
    """H1: unless the report is partial, and then it is the mean of those that have."""
    runs = [grown({"plan": 2}, {"plan": 4}, {"plan": 4}), grown({"plan": 3}, ordering=1)]
    assert "| plan | 2.5 | - | - | - | -, - |" in to_markdown(build_report(runs, TWO))
    partial = build_report(runs, TWO.model_copy(update={"partial": True}))
    assert "| plan | 2.5 | 4.0 | - | - | 4.0, - |" in to_markdown(partial)
    (line,) = csv.DictReader(io.StringIO(to_csv(build_report(runs, TWO))))
    assert (line["bank_25"], line["bank_50"]) == ("2.5", "")


def spending(results: RunResults) -> RunResults:
    """Three calls and an embedding per episode; the second eval episode ran out of steps and was flagged."""
    usage = {
        "executor": Usage(calls=2, prompt_tokens=50, completion_tokens=5, left_out=1),
        "gate": Usage(calls=1, prompt_tokens=20, completion_tokens=2),
        "embedder": Usage(calls=9),
    }
    records = [
        record.model_copy(
            update={"usage": usage}
            | ({"end_reason": EndReason.STEP_CAP, "flags": ("odd",)} if record.unit.key.endswith("v2:1") else {})
        )
        for record in results.records
    ]
    return results.model_copy(update={"records": tuple(records)})


def test_a_success_costs_what_all_episodes_of_its_phase_did() -> None:
    """Four eval episodes with three calls each, one of them solved: twelve calls; the embedder's are not in it."""
    report = build_report([spending(run(["--"], "+---"))], ONE)
    text = to_markdown(report)
    assert "| toy | scripted | chime | eval | 1/4 | 12.0 | 280.0 | 28.0 |" in text
    assert "| toy | scripted | chime | train | 0/2 | - | - | - |" in text


def test_ends_flags_and_cut_prompts_are_told_where_there_are_any() -> None:
    """R36, G6: step caps and infra reasons, remarks of the benchmark, and observations that were left out."""
    report = build_report([spending(run(["-!"], "+---"))], ONE)
    text = to_markdown(report)
    assert "| toy | scripted | chime | train | backbone | 1 | 50.00 |" in text
    assert "| toy | scripted | chime | eval | step_cap | 1 | 25.00 |" in text
    assert "| toy | scripted | chime | eval | odd | 1 | 25.00 |" in text
    assert "| toy | scripted | chime | eval | executor | 4 | 8 |" in text
    assert "left out of prompts that were too long: 6 in all" in text
    (line,) = csv.DictReader(io.StringIO(to_csv(report)))
    assert (line["train_left_out"], line["eval_left_out"]) == ("2", "4")
    quiet = to_markdown(build_report([run()], ONE))
    assert "too long: 0 in all" in quiet
    assert not [title for title in ("remarked", "Ends other", "## Observations left out") if title in quiet]


def test_a_hundred_columns_show_every_row_on_one_line() -> None:
    """Benchmark and backbone stand above their rows where the terminal has no room for them."""
    runs = [
        run(["+-", "++"], "+-", ordering=r, method=method, benchmark=benchmark)
        for benchmark in ("browsecomp_zh", "vitabench")
        for r in range(2)
        for method in ("chime", "chime no_plan_memory", "a_mapreduce")
    ]
    text = printed(build_report(runs, TWO), width=100)
    assert "Paired comparison: browsecomp_zh, scripted" in text
    assert "Results, Avg@2 in percent: vitabench, scripted" in text
    compared = [line.split() for line in text.splitlines() if line.split()[:2] == ["eval", "chime"]]
    assert [line[2] for line in compared if ".." in " ".join(line)] == ["chime", "a_mapreduce"] * 2
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "no_plan_memory" in text
    assert "…" not in text


def test_forty_columns_break_words_and_lose_nothing() -> None:
    text = printed(build_report([run(method="a_method_with_a_rather_long_name")], ONE), width=40)
    assert "…" not in text
