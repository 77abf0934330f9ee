"""What a launch leaves in its folder besides results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.benchmarks.credit_world.benchmark import CreditWorld
from chime_dist.benchmarks.credit_world.environment import CreditEnvironment
from chime_dist.config.cluster import ClusterConfig, LlamaCppEndpoint, with_absolute_paths
from chime_dist.config.loading import load_sweep
from chime_dist.engine.driven_run import Progress
from chime_dist.engine.driver import Ending
from chime_dist.errors import BenchmarkError, RunDirectoryError, ServiceError
from chime_dist.wiring import services
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
  redelivery_pause_s: 0.0
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


HERE = SWEEP.replace("RUNS", "there").replace(
    "{m: {kind: scripted}}", "{m: {kind: scripted}, own: {kind: llamacpp, model_path: own.gguf}}"
)


def test_a_launch_goes_on_from_another_folder_with_the_state_and_the_files_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths start where it was started, and are kept as what they meant there."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    monkeypatch.chdir(first)
    (first / "sweep.yaml").write_text(HERE, encoding="utf-8")
    sweep = load_sweep("sweep.yaml", environ={"CANARY": CANARY})
    launch = Launch.new(sweep, plan_runs(sweep))
    assert launch.directory.path.parts[0] == "there"
    path = launch.directory.path.absolute()
    cluster = launch.directory.manifest.config["cluster"]
    assert (cluster["runs_dir"], cluster["state_dir"]) == (str(first / "there"), str(first / "there"))
    assert cluster["endpoints"]["own"]["model_path"] == str(first / "own.gguf")

    monkeypatch.chdir(second)
    monkeypatch.setenv("CANARY", CANARY)
    for moved in (first, second):
        monkeypatch.chdir(moved)
        resumed = Launch.resume(path)
        assert services.state_dir(resumed.sweep.cluster, launch.directory.id).parent == first / "there"
    # As older launches were stored.
    file = path / "sweep.json"
    file.write_text(file.read_text().replace(f'"state_dir":"{first}/there"', '"state_dir":"there"'))
    older = Launch.resume(path)
    assert services.state_dir(older.sweep.cluster, launch.directory.id).parent == second / "there"


def test_what_names_a_package_is_no_path() -> None:
    own = LlamaCppEndpoint(kind="llamacpp", model_path="package:some_model")
    assert with_absolute_paths(ClusterConfig(endpoints={"m": own})).endpoints["m"] == own


async def test_a_launch_whose_own_redis_dies_says_so_and_a_resume_starts_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told by the process's end, and not by commands that nobody answers."""
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP.replace("RUNS", str(tmp_path)) + "  redis: embedded\n", encoding="utf-8")
    sweep = load_sweep(file, environ={"CANARY": CANARY})
    launch, opened = Launch.new(sweep, plan_runs(sweep)), CreditWorld.open

    async def open_(world: CreditWorld, task: str) -> CreditEnvironment:
        for child in psutil.Process().children():
            if child.name() == "redis-server":
                child.kill()
        return await opened(world, task)

    with monkeypatch.context() as patch:
        patch.setattr(CreditWorld, "open", open_)
        with pytest.raises(ServiceError, match=r"redis-server of this launch ended by SIGKILL; .*redis\.log"):
            await launch.drive(lambda _: None)
    status = launch.directory.status()
    assert status is not None
    assert "ended by SIGKILL" in status.reason
    assert "resume the launch, which starts another" in status.reason

    again = Launch(sweep, launch.runs, LaunchDirectory.open(launch.directory.path))
    assert await again.drive(lambda _: None) is Ending.COMPLETE


async def test_an_evaluation_that_cannot_be_noted_is_told_with_its_fix(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP.replace("RUNS", str(tmp_path)), encoding="utf-8")
    sweep = load_sweep(file, environ={"CANARY": CANARY})
    launch = Launch.new(sweep, plan_runs(sweep))
    folder = launch.directory.run(launch.runs[0].run_id)
    in_the_way = folder.path / ".evaluation.json.tmp"
    in_the_way.mkdir(parents=True)
    with pytest.raises(RunDirectoryError, match=r"evaluation\.json: cannot be written: Is a directory; .*move it"):
        await launch.drive(lambda _: None)
