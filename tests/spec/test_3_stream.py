"""Third stop: the stream. Three orders, two passes, a window, and an examination on a frozen bank."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from chime_dist.adapters.directory.artifact_json import decode
from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.benchmarks.credit_world.benchmark import CreditWorld, CreditWorldOptions
from chime_dist.config.loading import load_sweep
from chime_dist.core.bank import as_of, replay
from chime_dist.core.episode import Outcome
from chime_dist.engine.bank_owner import BankOwner
from chime_dist.engine.driven_run import Progress, RunEnd
from chime_dist.engine.driver import Ending
from chime_dist.errors import JournalError
from chime_dist.wiring.launch import Launch
from chime_dist.wiring.plans import plan_runs
from chime_dist.wiring.results import launch_report
from tests.spec.sweeps import EVAL, SWEEP, TRAIN, WINDOW, journal_of, launched, records_of, runs_of, written


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> LaunchDirectory:
    """The sweep, complete."""
    return asyncio.run(launched(tmp_path_factory.mktemp("tour")))


def test_a_stream_is_split_seven_to_three_inside_every_domain(tour: LaunchDirectory) -> None:
    """R3: no case is learnt from and examined on, and each family is split on its own."""
    for run in runs_of(tour, "chime"):
        learnt = [record.unit.task for record in records_of(tour, run, "train")[:TRAIN]]
        examined = [record.unit.task for record in records_of(tour, run, "eval")]
        assert not set(learnt) & set(examined)
        domain = {task.id: task.domain for task in CreditWorld(_options()).tasks()}
        families = [domain[task] for task in learnt], [domain[task] for task in examined]
        assert [sorted(map(part.count, set(part))) for part in families] == [[7, 7], [3, 3]]


def _options() -> CreditWorldOptions:
    return CreditWorldOptions(families=2, tasks_per_family=10, steps=1)


def test_three_orderings_are_three_orders_that_any_machine_makes_again(
    tour: LaunchDirectory, tmp_path: Path
) -> None:
    """R4, H4: the orders differ, they are in the manifest by digest, and the file alone reproduces them."""
    streams = [[e.task for e in journal_of(tour, run)[:TRAIN]] for run in runs_of(tour, "chime")]
    assert len({tuple(stream) for stream in streams}) == 3
    (tmp_path / "sweep.yaml").write_text(SWEEP, encoding="utf-8")
    planned = {run.run_id: run for run in plan_runs(load_sweep(tmp_path / "sweep.yaml", environ={}))}
    for run, stream in zip(runs_of(tour, "chime"), streams, strict=True):
        assert list(planned[run].plan.train) == stream
        assert tour.manifest.runs[run].ordering == planned[run].ordering.digest
    assert len({tour.manifest.runs[run].ordering for run in runs_of(tour, "chime")}) == 3


def test_every_ordering_begins_with_an_empty_bank_of_its_own(tour: LaunchDirectory) -> None:
    """H4: what one ordering learnt is nowhere in another; whether memory was frozen is in the report."""
    for run in runs_of(tour, "chime"):
        first = EpisodeArchive(tour).trace_at(run, "train", 0)
        assert first is not None
        assert first.record.unit.read_version == 0
        assert all(not recall.candidates for recall in first.trajectory.recalls)
        assert {entry.run_id for entry in journal_of(tour, run)} == {run}
    lines = [line for row in launch_report(tour).rows for line in row.runs]
    assert {line.eval_memory for line in lines} == {"frozen", "none"}


def test_the_stream_is_replayed_for_the_papers_epochs_with_the_bank_carried_over(tour: LaunchDirectory) -> None:
    """R6: the same order twice; the second pass starts with what the first one learnt. Without state one pass is
    enough."""
    for run in runs_of(tour, "chime"):
        entries = journal_of(tour, run)
        tasks = [entry.task for entry in entries]
        assert tasks[:TRAIN] == tasks[TRAIN:]
        again = EpisodeArchive(tour).trace_at(run, "train", TRAIN)
        assert again is not None
        assert again.record.unit.read_version == TRAIN
        assert as_of(entries, TRAIN).records
    assert {len(journal_of(tour, run)) for run in runs_of(tour, "no_plan")} == {TRAIN}


def test_both_epochs_train_accuracies_are_reported(tour: LaunchDirectory) -> None:
    """R6: the first epoch's and the selected epoch's, each over all three orderings."""
    chime = next(row for row in launch_report(tour).rows if row.method == "chime")
    passed = [
        sum(
            record.outcome is Outcome.SUCCESS
            for run in runs_of(tour, "chime")
            for record in records_of(tour, run, "train")
            if record.unit.epoch == epoch
        )
        for epoch in (0, 1)
    ]
    assert [chime.train_first.total.success, chime.train_selected.total.success] == passed
    assert passed[0] < passed[1], "this world is learnt on the second pass"


def test_what_an_episode_reads_is_told_by_its_position_alone(tour: LaunchDirectory) -> None:
    """R7: position t of an epoch that starts at s read version max(s, t - W + 1), and the entry says so."""
    for run in runs_of(tour, "chime"):
        expected = [max(t - t % TRAIN, t - WINDOW + 1) for t in range(2 * TRAIN)]
        assert [entry.read_version for entry in journal_of(tour, run)] == expected
        for record in records_of(tour, run, "train"):
            trace = EpisodeArchive(tour).trace_at(run, "train", record.unit.position)
            assert trace is not None
            assert {recall.version for recall in trace.trajectory.recalls} == {record.unit.read_version}


def test_the_examination_reads_one_version_and_leaves_it_as_it_was(tour: LaunchDirectory) -> None:
    """R5: all eval episodes are pinned at the last epoch's version, none of them moves a value or a count, and
    the proof is stored beside the results."""
    for run in runs_of(tour, "chime"):
        state = replay(journal_of(tour, run))
        records = records_of(tour, run, "eval")
        assert len(records) == EVAL
        assert {record.unit.read_version for record in records} == {state.version} == {2 * TRAIN}
        assert {record.gate_status for record in records} == {"off"}
        end = decode(RunEnd, tour.run(run).evaluation.read_bytes(), "the evaluation")
        assert end.digest_before_eval == end.digest_after_eval == state.digest()


async def test_a_bank_that_is_another_after_the_examination_ends_the_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R5: the digests before and after are compared; where they differ there is no proof to store."""
    digests = count()

    async def moving(owner: BankOwner, run_id: str) -> str:
        return f"digest {next(digests)}"

    monkeypatch.setattr(BankOwner, "digest", moving)
    text = SWEEP.replace("[chime, no_plan]", "[no_plan]").replace("[0, 1, 2]", "[0]")
    with pytest.raises(JournalError, match="the bank changed during eval, which must not happen"):
        await launched(tmp_path, text)
    [directory] = (tmp_path / "runs").iterdir()
    launch = LaunchDirectory.open(directory)
    assert not any(launch.run(run).evaluation.exists() for run in launch.manifest.runs)


