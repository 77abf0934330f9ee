"""kill -9 of a whole sweep in the middle, then resume: nothing lost, nothing doubled, same content."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes import (
    finish,
    journals_of,
    kill_tree,
    launch_below,
    rows_of,
    start,
    wait_for_rows,
)

SWEEP = """\
name: crash
benchmarks: [{{name: credit_world, families: 4, tasks_per_family: 10, action_mode: json_schema}}]
methods: [chime, no_plan]
backbones: [{{name: m, scripted: {{script: credit_world}}}}]
orderings: [0, 1]
embedder: {{kind: hashing, dim: 64}}
protocol: {{epochs: 1, window: 6}}
cluster:
  slots: 8
  workers: 2
  lease_s: 5
  runs_dir: runs
  state_dir: state
  endpoints: {{m: {{kind: scripted, latency_s: [0.0, 0.06]}}}}
{cluster}"""

CLUSTERS = {
    "local": "",
    "redis": "  redis: embedded\n  qdrant: edge\n",
    "ray": "  redis: embedded\n  qdrant: edge\n  execution: ray\n  ray: {num_cpus: 2}\n",
}
EPISODES = 2 * 2 * 40


def prepared(folder: Path, cluster: str) -> Path:
    """A folder with the sweep's file."""
    folder.mkdir()
    (folder / "sweep.yaml").write_text(SWEEP.format(cluster=CLUSTERS[cluster]))
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Content chains of the sweep as it runs when nobody touches it, by run id."""
    folder = prepared(tmp_path_factory.mktemp("calm") / "sweep", "local")
    assert finish(start(["sweep", "sweep.yaml"], folder), folder) == 0, (folder / "output.txt").read_text()
    journals = journals_of(launch_below(folder / "runs"))
    assert any(
        event.kind == "content.merge" for entries in journals.values() for e in entries for event in e.events
    )
    return {run: [entry.content_hash for entry in entries] for run, entries in journals.items()}


@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_sweep_that_is_killed_and_resumed_ends_as_if_nothing_had_happened(
    tmp_path: Path, cluster: str, undisturbed: dict[str, list[str]]
) -> None:
    """C1, C8, D10, H3: twice kill -9 of the whole tree, then resume to the end."""
    folder = prepared(tmp_path / "sweep", cluster)
    process = start(["sweep", "sweep.yaml"], folder)
    seen: dict[str, str] = {}
    for kills in (1, 2):
        wait_for_rows(process, folder / "runs", 45 * kills)
        kill_tree(process)
        launch = launch_below(folder / "runs")
        seen |= {key_of(row): row["attempt"] for row in rows_of(launch)}
        process = start(["resume", str(launch)], folder)
    assert finish(process, folder) == 0, (folder / "output.txt").read_text()
    rows = rows_of(launch)
    final = {key_of(row): row["attempt"] for row in rows if row["final"]}
    assert len(final) == EPISODES
    assert set(Counter(key_of(row) for row in rows).values()) == {1}
    assert {key: final[key] for key in seen} == seen
    chains = {run: [e.content_hash for e in entries] for run, entries in journals_of(launch).items()}
    assert chains == undisturbed
    assert not list((folder / "runs").rglob("*.tmp"))


def key_of(row: dict[str, Any]) -> str:
    """Run, phase and position of a row."""
    unit = row["unit"]
    return f"{unit['run_id']}:{unit['phase']}:{unit['position']}"
