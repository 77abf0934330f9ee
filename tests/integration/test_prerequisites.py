"""Sessions before the memory questions of BFCL-v4, from the command line: killed, resumed, and under Ray."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from chime_dist.faults import KILL
from tests.integration.processes import finish, journals_of, launch_below, rows_of, start

TASKS = [f"memory_kv_{130 + index}-notetaker-{index}" for index in range(6)]
SESSIONS = [f"memory_kv_prereq_{32 + index}-notetaker-{index}" for index in range(5)]

SWEEP = f"""\
name: memories
benchmarks: [{{{{name: bfcl_v4, categories: [memory_kv], task_ids: {json.dumps(TASKS)}}}}}]
methods: [chime, no_plan]
backbones: [{{{{name: m, scripted: {{{{seed: 2}}}}}}}}]
orderings: [0]
embedder: {{{{kind: hashing, dim: 16}}}}
protocol: {{{{epochs: 1, window: 2}}}}
cluster:
  slots: 4
  runs_dir: runs
  state_dir: state
  endpoints: {{{{m: {{{{kind: scripted}}}}}}}}
{{cluster}}"""

RAY = "  redis: embedded\n  qdrant: edge\n  execution: ray\n  ray: {num_cpus: 2}\n  workers: 2\n"


def sweep(folder: Path, cluster: str = "") -> Path:
    """A folder with the sweep's file."""
    folder.mkdir()
    (folder / "sweep.yaml").write_text(SWEEP.format(cluster=cluster))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every artifact of the only launch."""
    files = (launch_below(folder / "runs") / "prerequisites").rglob("*.json")
    return {path.name: path.read_bytes() for path in files}


def chains(folder: Path) -> dict[str, list[str]]:
    """Content hashes by run."""
    journals = journals_of(launch_below(folder / "runs"))
    return {run: [entry.content_hash for entry in entries] for run, entries in journals.items()}


def built(folder: Path) -> Counter[str]:
    """Sessions that were held to their end, as the log tells."""
    lines = (launch_below(folder / "runs") / "log.jsonl").read_text().splitlines()
    events = map(json.loads, lines)
    return Counter(event["session"] for event in events if event["event"] == "bfcl_v4.session_ended")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed launch on the local adapters."""
    folder = sweep(tmp_path_factory.mktemp("local") / "sweep")
    assert finish(start(["sweep", "sweep.yaml"], folder), folder) == 0, (folder / "output.txt").read_text()
    return folder


def test_a_launch_says_what_it_builds_before_its_runs(reference: Path) -> None:
    """R42: five sessions for two runs, told one by one; every episode could open its question."""
    output = (reference / "output.txt").read_text()
    assert "prerequisites of bfcl_v4 on m: 5 to build, 0 there" in output
    assert f"prerequisites of bfcl_v4 on m: {SESSIONS[-1]} took " in output
    assert built(reference) == dict.fromkeys(SESSIONS, 1)
    rows = rows_of(launch_below(reference / "runs"))
    assert len(rows) == 2 * 6
    assert {row["outcome"] for row in rows} <= {"success", "failure"}


@pytest.mark.slow
@pytest.mark.parametrize(("point", "again"), [("prerequisite.built:3", 1), ("prerequisite.stored:3", 0)])
def test_a_launch_killed_while_it_builds_builds_on_resume_what_is_missing(
    tmp_path: Path, reference: Path, monkeypatch: pytest.MonkeyPatch, point: str, again: int
) -> None:
    """D10: kill -9 after the third session, before or after its artifact is on disk; no half is ever kept."""
    folder = sweep(tmp_path / "sweep")
    monkeypatch.setenv(KILL, point)
    process = start(["sweep", "sweep.yaml"], folder)
    assert finish(process, folder) == -signal.SIGKILL
    monkeypatch.delenv(KILL)
    assert len(contents(folder)) == 3 - again
    assert finish(start(["resume", str(launch_below(folder / "runs"))], folder), folder) == 0
    assert built(folder) == {**dict.fromkeys(SESSIONS, 1), SESSIONS[2]: 1 + again}
    assert contents(folder) == contents(reference)
    assert chains(folder) == chains(reference)


@pytest.mark.slow
def test_workers_on_ray_get_the_same_memories(tmp_path: Path, reference: Path) -> None:
    """R7: artifacts travel with the launch's spec, not by a path that a worker may not have."""
    folder = sweep(tmp_path / "sweep", RAY)
    assert finish(start(["sweep", "sweep.yaml"], folder), folder) == 0, (folder / "output.txt").read_text()
    assert contents(folder) == contents(reference)
    assert chains(folder) == chains(reference)
    assert {row["outcome"] for row in rows_of(launch_below(folder / "runs"))} <= {"success", "failure"}
