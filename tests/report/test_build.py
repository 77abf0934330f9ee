"""What a report says about finished, unfinished and damaged sweeps."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.core.aggregate import Tally
from chime_dist.core.episode import Outcome, Usage
from chime_dist.core.paper import PAPER
from chime_dist.errors import ConfigError, JournalError, RunDirectoryError
from chime_dist.report.build import build_report
from chime_dist.report.document import Report, ReportOptions
from chime_dist.report.results import RunResults
from tests.report.sweep import OPTIONS, record, run

COMPLETE = [
    run(["+---", "++--"], "+-----", ordering=0),
    run(["++--", "+++-"], "++----", ordering=1),
    run(["+++-", "++++"], "+++---", ordering=2),
]


def partially(options: ReportOptions = OPTIONS) -> ReportOptions:
    return options.model_copy(update={"partial": True})


def notes(report: Report) -> str:
    return "\n".join(report.notes)


def test_a_row_shows_train_at_the_first_and_the_selected_epoch_and_eval() -> None:
    """R4, R6: Avg@3 of each, with the spread over orderings."""
    report = build_report(COMPLETE, OPTIONS)

    (row,) = report.rows
    assert report.complete
    assert row.complete
    assert (row.train_first.average.cell, row.train_first.average.sd) == (Decimal("50.00"), Decimal("25.00"))
    assert row.train_selected.average.cell == Decimal("75.00")
    assert row.eval.average.mean == Fraction(1, 3)
    assert row.eval.average.cell == Decimal("33.33")
    assert row.eval.total == Tally(planned=18, success=6, failure=12)
    assert [line.bank_size for line in row.runs] == [10, 11, 12]


def test_a_sweep_with_infra_ends_is_reported_as_incomplete() -> None:
    """G3: 1 success and 9 infra ends: 1 of 10 completed, nothing averaged, and a way to finish."""
    report = build_report([run(["+-"], "+" + "!" * 9)], ReportOptions(orderings=(0,), directory="runs/demo/l1"))

    (row,) = report.rows
    assert not report.complete
    assert not row.complete
    assert row.eval.average.cell is None
    assert row.train_selected.average.cell == Decimal("50.00")
    (line,) = row.runs
    assert (line.eval.accuracy("scored"), line.eval.accuracy("planned")) == (Fraction(1), Fraction(1, 10))
    (problem,) = report.problems
    assert problem.where == "toy / scripted / chime, ordering 0, eval"
    assert problem.what == "1 of 10 episodes scored, 9 infra, 0 missing"
    assert problem.fix == "finish with `chime-dist resume runs/demo/l1`"


H1 = [
    run(["+-"], "+++++-----", ordering=0),
    run(["+-"], "+++---!!!!", ordering=1),
]
"""H1's sweep: ordering 1 done, 4 crashed in ordering 2, ordering 3 absent."""


def test_no_average_of_three_is_made_of_one_and_a_half() -> None:
    """H1: the incomplete orderings are named, and planned episodes of an absent ordering still count as such."""
    report = build_report(H1, OPTIONS)

    (row,) = report.rows
    assert row.eval.average.mean is None
    assert row.eval.average.incomplete == (1, 2)
    assert row.eval.total == Tally(planned=30, success=8, failure=8, infra=4, missing=10)
    assert [(problem.where, problem.what) for problem in report.problems] == [
        ("toy / scripted / chime, ordering 1, eval", "6 of 10 episodes scored, 4 infra, 0 missing"),
        ("toy / scripted / chime, ordering 2", "it has no run"),
    ]
    assert "--partial shows what there is" in notes(report)


@pytest.mark.parametrize("planned", [(1,), (0, 2), (2, 0, 5)])
def test_any_set_of_orderings_may_be_planned(planned: tuple[int, ...]) -> None:
    """R4: k of Avg@k is how many orderings are planned, whatever their indexes."""
    runs = [run(["+-"], "+-", ordering=ordering) for ordering in planned]
    report = build_report(runs, ReportOptions(orderings=planned, directory="d"))

    assert report.complete
    (row,) = report.rows
    assert row.eval.average.used == row.eval.average.orderings == tuple(sorted(planned))
    assert row.eval.total == Tally(planned=2 * len(planned), success=len(planned), failure=len(planned))
    named = ", ".join(map(str, sorted(planned)))
    assert f"A cell is Avg@{len(planned)}: the exact mean over {len(planned)} ordering" in notes(report)
    assert f"({named}; 0-based)" in notes(report)


