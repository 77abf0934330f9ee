"""The quickstart's sweep on what it serves itself: the real engine, which answers, embeds and knows nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from chime_dist.adapters.vllm.actor import work_folder
from chime_dist.adapters.vllm.child import processes_in
from chime_dist.wiring.serving import read_status
from tests.integration.processes import journals_of, kill_tree, launch_below, rows_of, start
from tests.serving.endpoints import tiny_endpoint

QUICKSTART = Path(__file__).parents[2] / "configs" / "quickstart.yaml"

PATIENCE_S = 540.0
"""Two engines start one after the other, on a machine that may be busy, in seconds."""


def _quickstart(served: Mapping[str, Any]) -> str:
    """The quickstart's sweep in one ordering, with its model and its embedder served by the launch."""
    sweep: dict[str, Any] = YAML(typ="safe").load(QUICKSTART.read_text(encoding="utf-8"))
    sweep["orderings"] = [0]
    sweep["embedder"] = {"kind": "http", "model": "tiny-embed", "dim": 64}
    sweep["cluster"]["endpoints"] = served
    return json.dumps(sweep)


@pytest.mark.slow
def test_a_sweep_is_complete_on_the_replicas_that_it_starts_itself(
    vllm_environment: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """A model without knowledge fails its tasks; the point is that every episode ends so, and none as infra."""
    served = {
        "smollm2": tiny_endpoint(vllm_environment, tiny_model),
        "embedder": tiny_endpoint(vllm_environment, tiny_model, runner="pooling", tool_parser=None),
    }
    (tmp_path / "sweep.yaml").write_text(_quickstart(served))
    process = start(["sweep", "sweep.yaml"], tmp_path)
    try:
        code = process.wait(PATIENCE_S)
    finally:
        kill_tree(process)
    said = (tmp_path / "output.txt").read_text()
    assert code == 0, said
    launch = launch_below(tmp_path / "runs")
    rows = [row for row in rows_of(launch) if row["final"]]
    assert [row["unit"]["phase"] for row in rows].count("train") == 2 * 5
    assert len(rows) == 2 * 8
    assert {row["outcome"] for row in rows} <= {"success", "failure"}
    assert [len(entries) for entries in journals_of(launch).values()] == [5, 5]
    assert "prefix cache, smollm2 replica 0: " in said
    status = read_status(launch)
    assert [(fleet.backbone, fleet.replicas[0].state) for fleet in status.fleets] == [
        ("smollm2", "stopped"),
        ("embedder", "stopped"),
    ]
    assert any(cache.hits for cache in status.caches)
    assert not any(processes_in(work_folder(status.launch, part)) for part in ("smollm2-0", "embedder-0"))
