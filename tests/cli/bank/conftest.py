"""A small launch that learns: ``credit_world`` knows what each task teaches, so memories are found and used."""

from __future__ import annotations

import shutil

import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.core.journal import JournalEntry
from chime_dist.wiring.results import JournalFile
from tests.cli.conftest import Program, run_of

LEARNING = """\
name: learning
benchmarks: [{name: credit_world, families: 4, tasks_per_family: 10, action_mode: json_schema}]
methods: [chime, no_plan]
backbones: [{name: m, scripted: {script: credit_world}}]
orderings: [0]
embedder: {kind: hashing, dim: 64}
protocol: {epochs: 2, window: 4}
cluster:
  slots: 8
  qdrant: edge
  endpoints:
    m: {kind: scripted}
"""
"""28 train tasks, two epochs, 12 eval tasks."""


@pytest.fixture(scope="session")
def complete_learning(tmp_path_factory: pytest.TempPathFactory) -> LaunchDirectory:
    """A launch of ``LEARNING`` that ran to its end; not to be changed."""
    folder = tmp_path_factory.mktemp("learning")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        program = Program(folder)
        result = program("sweep", program.write(LEARNING), "--quiet")
    assert result.exit_code == 0, result.output
    return LaunchDirectory.open(folder / "runs" / "latest")


@pytest.fixture
def learnt(program: Program, complete_learning: LaunchDirectory) -> LaunchDirectory:
    """A copy of it below ``runs``, free to be changed."""
    path = program.folder / "runs" / "learning" / complete_learning.id
    shutil.copytree(complete_learning.path, path)
    return LaunchDirectory.open(path)


@pytest.fixture
def entries(learnt: LaunchDirectory) -> list[JournalEntry]:
    """The journal of the run with memory."""
    return list(JournalFile.read(learnt.run(run_of(learnt, "chime")).journal).entries())