def test_a_planned_ordering_without_a_run_is_named_by_its_index() -> None:
    """H1, R4: of orderings 0 and 2, 2 is missing and 1 is not."""
    report = build_report([run(["+-"], "+-")], ReportOptions(orderings=(0, 2), directory="d"))
    assert [problem.where for problem in report.problems] == ["toy / scripted / chime, ordering 2"]
    assert report.rows[0].eval.total == Tally(planned=4, success=1, failure=1, missing=2)


def test_a_partial_report_averages_what_there_is_and_stays_incomplete() -> None:
    """H1: with the flag for partial reports; nothing becomes complete by asking for it."""
    report = build_report(H1, partially())

    (row,) = report.rows
    assert row.eval.average.cell == Decimal("50.00")
    assert row.eval.average.used == (0, 1)
    assert not report.complete
    assert "Partial:" in notes(report)


def test_infra_can_stay_in_the_denominator() -> None:
    """S2 (R70): errors stay in the denominator."""
    options = ReportOptions(orderings=(0, 1), directory="d", denominator="planned", partial=True)
    (row,) = build_report(H1, options).rows
    assert row.eval.average.mean == Fraction(4, 10)


def test_a_train_position_committed_empty_is_named_as_lasting() -> None:
    """Design "Outcomes": resuming cannot change it, and the report does not promise that."""
    report = build_report([run(["+!"], "+")], ReportOptions(orderings=(0,), directory="d"))
    (problem,) = report.problems
    assert problem.fix == "they were committed empty and stay so; --partial shows the numbers with their n"
    report = build_report([run(["+!!."], "+", committed=2)], ReportOptions(orderings=(0,), directory="d"))
    assert report.problems[0].fix == "finish with `chime-dist resume d`; positions committed empty stay so"
    report = build_report([run(["+!"], "+", committed=1)], ReportOptions(orderings=(0,), directory="d"))
    assert report.problems[0].fix == "finish with `chime-dist resume d`"


def test_the_average_over_benchmarks_is_made_of_displayed_cells() -> None:
    """R4: the unweighted mean, whatever the sizes, rounded once; the exact mean beside it."""
    runs = [run(["+--"], "+--"), run(["+-"], "++-", benchmark="other"), run(["+"], "-", benchmark="third")]
    options = ReportOptions(orderings=(0,), directory="d")

    (found,) = build_report(runs, options).averages

    assert found.eval.cell == Decimal("33.33")
    assert found.eval.exact == Fraction(1, 3)
    assert found.train.cell == Decimal("61.11")
    assert found.eval.total == Tally(planned=7, success=3, failure=4)
    assert found.complete


def test_the_average_takes_the_train_epoch_that_was_asked_for() -> None:
    """R6: ``train_metric``, default selected."""
    runs = [run(["+---", "++++"], "+"), run(["+---", "++++"], "+", benchmark="other")]
    options = ReportOptions(orderings=(0,), directory="d")
    first = options.model_copy(update={"train_metric": "first"})
    assert build_report(runs, options).averages[0].train.cell == Decimal("100.00")
    assert build_report(runs, first).averages[0].train.cell == Decimal("25.00")


def test_one_benchmark_has_no_average_over_benchmarks() -> None:
    assert build_report(COMPLETE, OPTIONS).averages == ()


def test_a_method_without_a_benchmark_or_with_an_open_one_has_no_average() -> None:
    """Averages of different sets of benchmarks would stand in one column."""
    runs = [
        run(["+"], "+", method="here_only"),
        run(["+"], "+", method="open"),
        run(["+"], ".", method="open", benchmark="other"),
    ]
    averages = build_report(runs, ReportOptions(orderings=(0,), directory="d")).averages
    assert [(found.method, found.eval.cell, found.complete) for found in averages] == [
        ("here_only", None, False),
        ("open", None, False),
    ]


def test_runs_that_deviate_differently_are_rows_of_their_own() -> None:
    """R16: near-tie `off` is run beside the default; the two are never averaged together."""
    runs = [
        run(["+"], "+", deviations={"near_tie": "relevance"}),
        run(["+"], "-", deviations={"near_tie": "off"}),
        run(["+"], "-", benchmark="other"),
    ]
    report = build_report(runs, ReportOptions(orderings=(0,), directory="d"))
    assert [(row.deviations, row.eval.average.cell) for row in report.rows] == [
        ({"near_tie": "relevance"}, Decimal("100.00")),
        ({"near_tie": "off"}, Decimal("0.00")),
        ({}, Decimal("0.00")),
    ]
    assert report.averages[0].eval.cell is None


