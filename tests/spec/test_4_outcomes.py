"""Fourth stop: what a number is made of. Success and failure are the agent's, infra is ours and never averaged."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from chime_dist.benchmarks.credit_world.benchmark import CreditWorld
from chime_dist.benchmarks.credit_world.environment import CreditEnvironment
from chime_dist.core.episode import Outcome
from chime_dist.engine.driver import Ending
from chime_dist.errors import BenchmarkError
from chime_dist.report.document import Report, Row
from chime_dist.wiring.results import launch_report
from tests.spec.parts import touring, verdict
from tests.spec.sweeps import EVAL, SWEEP, TRAIN, journal_of, launched, records_of, resumed, runs_of

ONE_METHOD = SWEEP.replace("[chime, no_plan]", "[no_plan]")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], bool]], None]:
    """``broken(which)``: from now on, opening the tasks that ``which`` names fails, as if it crashed."""
    opened = CreditWorld.open

    def breaking(which: Callable[[str], bool]) -> None:
        async def open_(world: CreditWorld, task: str) -> CreditEnvironment:
            if which(task):
                raise BenchmarkError(f"the simulator of {task} crashed")
            return await opened(world, task)

        monkeypatch.setattr(CreditWorld, "open", open_)

    return breaking


def row(report: Report) -> Row:
    """The only one."""
    [found] = report.rows
    return found


async def test_nothing_is_learnt_from_a_failure_of_ours_and_everything_from_one_of_the_agents(
    tmp_path: Path,
) -> None:
    """R21, R1: a failure goes through gate and commit like a success; only its outcome differs."""
    async with touring(tmp_path) as tour:
        for success in (True, False):
            await tour.learn(
                success=success, verdict=verdict("planning", plan=(f"parcels, {success}", "read the deadline"))
            )
        entries = await tour.entries()
    assert [entry.outcome for entry in entries] == [Outcome.SUCCESS, Outcome.FAILURE]
    assert all(entry.diagnosis is not None and entry.events for entry in entries)


async def test_one_good_run_of_ten_is_not_a_hundred_percent(
    tmp_path: Path, broken: Callable[[Callable[[str], bool]], None]
) -> None:
    """G3: five of six eval episodes end infra. The launch is incomplete, the row says how many were scored, no
    accuracy is printed, and over all planned episodes it would be one in six at most."""
    text = ONE_METHOD.replace("orderings: [0, 1, 2]", "orderings: [0]")
    calm = await launched(tmp_path / "calm", text)
    [run] = calm.manifest.runs
    spared, *hit = [record.unit.task for record in records_of(calm, run, "eval")]
    broken(lambda task: task in hit)
    launch = await launched(tmp_path / "broken", text, Ending.INCOMPLETE)
    report = launch_report(launch)
    assert not report.complete
    [line] = row(report).runs
    assert (line.eval.planned, line.eval.scored, line.eval.infra) == (EVAL, 1, EVAL - 1)
    assert row(report).eval.average.cell is None
    assert any("infra" in problem.what for problem in report.problems)
    partial = launch_report(launch, partial=True, denominator="planned")
    cell = row(partial).eval.average.cell
    assert cell is not None
    assert cell <= Decimal("16.67")
    assert [record.unit.task for record in records_of(launch, run, "eval")] == [spared]


async def test_what_ended_infra_in_the_examination_is_tried_again_and_what_was_committed_empty_is_not(
    tmp_path: Path, broken: Callable[[Callable[[str], bool]], None]
) -> None:
    """H1, H3, D9: expected = pass + fail + infra + missing for every ordering; after the resume the eval is whole,
    while the train position stays as it is in the journal, and the row says so."""
    broken(lambda task: task.endswith("3"))
    launch = await launched(tmp_path, ONE_METHOD, Ending.INCOMPLETE)
    lines = row(launch_report(launch)).runs
    for line in lines:
        for tally in (line.train_first, line.eval):
            assert tally.planned == tally.success + tally.failure + tally.infra + tally.missing
        assert line.train_first.infra + line.eval.infra == 2, "one such task in each of two families"
    assert row(launch_report(launch)).eval.average.cell is None
    broken(lambda task: False)
    await resumed(launch)
    assert [line.eval.scored for line in row(launch_report(launch)).runs] == [EVAL] * 3
    for line in row(launch_report(launch)).runs:
        empty = [entry for entry in journal_of(launch, line.run_id) if entry.empty_reason]
        assert len(empty) == line.train_first.infra
        assert all(entry.empty_reason == "infra:benchmark" for entry in empty)


async def test_a_cell_is_the_exact_share_of_three_orderings_rounded_once(tmp_path: Path) -> None:
    """R4: k of 3n, half up, from the rows of a real launch; each method's cell is over the same tasks."""
    launch = await launched(tmp_path)
    report = launch_report(launch)
    assert report.complete
    for found in report.rows:
        runs = runs_of(launch, found.method)
        k = sum(r.outcome is Outcome.SUCCESS for run in runs for r in records_of(launch, run, "eval"))
        total = found.eval.total
        assert (total.planned, total.success) == (3 * EVAL, k)
        by_hand = (Decimal(100 * k) / (3 * EVAL)).quantize(Decimal("0.01"), "ROUND_HALF_UP")
        assert found.eval.average.cell == by_hand
        assert found.train_first.total.planned == 3 * TRAIN
