"""A small sweep that runs without any service, the program in this process, and a launch that is complete."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.cli.app import app

SWEEP = """\
name: quick
benchmarks:
  - name: bfcl_v4
    action_mode: json_schema
    categories: [live_simple, live_relevance]
methods:
  - name: chime
    retrieval: {min_similarity: 0.0}
    evolution: {conf_threshold: 0.0, addition: "off"}
  - no_plan
backbones: [{name: m, scripted: {seed: 2}}]
orderings: [0]
embedder: {kind: hashing, dim: 32}
protocol: {limit: 20, epochs: 2, window: 2}
requests: {timeout_s: 30.0, max_retries: 0}
cluster:
  slots: 4
  endpoints:
    m: {kind: scripted}
"""
"""Two runs; the method with memory takes 28 train positions and 6 eval indexes, the other one 14 and 6."""

CHIME_EPISODES, NO_PLAN_EPISODES = 34, 20


@dataclass(frozen=True, slots=True)
class Program:
    """``chime-dist`` in this process, and the folder it runs in."""

    folder: Path

    def __call__(self, *words: str | Path, env: Mapping[str, str] | None = None) -> Result:
        """Run one command. An exception that is not the program's way to exit is the test's failure."""
        result = CliRunner().invoke(app, [str(word) for word in words], env=dict(env or {}))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def json(self, *words: str | Path) -> Any:
        """Run one command with ``--json`` that is to succeed; what it printed."""
        result = self(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def write(self, text: str = SWEEP, name: str = "sweep.yaml") -> Path:
        """Put a file into the folder."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """In an empty folder, with a state folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("CHIME_REDIS_URL", "CHIME_QDRANT_URL", "RAY_ADDRESS", "CHIME_DEBUG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # As a shell that found the program on its PATH calls it.
    monkeypatch.setattr(sys, "argv", ["chime-dist"])
    return Program(tmp_path)


@pytest.fixture(scope="session")
def complete(tmp_path_factory: pytest.TempPathFactory) -> LaunchDirectory:
    """A launch of ``SWEEP`` that ran to its end; not to be changed."""
    folder = tmp_path_factory.mktemp("complete")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        program = Program(folder)
        result = program("sweep", program.write(), "--quiet")
    assert result.exit_code == 0, result.output
    return LaunchDirectory.open(folder / "runs" / "latest")


@pytest.fixture
def launch(program: Program, complete: LaunchDirectory) -> LaunchDirectory:
    """A copy of the complete launch below ``runs``, free to be changed."""
    path = program.folder / "runs" / "quick" / complete.id
    shutil.copytree(complete.path, path)
    return LaunchDirectory.open(path)


def run_of(launch: LaunchDirectory, method: str) -> str:
    """The run of a method."""
    return next(run for run in launch.manifest.runs if f"-{method}-" in run)
