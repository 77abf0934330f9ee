"""A sweep file that is right, and a way to load texts like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from chime_dist.config.loading import load_sweep
from chime_dist.config.sweep import SweepConfig

SWEEP = """\
name: quick
benchmarks:
  - name: bfcl_v4
    limit: 12
methods:
  - chime
  - name: no_plan
backbones:
  - name: qwen3.5-flash
    model: Qwen/Qwen3.5-Flash
embedder: hashing
cluster:
  endpoints:
    qwen3.5-flash: {kind: scripted}
"""


class Load(Protocol):
    """Writes a text to a file and loads it."""

    def __call__(
        self, text: str = ..., overrides: Sequence[str] = ..., environ: Mapping[str, str] = ...
    ) -> SweepConfig:
        """The loaded sweep."""
        ...


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP, encoding="utf-8")
    return path


@pytest.fixture
def load(sweep_file: Path) -> Load:
    def load(
        text: str = SWEEP, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
    ) -> SweepConfig:
        sweep_file.write_text(text, encoding="utf-8")
        return load_sweep(sweep_file, overrides, environ or {})

    return load
