"""The forms of a report: Markdown, CSV, JSON and the terminal say the same."""

from __future__ import annotations

import csv
import io
import json

from rich.console import Console

from chime_dist.report.build import build_report
from chime_dist.report.csv_text import to_csv
from chime_dist.report.document import Report, ReportOptions
from chime_dist.report.json_text import to_json
from chime_dist.report.layout import Table
from chime_dist.report.markdown import to_markdown
from chime_dist.report.terminal import Fitted, to_terminal
from tests.report.sweep import run

ONE = ReportOptions(orderings=(0,), directory="runs/demo/l1")


def finished() -> Report:
    """Two benchmarks, two orderings, two methods; CHIME deviates on one of them."""
    runs = [
        run(["+-", "++"], "+-", ordering=r, benchmark=benchmark, deviations=deviations)
        for r in range(2)
        for benchmark, deviations in (("bfcl", {"checker": "official", "window": "16"}), ("vita", {}))
    ]
    runs += [
        run(["--"], "+-", ordering=r, benchmark=benchmark, method="no_plan", gate=False)
        for r in range(2)
        for benchmark in ("bfcl", "vita")
    ]
    return build_report(runs, ReportOptions(orderings=(0, 1), directory="runs/demo/l1"))


def unfinished(partial: bool = False) -> Report:
    options = ReportOptions(orderings=(0, 1, 2), directory="runs/demo/l1", partial=partial)
    return build_report([run(["+-"], "+-", ordering=0), run(["+-"], "+!", ordering=1)], options)


def printed(report: Report, width: int = 300) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(to_terminal(report))
    return out.getvalue()


def lines_with(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


def test_the_title_names_how_many_orderings_are_averaged() -> None:
    """R4: Avg@2 of orderings 0 and 2."""
    runs = [run(["+-"], "+-", ordering=ordering) for ordering in (0, 2)]
    report = build_report(runs, ReportOptions(orderings=(0, 2), directory="d"))
    assert "Results, Avg@2 in percent" in to_markdown(report)
    (row,) = csv.DictReader(io.StringIO(to_csv(report)))
    assert (row["complete"], row["eval_orderings"]) == ("yes", "2/2")
    assert json.loads(to_json(report))["options"]["orderings"] == [0, 2]


def test_markdown_shows_accuracy_spread_counts_and_status() -> None:
    """Every table prints planned/scored/infra; memory is online in train and frozen in eval (H4)."""
    text = to_markdown(finished())

    assert (
        "| bfcl | scripted | chime [1] | 2 | 50.00 ± 0.00 | 100.00 ± 0.00 | 50.00 ± 0.00 | 4/4/0 | 4/4/0 |"
        " complete |" in text
    )
    assert "Train, last epoch (online)" in text
    assert "Eval (frozen)" in text
    assert "- [1] checker=official, window=16" in text
    assert "Incomplete" not in text


def test_markdown_shows_averages_gate_attribution_and_cost() -> None:
    """R4's exact column, R21's error rate, the attribution mix, tokens and calls by role."""
    text = to_markdown(finished())

    assert "| scripted | chime | 100.00 | 100.0000 | 50.00 | 50.0000 | 8/8/0 | 8/8/0 | complete |" in text
    assert "| bfcl | scripted | chime [1] | 8 | 0 | 0.00 |" in text
    assert "| bfcl | scripted | chime [1] | success | planning | 4 | 66.67 |" in text
    assert "| bfcl | scripted | chime [1] | train | planner | 8 | 2.0 | 16 | 24 | 800 | 320 | 80 |" in text
    assert "| bfcl | scripted | chime [1] | 1 | eval | frozen | 2 | 2 | 1 | 0 | 0 | 50.00 | 50.00 | 11 |" in text
    assert "| vita | scripted | no_plan | 0 | eval | none | 2 | 2 | 1 | 0 | 0 | 50.00 | 50.00 | - |" in text


def test_markdown_aligns_names_left_and_numbers_right() -> None:
    lines = to_markdown(finished()).splitlines()
    header = next(index for index, line in enumerate(lines) if "Eval (frozen)" in line)
    assert lines[header].startswith("| Benchmark | Backbone | Method | ")
    assert lines[header + 1] == "| --- | --- | --- |" + " ---: |" * (lines[header].count(" |") - 3)


def test_markdown_says_first_what_is_incomplete_and_how_to_finish() -> None:
    """H1, G3: no average, the row is marked, the command is there."""
    text = to_markdown(unfinished())

    assert text.index("## Incomplete: 2 open points") < text.index("## Results")
    assert (
        "- toy / scripted / chime, ordering 1, eval: 1 of 2 episodes scored, 1 infra, 0 missing. Finish with"
        " `chime-dist resume runs/demo/l1`." in text
    )
    assert lines_with(text, "toy", "chime", "6/4/0", "6/3/1", "INCOMPLETE", "| - | - |")
    assert "| 1 | eval | frozen | 2 | 1 | 1 | 1 | 0 | 100.00 | 50.00 | 11 |" in text


def test_a_partial_number_shows_its_n() -> None:
    """H1: with the flag, every number shows its n."""
    assert "75.00 ± 35.36 (n=3/6, 2 of 3 orderings)" in to_markdown(unfinished(partial=True))


def test_one_ordering_has_no_spread() -> None:
    assert "| 50.00 | 50.00 | 2/2/0 | 2/2/0 | complete |" in to_markdown(build_report([run()], ONE))


def test_names_cannot_break_the_table_or_the_markup() -> None:
    """A benchmark's or a method's name is text, in every form."""
    report = build_report([run(method="a|b[red]\nc")], ONE)
    assert "| toy | scripted | a\\|b[red] c |" in to_markdown(report)
    assert "a|b[red]" in printed(report)


def test_episodes_without_model_calls_still_show_their_duration() -> None:
    """A scripted agent costs no tokens."""
    results = run(["+"], "+")
    silent = tuple(row.model_copy(update={"usage": {}}) for row in results.records)
    text = to_markdown(build_report([results.model_copy(update={"records": silent})], ONE))
    assert "| toy | scripted | chime | eval | - | 1 | 1.0 | 0 | 0 | 0 | 0 | 0 |" in text


def test_csv_has_one_line_per_row_with_cells_and_counts() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(finished()))))
    assert [(row["benchmark"], row["method"]) for row in rows] == [
        ("bfcl", "chime"),
        ("vita", "chime"),
        ("bfcl", "no_plan"),
        ("vita", "no_plan"),
    ]
    assert rows[0]["deviations"] == '{"checker":"official","window":"16"}'
    assert (rows[0]["eval_percent"], rows[0]["eval_exact"], rows[0]["eval_sd"]) == ("50.00", "1/2", "0.00")
    assert (rows[0]["eval_planned"], rows[0]["eval_scored"], rows[0]["eval_infra"]) == ("4", "4", "0")
    assert (rows[0]["train_prompt_tokens"], rows[0]["train_mean_seconds"]) == ("800", "2.0")


