"""A whole sweep on what it serves itself: CHIME on the real engine, which answers, embeds and knows nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chime_dist.adapters.vllm.actor import work_folder
from chime_dist.adapters.vllm.child import processes_in
from chime_dist.wiring.serving import read_status
from tests.integration.processes import journals_of, kill_tree, launch_below, rows_of, start
from tests.serving.endpoints import tiny_endpoint

SWEEP = """\
name: tiny
benchmarks: [{name: credit_world, families: 1, tasks_per_family: 6, steps: 1, action_mode: json_schema}]
methods: [chime]
backbones:
  - name: tiny
    max_input_tokens: 7000
    max_output_tokens: 400
    max_output_by_role: {planner: 48, executor: 200, gate: 300}
orderings: [0]
embedder: {kind: http, model: tiny-embed, dim: 64}
protocol: {epochs: 1, window: 2}
requests: {timeout_s: 120, max_retries: 2, base_interval_s: 1}
cluster:
  execution: ray
  ray: {num_cpus: 2}
  redis: embedded
  qdrant: edge
  slots: 2
  runs_dir: runs
  state_dir: state
"""

PATIENCE_S = 540.0
"""Two engines start one after the other, on a machine that may be busy, in seconds."""


@pytest.mark.slow
def test_a_sweep_is_complete_on_the_replicas_that_it_starts_itself(
    vllm_environment: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """A model without knowledge fails its tasks; the point is that every episode ends so, and none as infra."""
    embedder = tiny_endpoint(vllm_environment, tiny_model, runner="pooling", tool_parser=None)
    endpoints = {"tiny": tiny_endpoint(vllm_environment, tiny_model), "embedder": embedder}
    (tmp_path / "sweep.yaml").write_text(f"{SWEEP}  endpoints: {json.dumps(endpoints)}\n")
    process = start(["sweep", "sweep.yaml"], tmp_path)
    try:
        code = process.wait(PATIENCE_S)
    finally:
        kill_tree(process)
    said = (tmp_path / "output.txt").read_text()
    assert code == 0, said
    launch = launch_below(tmp_path / "runs")
    rows = [row for row in rows_of(launch) if row["final"]]
    assert [row["unit"]["phase"] for row in rows].count("train") == 4
    assert len(rows) == 6
    assert {row["outcome"] for row in rows} <= {"success", "failure"}
    [entries] = journals_of(launch).values()
    assert len(entries) == 4
    assert "prefix cache, tiny replica 0: " in said
    status = read_status(launch)
    assert [(fleet.backbone, fleet.replicas[0].state) for fleet in status.fleets] == [
        ("tiny", "stopped"),
        ("embedder", "stopped"),
    ]
    assert any(cache.hits for cache in status.caches)
    assert not any(processes_in(work_folder(status.launch, part)) for part in ("tiny-0", "embedder-0"))
