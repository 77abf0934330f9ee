"""Ray, real Redis and the real embedded Qdrant engine: one worker or sixteen, disturbed or not, same content."""

from __future__ import annotations

import random
import time
from pathlib import Path

import psutil
import pytest

from tests.integration.processes import finish, journals_of, launch_below, rows_below, rows_of, start, tree

SWEEP = """\
name: ray
benchmarks: [{{name: credit_world, families: 4, tasks_per_family: 12, steps: 1}}]
methods: [chime]
backbones: [{{name: m, scripted: {{script: credit_world}}}}]
orderings: [0]
embedder: {{kind: hashing, dim: 64}}
protocol: {{epochs: 2, window: 16}}
cluster:
  slots: 16
  lease_s: 2
  max_deliveries: 20
  runs_dir: runs
  state_dir: state
  endpoints: {{m: {{kind: scripted, latency_s: [0.0, 0.1]}}}}
{cluster}"""

RAY = "  redis: embedded\n  qdrant: edge\n  execution: ray\n  ray: {{num_cpus: 2}}\n  workers: {workers}\n"
TRAIN, EVAL = 32, 16
"""Tasks of the benchmark's 48."""


def chain(folder: Path) -> list[str]:
    """Content hashes of the only run."""
    [entries] = journals_of(launch_below(folder / "runs")).values()
    return [entry.content_hash for entry in entries]


def sweep(folder: Path, cluster: str) -> Path:
    """A folder with the sweep's file."""
    folder.mkdir()
    (folder / "sweep.yaml").write_text(SWEEP.format(cluster=cluster))
    return folder


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The local adapters' content chain."""
    folder = sweep(tmp_path_factory.mktemp("local") / "sweep", "")
    assert finish(start(["sweep", "sweep.yaml"], folder), folder) == 0, (folder / "output.txt").read_text()
    return chain(folder)


@pytest.mark.slow
def test_one_worker_on_ray_commits_what_the_local_adapters_commit(tmp_path: Path, reference: list[str]) -> None:
    """R7: where the parts run changes nothing."""
    folder = sweep(tmp_path / "sweep", RAY.format(workers=1))
    assert finish(start(["sweep", "sweep.yaml"], folder), folder) == 0, (folder / "output.txt").read_text()
    assert chain(folder) == reference


@pytest.mark.slow
def test_sixteen_workers_that_are_killed_at_random_commit_the_same(tmp_path: Path, reference: list[str]) -> None:
    """C1, C2, C8, D1: worker processes and the bank's owner die by kill -9 in mid-run; Ray starts them again."""
    folder = sweep(tmp_path / "sweep", RAY.format(workers=16))
    process = start(["sweep", "sweep.yaml"], folder)
    chance = random.Random(16)
    killed: list[str] = []
    doomed = ["ray::WorkerActor", "ray::BankActor", "ray::WorkerActor", "ray::RecordActor", "ray::WorkerActor"]
    while doomed and process.poll() is None:
        rows = rows_below(folder / "runs")
        # One death for about every eighth of the run.
        if rows < 10 * (len(killed) + 1):
            time.sleep(0.05)
            continue
        members = [p for p in tree(process) if _name(p).startswith(doomed[0])]
        if members:
            chance.choice(members).kill()
            killed.append(doomed.pop(0))
    assert finish(process, folder) == 0, (folder / "output.txt").read_text()
    assert len(killed) == 5
    assert chain(folder) == reference
    final = [row for row in rows_of(launch_below(folder / "runs")) if row["final"]]
    units = [(row["unit"]["phase"], row["unit"]["position"]) for row in final]
    assert len(units) == len(set(units)) == 2 * TRAIN + EVAL


def _name(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