def test_the_gates_errors_and_attributions_are_counted() -> None:
    """R21, B8: gate_error is no label, its rate is in the report; R19, R20: labels by outcome."""
    records = [
        record("r", "train", 0, Outcome.SUCCESS, label="planning"),
        record("r", "train", 1, Outcome.FAILURE, label="execution"),
        record("r", "train", 2, Outcome.FAILURE, label="execution"),
        record("r", "train", 3, Outcome.FAILURE, gate_error=True),
        record("r", "train", 4, Outcome.INFRA),
    ]
    results = run(["+----"], "+").model_copy(update={"run_id": "r", "records": tuple(records)})

    gate = build_report([results], ReportOptions(orderings=(0,), directory="d")).rows[0].gate

    assert (gate.decided, gate.errors, gate.error_rate) == (3, 1, Fraction(1, 4))
    assert gate.labels == {Outcome.SUCCESS: {"planning": 1}, Outcome.FAILURE: {"execution": 2}}


def test_a_method_without_a_gate_has_no_error_rate() -> None:
    report = build_report([run(["+"], "+", gate=False)], ReportOptions(orderings=(0,), directory="d"))
    assert report.rows[0].gate.error_rate is None


def test_cost_is_summed_by_phase_and_role() -> None:
    """Tokens and calls by role over all orderings; durations are means per episode."""
    cost = build_report(COMPLETE, OPTIONS).rows[0].cost
    assert (cost["train"].episodes, cost["train"].mean_duration_s) == (24, 2.0)
    assert (cost["eval"].episodes, cost["eval"].mean_duration_s) == (18, 1.0)
    assert cost["eval"].usage == {
        "planner": Usage(calls=36, requests=54, prompt_tokens=1800, completion_tokens=180, cached_tokens=720)
    }


def test_a_planned_run_that_has_not_started_is_all_missing() -> None:
    """H1: expected ids are compared with found ones."""
    report = build_report([run([".."], "...")], ReportOptions(orderings=(0,), directory="d"))
    (row,) = report.rows
    assert row.cost == {}
    assert row.eval.total == Tally(planned=3, missing=3)
    assert len(report.problems) == 2


def test_a_run_without_a_train_stream_reports_eval_only() -> None:
    """R52, R53: a bank made elsewhere can be evaluated."""
    report = build_report([run([], "+-")], ReportOptions(orderings=(0,), directory="d"))
    assert report.complete
    assert report.rows[0].train_selected.average.cell is None
    assert report.rows[0].eval.average.cell == Decimal("50.00")


def test_eval_at_other_versions_is_left_out() -> None:
    """R47: eval at 25, 50 and 75% of the stream are other numbers."""
    results = run(["+-"], "++")
    early = record(results.run_id, "eval", 0, Outcome.FAILURE, epoch=0, version=1)
    with_early = results.model_copy(update={"records": (early, *results.records)})
    options = ReportOptions(orderings=(0,), directory="d")
    assert build_report([with_early], options).rows == build_report([results], options).rows


@pytest.mark.parametrize(
    ("change", "memory", "note"),
    [
        ({}, "frozen", "in 1 of 1 runs with a bank (0 not verified)"),
        ({"bank_digest_after_eval": None}, "unverified", "in 0 of 1 runs with a bank (1 not verified)"),
        ({"bank_digest_before_eval": None}, "unverified", "(1 not verified)"),
        ({"has_bank": False}, "none", "1 runs have no memory"),
    ],
)
def test_whether_memory_was_online_or_frozen_is_in_the_report(
    change: dict[str, object], memory: str, note: str
) -> None:
    """H4, R5: online in train, frozen in eval, and whether the digests prove it."""
    results = run(["+"], "+").model_copy(update=change)
    report = build_report([results], ReportOptions(orderings=(0,), directory="d"))
    assert report.rows[0].runs[0].eval_memory == memory
    assert note in notes(report)
    assert "Eval memory is frozen" in notes(report)
    assert "Train accuracy is online" in notes(report)


