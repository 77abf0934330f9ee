"""What a launch leaves in its folder besides results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from chime_dist.benchmarks.credit_world.benchmark import CreditWorld
from chime_dist.benchmarks.credit_world.environment import CreditEnvironment
from chime_dist.config.loading import load_sweep
from chime_dist.engine.driven_run import Progress
from chime_dist.engine.driver import Ending
from chime_dist.errors import BenchmarkError
from chime_dist.wiring.launch import LONGEST_REASON, Launch
from chime_dist.wiring.plans import plan_runs

CANARY = "canary-7f3d9b52c1"

SWEEP = """\
name: quick
benchmarks: [{name: credit_world, families: 1, tasks_per_family: 4}]
methods: [no_plan]
backbones: [{name: m, scripted: {script: credit_world}}]
orderings: [0]
embedder: {kind: hashing, dim: 16}
cluster:
  runs_dir: RUNS
  state_dir: RUNS
  endpoints: {m: {kind: scripted}}
  secrets: {search: "${CANARY}"}
"""


@pytest.mark.parametrize("padding", [0, LONGEST_REASON - len("RuntimeError: ") - len(CANARY) // 2, 50_000])
async def test_the_status_of_a_launch_that_crashed_is_short_and_holds_no_secret(
    tmp_path: Path, padding: int
) -> None:
    """H6: an exception's text is whatever a server or a library put there; a secret is masked before the cut, so
    that no half of it is left either."""
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP.replace("RUNS", str(tmp_path)), encoding="utf-8")
    sweep = load_sweep(file, environ={"CANARY": CANARY})
    launch = Launch.new(sweep, plan_runs(sweep))

    def crash(_: Sequence[Progress]) -> None:
        raise RuntimeError(f"{'x' * padding}{CANARY} at redis://:hunter2@host")

    with pytest.raises(RuntimeError, match=CANARY):
        await launch.drive(crash)

    status = launch.directory.status()
    assert status is not None
    assert status.state == "incomplete"
    assert status.reason.startswith("RuntimeError: ")
    assert len(status.reason) <= LONGEST_REASON
    if not padding:
        assert status.reason == "RuntimeError: *** at redis://***@host"
    written = b"".join(path.read_bytes() for path in sorted(launch.directory.path.rglob("*")) if path.is_file())
    assert CANARY[:8].encode() not in written
    assert b"hunter2" not in written


async def test_progress_counts_a_position_that_was_committed_empty_as_infra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D9: it has no final record, yet nothing will ever be tried there again."""
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP.replace("RUNS", str(tmp_path)), encoding="utf-8")
    sweep = load_sweep(file, environ={"CANARY": CANARY})
    launch = Launch.new(sweep, plan_runs(sweep))
    broken, opened = launch.runs[0].plan.train[0], CreditWorld.open

    async def open_(world: CreditWorld, task: str) -> CreditEnvironment:
        if task == broken:
            raise BenchmarkError("the simulator crashed")
        return await opened(world, task)

    monkeypatch.setattr(CreditWorld, "open", open_)
    reports: list[Sequence[Progress]] = []
    assert await launch.drive(reports.append) is Ending.COMPLETE
    [run] = reports[-1]
    assert (run.head, run.outcomes["infra"]) == (run.total, 1)
    assert sum(run.outcomes[name] for name in ("success", "failure", "infra")) == run.total + run.eval_total
