"""A server that is ahead of the launch's folder: a copy was resumed on it, or the folder is an older backup."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from redis import Redis

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.config.loading import load_sweep
from chime_dist.core.episode import Outcome, Proposal
from chime_dist.engine.driver import Ending
from chime_dist.wiring.launch import Launch
from chime_dist.wiring.plans import plan_runs
from chime_dist.wiring.results import JournalFile, disagreements

SWEEP = """\
name: newer
benchmarks: [{name: credit_world, families: 2, tasks_per_family: 5}]
methods: [chime]
backbones: [{name: m, scripted: {script: credit_world}}]
orderings: [0]
embedder: {kind: hashing, dim: 16}
protocol: {window: 4, epochs: 1}
cluster:
  slots: 4
  runs_dir: RUNS
  state_dir: RUNS/state
  redis: {url: REDIS, assume_durable: true}
  endpoints: {m: {kind: scripted}}
"""


async def _driven(launch: Launch) -> Ending:
    return await launch.drive(lambda _: None)


def _attempts(launch: LaunchDirectory, run: str) -> list[str]:
    """Of the train rows, by position."""
    rows = [json.loads(line) for line in launch.run(run).episodes.read_text().splitlines()]
    train = [row for row in rows if row["unit"]["phase"] == "train"]
    return [row["attempt"] for row in sorted(train, key=lambda row: int(row["unit"]["position"]))]


@pytest.mark.parametrize("stored", [False, True])
async def test_what_another_directorys_attempt_proposed_is_not_committed(
    tmp_path: Path, redis_url: str, stored: bool
) -> None:
    """C8, D9: position 2 was completed by an attempt of which this folder has no row; it is run here, or was, and
    row, journal and bank are of the same attempt."""
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP.replace("RUNS", str(tmp_path)).replace("REDIS", redis_url), encoding="utf-8")
    sweep = load_sweep(file, environ={})
    launch = Launch.new(sweep, plan_runs(sweep))
    directory, [run] = launch.directory, launch.runs
    if stored:
        other = Launch.new(sweep, plan_runs(sweep))
        assert await _driven(other) is Ending.COMPLETE
        folder = directory.run(run.run_id)
        other.directory.run(run.run_id).path.rename(folder.path)
        for name in ("journal.jsonl", "journal.fence", "evaluation.json"):
            (folder.path / name).unlink()
        rows = folder.episodes.read_text().splitlines(keepends=True)
        folder.episodes.write_text("".join(row for row in rows if '"phase":"train"' in row))
    foreign = Proposal(
        run_id=run.run_id,
        position=2,
        task=run.plan.train[2],
        attempt="another-directorys",
        read_version=0,
        outcome=Outcome.FAILURE,
        empty_reason="gate_error",
    )
    with Redis.from_url(redis_url) as server:
        server.hset(RedisKeys(directory.id).proposals(run.run_id), "2", foreign.model_dump_json())
    assert await _driven(Launch.resume(directory.path)) is Ending.COMPLETE

    entries = list(JournalFile.read(directory.run(run.run_id).journal).entries())
    assert [entry.attempt for entry in entries] == _attempts(directory, run.run_id)
    assert disagreements(directory, run.run_id, entries) == []
