"""All methods and ablations on real BFCL-v4 Live tasks, with both ways to act; the model is the double."""

from __future__ import annotations

from pathlib import Path

import pytest

from chime_dist.core.episode import Outcome
from chime_dist.wiring.results import launch_report
from tests.integration.every_method import METHODS
from tests.integration.stated_cost import surprises
from tests.spec.sweeps import launched, records_of

SWEEP = f"""\
name: live
benchmarks:
  - {{name: bfcl_v4, action_mode: tools}}
  - {{name: bfcl_v4, action_mode: json_schema}}
methods:
{METHODS}\
backbones: [{{name: m, scripted: {{script: hash}}}}]
orderings: [0]
embedder: {{kind: hashing, dim: 64}}
protocol: {{epochs: 2, window: 1, limit: 2}}
cluster:
  slots: 16
  endpoints: {{m: {{kind: scripted}}}}
"""
"""One task to learn from, twice, and one to be examined on."""


@pytest.mark.slow
async def test_every_method_runs_on_live_tasks_and_asks_its_models_as_often_as_it_states(tmp_path: Path) -> None:
    """R42, R43, R44: nothing is missing, no episode ends infra, and calls by role are the stated ones."""
    launch = await launched(tmp_path, SWEEP)
    report = launch_report(launch)
    assert report.complete
    assert {row.deviations["action_mode"] for row in report.rows} == {"tools", "json_schema"}
    assert len(report.rows) == len(launch.manifest.runs) == 2 * METHODS.count("\n")
    assert surprises(launch) == []
    for run, entry in launch.manifest.runs.items():
        for phase, planned in (("train", entry.epochs * entry.train_size), ("eval", entry.eval_size)):
            records = records_of(launch, run, phase)
            assert [record.unit.position for record in records] == list(range(planned))
            assert Outcome.INFRA not in {record.outcome for record in records}