def test_a_bank_that_changed_during_eval_stops_the_report() -> None:
    """R5: the digest is identical before and after eval, or the numbers are not eval numbers."""
    results = run(["+"], "+").model_copy(update={"bank_digest_after_eval": "e" * 64})
    options = OPTIONS.model_copy(update={"program": "python -m chime_dist", "directory": "my runs"})
    command = "`python -m chime_dist bank verify 'my runs' toy-chime-0`"
    with pytest.raises(JournalError, match=f"toy-chime-0: the bank changed during eval .*{command}"):
        build_report([results], options)


def test_a_short_stream_is_said_not_to_be_the_papers() -> None:
    """R3: a limited run is not a reproduction; the paper's sizes are named."""
    limited = run(["+-"], "+", benchmark="vitabench")
    options = ReportOptions(orderings=(0,), directory="d")
    assert "vitabench ran on 2 train and 1 eval tasks, which is not a stream of the paper: 280/120" in notes(
        build_report([limited], options)
    )
    stream = PAPER["vitabench"].streams["paper_text"]
    full = run(["+" * stream.train], "-" * stream.eval, benchmark="vitabench")
    assert "not a stream of the paper" not in notes(build_report([full], options))


# --- what is refused ------------------------------------------------------------------------------------


def test_a_report_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="runs/demo/l1: there are no runs to report"):
        build_report([], OPTIONS)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([run(), run()], "ordering 0 is there 2 times"),
        ([run(ordering=3)], r"ordering 3 \(0-based\) exists, but the report is for \[0, 1, 2\]"),
        ([run(), run(["+--"], ordering=1)], "its orderings are not one experiment"),
        ([run(), run(["+-", "+-"], ordering=1)], "its orderings are not one experiment"),
    ],
)
def test_orderings_that_are_not_one_experiment_are_refused(runs: list[RunResults], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_report(runs, OPTIONS)


@pytest.mark.parametrize(
    ("stray", "message"),
    [
        (record("other", "eval", 0, Outcome.SUCCESS, version=2), "other:eval:v2:0, which is of another run"),
        (record("toy-chime-0", "eval", 2, Outcome.SUCCESS, version=2), "position 2 is not among the 2 planned"),
        (record("toy-chime-0", "train", 2, Outcome.SUCCESS, epoch=1), r"epoch 1 \(0-based\) is not among"),
        (record("toy-chime-0", "train", 2, Outcome.SUCCESS), "position 2 is not among the 2 planned"),
        (record("toy-chime-0", "eval", 1, Outcome.SUCCESS, version=2), "two final rows that differ"),
    ],
)
def test_stale_and_foreign_rows_are_refused(stray: object, message: str) -> None:
    """H3: rates above 1, or of another stream, never come out."""
    results = run().model_copy(update={"records": (*run().records, stray)})
    with pytest.raises(RunDirectoryError, match=message):
        build_report([results], OPTIONS)


# --- what holds for any sweep ---------------------------------------------------------------------------

ENDS = st.text("+-!.", min_size=3, max_size=3)


@given(st.lists(st.tuples(ENDS, ENDS, ENDS), min_size=3, max_size=3), st.booleans(), st.data())
def test_a_report_accounts_for_every_episode_whatever_the_order_of_its_records(
    ends: list[tuple[str, str, str]], partial: bool, data: st.DataObject
) -> None:
    """H1: planned = success + failure + infra + missing in every line; no accuracy is above 1."""
    runs = [run([first, last], held_out, ordering=r) for r, (first, last, held_out) in enumerate(ends)]
    options = OPTIONS.model_copy(update={"partial": partial})
    report = build_report(runs, options)

    shuffled = [r.model_copy(update={"records": tuple(data.draw(st.permutations(r.records)))}) for r in runs]
    assert build_report(shuffled, options) == report
    (row,) = report.rows
    for score, split in ((row.train_first, 0), (row.train_selected, 1), (row.eval, 2)):
        signs = "".join(found[split] for found in ends)
        assert score.total == Tally(
            planned=9,
            success=signs.count("+"),
            failure=signs.count("-"),
            infra=signs.count("!"),
            missing=signs.count("."),
        )
        if score.average.mean is not None:
            assert partial or not score.average.incomplete
            assert 0 <= score.average.mean <= 1
    assert report.complete == all(set("".join(found)) <= {"+", "-"} for found in ends)