async def test_what_is_shown_of_a_launch_adds_up_at_every_moment_and_ends_with_all_of_it(tmp_path: Path) -> None:
    """R6, R7: what was committed was admitted before, never more than a window ahead; the end is every position of
    both passes and the whole examination, each settled with an outcome."""
    sweep = load_sweep(written(tmp_path, SWEEP.replace("[0, 1, 2]", "[0]")), environ={})
    shown: list[Sequence[Progress]] = []
    launch = Launch.new(sweep, plan_runs(sweep))
    assert await launch.drive(shown.append) is Ending.COMPLETE
    for progress in (run for snapshot in shown for run in snapshot):
        assert progress.head <= progress.position <= min(progress.head + WINDOW, progress.total)
    for progress, passes in zip(shown[-1], (2, 1), strict=True):
        assert (progress.position, progress.head, progress.total) == (passes * TRAIN,) * 3
        assert (progress.evaluated, progress.eval_total, progress.in_flight) == (EVAL, EVAL, 0)
        assert sum(progress.outcomes[outcome.value] for outcome in Outcome) == passes * TRAIN + EVAL
        assert progress.outcomes["infra"] == 0


def test_learning_moves_the_memory_and_never_the_model(tour: LaunchDirectory) -> None:
    """R1: for the same case, the same memories give the same words, whenever it is met; what differs between two
    meetings is what was recalled."""
    differed = 0
    for run in runs_of(tour, "chime"):
        archive = EpisodeArchive(tour)
        for position in range(TRAIN):
            pair = [archive.trace_at(run, "train", p) for p in (position, position + TRAIN)]
            shown, did = zip(
                *(
                    (
                        [[m.experience for m in recall.selected] for recall in t.trajectory.recalls],
                        t.trajectory.steps,
                    )
                    for t in pair
                    if t is not None
                ),
                strict=True,
            )
            differed += shown[0] != shown[1]
            assert shown[0] != shown[1] or did[0] == did[1]
    assert differed > 0
