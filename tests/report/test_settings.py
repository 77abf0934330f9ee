"""Rows of one method in two settings: told apart, named, and compared."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from chime_dist.cli.app import app
from tests.spec.sweeps import launched

SWEEP = """\
name: settings
benchmarks: [{name: credit_world, families: 1, tasks_per_family: 6, steps: 1}]
methods: [chime, {name: chime, evolution: {value_update: attributed}}, {name: chime, ablation: no_rerank}]
backbones: [{name: m, scripted: {script: credit_world}}]
orderings: [0, 1]
embedder: {kind: hashing, dim: 64}
protocol: {epochs: 1, window: 2}
cluster:
  slots: 4
  endpoints: {m: {kind: scripted}}
"""


async def test_an_option_that_is_no_default_names_the_row(tmp_path: Path) -> None:
    """H1: two settings of one method are two rows, each with all its orderings; what an ablation decides is named
    by the ablation alone."""
    launch = await launched(tmp_path, SWEEP)
    own = [
        {key: value for key, value in entry.deviations.items() if key.startswith("chime.")}
        for entry in launch.manifest.runs.values()
    ]
    assert sorted(own, key=len) == [{}] * 4 + [{"chime.evolution.value_update": "attributed"}] * 2
    shown = CliRunner().invoke(app, ["report", str(launch.path), "--compare", "chime", "chime"])
    assert shown.exit_code == 0, shown.output
    assert "chime.evolution.value_update=attributed" in shown.output.replace("\n", " ")
