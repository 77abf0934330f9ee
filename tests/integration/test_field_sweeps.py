"""Sweeps at the command line as they are left behind: half an ordering, doubled rows, a shared state folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from tests.cli.conftest import Program
from tests.integration.processes import finish, journals_of, kill_tree, rows_below, rows_of, start, wait_for_rows

SWEEP = """\
name: left
benchmarks: [{name: credit_world, families: 2, tasks_per_family: 10, steps: 1}]
methods: [no_plan]
backbones: [{name: m, scripted: {script: credit_world}}]
orderings: [0, 1, 2]
embedder: {kind: hashing, dim: 16}
protocol: {epochs: 1, window: 4}
cluster:
  slots: 8
  endpoints: {m: {kind: scripted}}
"""
EVAL = 6


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The program in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("CHIME_REDIS_URL", "CHIME_QDRANT_URL", "RAY_ADDRESS", "CHIME_DEBUG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Program(tmp_path)


@pytest.fixture
def launch(program: Program) -> LaunchDirectory:
    """A complete launch of three orderings, free to be damaged."""
    result = program("sweep", program.write(SWEEP), "--quiet")
    assert result.exit_code == 0, result.output
    return LaunchDirectory.open(program.folder / "runs" / "latest")


def rewritten(launch: LaunchDirectory, run: str, crashed: int, *, doubled: bool = False) -> Path:
    """The rows of a run whose last ``crashed`` eval episodes ended infra; the first row perhaps twice."""
    episodes = launch.run(run).episodes
    rows = [json.loads(line) for line in episodes.read_text().splitlines()]
    train, held_out = ([row for row in rows if row["unit"]["phase"] == phase] for phase in ("train", "eval"))
    held_out.sort(key=lambda row: row["unit"]["position"])
    for row in held_out[EVAL - crashed :]:
        row |= {"final": False, "outcome": "infra", "end_reason": "benchmark", "detail": "the simulator crashed"}
    kept = [*train, *held_out, *([held_out[0]] if doubled else [])]
    episodes.write_text("".join(json.dumps(row) + "\n" for row in kept))
    return episodes


def test_a_crashed_and_an_absent_ordering_are_neither_dropped_nor_counted_as_zero(
    program: Program, launch: LaunchDirectory
) -> None:
    """H1: ordering 0 whole, two of six crashed in ordering 1, ordering 2 never run: no average of three, exit code
    3, every ordering accounted for; with --partial each number shows its n."""
    runs = sorted(launch.manifest.runs)
    rewritten(launch, runs[1], crashed=2)
    for file in (launch.run(runs[2]).episodes, launch.run(runs[2]).journal, launch.run(runs[2]).evaluation):
        file.unlink()
    refused = program("report", launch.path, "--json")
    assert refused.exit_code == 3
    [row] = json.loads(refused.stdout)["rows"]
    assert (row["eval"]["cell"], row["eval"]["average"]["incomplete"]) == (None, [1, 2])
    ends = ("planned", "success", "failure", "infra", "missing")
    tallies = [[line["eval"][end] for end in ends] for line in row["runs"]]
    assert all(planned == sum(accounted) for planned, *accounted in tallies)
    counts = [
        (planned, success + failure, infra, missing) for planned, success, failure, infra, missing in tallies
    ]
    assert counts == [(6, 6, 0, 0), (6, 4, 2, 0), (6, 0, 0, 6)]
    partial = program("report", launch.path, "--partial")
    assert partial.exit_code == 3
    assert "(n=10/18, 2 of 3 orderings)" in partial.stdout
    assert "INCOMPLETE" in partial.stdout


def test_a_resume_runs_exactly_the_errored_rows_and_forgives_an_identical_copy(
    program: Program, launch: LaunchDirectory
) -> None:
    """H3: good rows stay, two infra rows are run again, a good row that is there twice counts once; the failed
    attempts stay in the file as history."""
    run = sorted(launch.manifest.runs)[0]
    episodes = rewritten(launch, run, crashed=2, doubled=True)
    before = episodes.read_text().splitlines()
    resumed = program("resume", launch.path)
    assert resumed.exit_code == 0, resumed.output
    assert "owed 2" in resumed.stderr
    after = episodes.read_text().splitlines()
    assert after[: len(before)] == before
    new = [json.loads(line) for line in after[len(before) :]]
    assert sorted(row["unit"]["position"] for row in new) == [EVAL - 2, EVAL - 1]
    [row] = program.json("report", launch.path)["rows"]
    assert [line["eval"]["success"] + line["eval"]["failure"] for line in row["runs"]] == [EVAL] * 3


def test_two_different_results_for_one_episode_are_refused_by_name(
    program: Program, launch: LaunchDirectory
) -> None:
    """H3: a stale row that contradicts the final one would give rates above 1; no command counts it."""
    run = sorted(launch.manifest.runs)[0]
    episodes = launch.run(run).episodes
    row = json.loads(episodes.read_text().splitlines()[0])
    other = {"success": "failure", "failure": "success"}[row["outcome"]]
    with episodes.open("a") as file:
        file.write(json.dumps({**row, "attempt": "another", "outcome": other}) + "\n")
    for command in ("report", "resume"):
        result = program(command, launch.path)
        assert result.exit_code == 1
        assert f"{run}:train:" in result.stderr


SHARED = """\
name: {name}
benchmarks: [{{name: credit_world, families: 2, tasks_per_family: 20, steps: 1}}]
methods: [chime]
backbones: [{{name: m, scripted: {{script: credit_world}}}}]
orderings: [0]
embedder: {{kind: hashing, dim: 32}}
protocol: {{epochs: 1, window: 4}}
cluster:
  slots: 4
  runs_dir: runs
  state_dir: state
  redis: embedded
  qdrant: edge
  endpoints: {{m: {{kind: scripted, latency_s: {latency}}}}}
