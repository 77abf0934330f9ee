"""Small launches to be analysed, run in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from tests.spec.sweeps import launched

SWEEP = """\
name: worsening
benchmarks: [{name: credit_world, families: 2, tasks_per_family: 8, steps: 1}]
methods: [chime, {name: chime, ablation: no_gate}, {name: chime, ablation: no_hierarchy}, umem, no_plan]
backbones:
  - {name: sees, scripted: {script: credit_world, gate_accuracy: 1.0}}
  - {name: blind, scripted: {script: credit_world, gate_accuracy: 0.0}}
orderings: [0, 1]
embedder: {kind: hashing, dim: 64}
protocol: {epochs: 2, window: 2}
cluster:
  slots: 8
  endpoints: {sees: {kind: scripted}, blind: {kind: scripted}}
"""
TRAIN, EVAL = 10, 6

OTHER = """\
name: other
benchmarks: [{name: credit_world, families: 1, tasks_per_family: 4, steps: 1}]
methods: [chime]
backbones: [{name: m, scripted: {script: hash}}]
orderings: [0]
embedder: {kind: hashing, dim: 32}
protocol: {epochs: 1, window: 1}
cluster:
  endpoints: {m: {kind: scripted}}
"""


def worsening_launch(folder: Path) -> LaunchDirectory:
    """Five methods under a gate that sees every cause, and one that sees none; two orderings."""
    return asyncio.run(launched(folder, SWEEP))


def other_launch(folder: Path) -> LaunchDirectory:
    """A launch whose model knows nothing of the world."""
    return asyncio.run(launched(folder, OTHER))
