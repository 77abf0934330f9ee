"""What every memory makes of the simulated world: it reaches who needs it, is followed, and is worth having."""

from __future__ import annotations

from pathlib import Path

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.directory.prompt_files import load_prompts
from chime_dist.core.episode import EpisodeRecord, Outcome
from tests.spec.sweeps import launched, records_of, runs_of

SWEEP = """\
name: learning
benchmarks: [{name: credit_world, families: 6, tasks_per_family: 20, steps: 1, noise: 0.0}]
methods:
  - {name: chime, ablation: no_memory}
  - chime
  - {name: chime, ablation: no_hierarchy}
  - {name: chime, ablation: no_gate}
  - a_mapreduce
  - umem
backbones: [{name: m, scripted: {script: credit_world}}]
orderings: [0]
embedder: {kind: hashing, dim: 256}
protocol: {epochs: 1, window: 8}
cluster:
  slots: 8
  capture_prompts: true
  endpoints: {m: {kind: scripted}}
"""
"""No noise: an outcome is what the attempt deserved, so that outcomes alone can teach."""

READERS = {
    "plan": {"planner"},
    "exec": {"executor"},
    "memory": {"planner", "executor"},
    "record": {"planner"},
    "rule": {"planner"},
}
"""Whose prompts a memory has to be in, by what it was recalled as."""


def examined(launch: LaunchDirectory, method: str) -> list[EpisodeRecord]:
    """The eval split of the method's only run."""
    [run] = runs_of(launch, method)
    return records_of(launch, run, "eval")


async def test_every_memory_is_read_by_who_needs_it_and_raises_success(tmp_path: Path) -> None:
    """R1, R2, R43, R44: a bank that did no good would be one that is not found, not shown or not followed."""
    launch = await launched(tmp_path, SWEEP)
    archive = EpisodeArchive(launch)
    solved: dict[str, int] = {}
    for method in ("chime_no_memory", "chime", "chime_no_hierarchy", "chime_no_gate", "a_mapreduce", "umem"):
        records = examined(launch, method)
        solved[method] = sum(record.outcome is Outcome.SUCCESS for record in records)
        shown = 0
        for record in records:
            trace, captured = archive.trace(record.unit), load_prompts(launch.run(record.unit.run_id), record)
            assert trace is not None
            assert captured is not None
            texts = {
                role: "".join(
                    str(message["content"])
                    for call in captured.calls
                    if call.role == role and call.request is not None
                    for message in call.request.messages
                )
                for role in ("planner", "executor")
            }
            for memory in (memory for recall in trace.trajectory.recalls for memory in recall.selected):
                told = memory.experience.splitlines()[0].removeprefix("success: ").removeprefix("failure: ")
                assert all(told in texts[role] for role in READERS[memory.stage])
                shown += 1
        assert (shown > 0) == (method != "chime_no_memory")
    assert (
        min(count for method, count in solved.items() if method != "chime_no_memory") > solved["chime_no_memory"]
    )
    assert solved["chime"] == len(records) == 36