"""


@pytest.mark.slow
def test_launches_share_a_state_folder_without_ever_opening_each_others_store(tmp_path: Path) -> None:
    """E7: while one launch holds its store, another one on the same state folder runs to its end beside it, and a
    second driver of the first is refused with the holder's pid. After kill -9 the store opens again by itself."""
    (tmp_path / "slow.yaml").write_text(SHARED.format(name="slow", latency="[1.0, 1.5]"))
    (tmp_path / "quick.yaml").write_text(SHARED.format(name="quick", latency="[0.0, 0.0]"))
    holder = start(["sweep", "slow.yaml"], tmp_path)
    wait_for_rows(holder, tmp_path / "runs" / "slow", 4)
    [manifest] = (tmp_path / "runs" / "slow").rglob("sweep.json")
    launch = manifest.parent

    assert finish(start(["sweep", "quick.yaml"], tmp_path), tmp_path) == 0, (tmp_path / "output.txt").read_text()
    assert finish(start(["resume", str(launch)], tmp_path), tmp_path) == 1
    said = (tmp_path / "output.txt").read_text()
    assert re.search(rf"process {holder.pid} on \S+ drives this launch since ", said)

    assert holder.poll() is None, "the first launch was not disturbed by any of this"
    wait_for_rows(holder, tmp_path / "runs" / "slow", rows_below(tmp_path / "runs" / "slow") + 1)
    kill_tree(holder)
    calm = ["--set", "cluster.endpoints.m.latency_s=[0.0, 0.0]"]
    code = finish(start(["resume", str(launch), *calm], tmp_path), tmp_path)
    assert code == 0, (tmp_path / "output.txt").read_text()
    final = [row for row in rows_of(launch) if row["final"]]
    assert len(final) == len({row["unit"]["position"] for row in final if row["unit"]["phase"] == "train"}) + 12
    [entries] = journals_of(launch).values()
    assert len(entries) == 28