def test_csv_leaves_a_refused_average_empty() -> None:
    """H1: an empty field, not a zero."""
    (row,) = csv.DictReader(io.StringIO(to_csv(unfinished())))
    assert (row["complete"], row["eval_percent"], row["eval_orderings"]) == ("no", "", "0/3")
    assert (row["eval_success"], row["eval_infra"], row["eval_missing"]) == ("2", "1", "2")


def test_csv_of_a_run_that_has_not_started_has_no_durations() -> None:
    (row,) = csv.DictReader(io.StringIO(to_csv(build_report([run(["."], ".")], ONE))))
    assert (row["train_mean_seconds"], row["train_calls"]) == ("", "0")


def test_json_spells_out_cells_fractions_and_verdicts() -> None:
    document = json.loads(to_json(finished()))
    row = document["rows"][0]
    assert document["complete"] is True
    assert row["complete"] is True
    assert (row["eval"]["cell"], row["eval"]["average"]["mean"]) == ("50.00", "1/2")
    assert row["gate"]["error_rate"] == "0"
    assert document["averages"][0]["eval"]["cell"] == "50.00"
    assert document["rows"][2]["gate"]["error_rate"] is None


def test_json_of_an_unfinished_sweep_says_so() -> None:
    """G3: a program sees it without reading tables."""
    document = json.loads(to_json(unfinished()))
    assert document["complete"] is False
    assert document["rows"][0]["eval"]["cell"] is None
    assert [problem["fix"] for problem in document["problems"]] == [
        "finish with `chime-dist resume runs/demo/l1`"
    ] * 2


def test_the_terminal_shows_the_same_numbers_and_problems() -> None:
    text = printed(unfinished(partial=True))
    assert "75.00 ± 35.36 (n=3/6, 2 of 3 orderings)" in text
    assert "INCOMPLETE toy / scripted / chime, ordering 2: it has no run" in text
    assert "Eval memory is frozen" in text


def test_a_narrow_terminal_loses_no_number() -> None:
    """Cells fold instead of being cut."""
    assert "…" not in printed(finished(), width=100)


def test_a_table_is_broken_up_by_place_when_one_cell_is_missing_and_no_earlier() -> None:
    """28 cells of text in four columns, two between columns and one on either side: 36."""
    table = Table(
        title="Results",
        header=("Benchmark", "Backbone", "method", "eval"),
        rows=(("bfcl", "m", "chime", "12.50"), ("vita", "m", "chime", "25.00")),
        names=3,
    )

    def shown(width: int) -> list[str]:
        out = io.StringIO()
        Console(file=out, width=width, color_system=None).print(Fitted(table))
        return out.getvalue().splitlines()

    assert [line.split() for line in shown(36)[-3:-1]] == [list(row) for row in table.rows]
    assert {len(line) for line in shown(36)[1:-1]} == {36}
    assert "Results: bfcl, m" in " ".join(" ".join(shown(35)).split())
