"""The metrics of launches that run, scraped as Prometheus does, against what their folders hold."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from chime_dist.adapters.directory.control_file import ControlFile
from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.prompt_files import load_prompts
from chime_dist.config.cluster import ClusterConfig
from chime_dist.config.loading import load_sweep
from chime_dist.engine.control import Command
from chime_dist.engine.driver import Ending
from chime_dist.wiring.health.servers import ray_finding
from chime_dist.wiring.launch import Launch
from chime_dist.wiring.plans import plan_runs
from tests.integration.processes import journals_of, rows_of
from tests.spec.sweeps import SWEEP, written

PATIENCE_S = 60.0

MEASURED = SWEEP.replace("m: {kind: scripted}", "m: {kind: scripted, latency_s: [0.06, 0.1]}").replace(
    "  slots: 8\n", "  slots: 8\n  metrics: {port: 0}\n"
)

ON_RAY = """\
name: measured
benchmarks: [{name: credit_world, families: 1, tasks_per_family: 20, steps: 1}]
methods: [chime]
backbones: [{name: m, scripted: {script: credit_world}}]
orderings: [0]
embedder: {kind: hashing, dim: 16}
protocol: {epochs: 1, window: 4}
cluster:
  execution: ray
  slots: 4
  workers: 2
  metrics: {port: 0}
  capture_prompts: true
  redis: embedded
  ray: {num_cpus: 2}
  endpoints: {m: {kind: scripted, latency_s: [0.4, 0.4]}}
"""
"""Long enough, about 6 s, that a scrape which waits for starting actors still finds something to pause."""

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Watched:
    """A launch that runs in this process, and its metrics."""

    def __init__(self, folder: Path, text: str) -> None:
        sweep = load_sweep(written(folder, text), environ={})
        self.launch = Launch.new(sweep, plan_runs(sweep))
        self.launch.tell = self._told
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.driving = asyncio.create_task(self.launch.drive(lambda _: None))

        self.driving.add_done_callback(lambda _: self.url.cancel())

    def _told(self, line: str) -> None:
        if line.startswith("metrics at "):
            self.url.set_result(line.removeprefix("metrics at "))

    @property
    def folder(self) -> Path:
        """The launch's."""
        return self.launch.directory.path

    async def scraped(self) -> Samples:
        """One scrape."""
        async with aiohttp.ClientSession() as session, session.get(await self.url) as response:
            return samples(await response.text())

    async def command(self, command: Literal["pause", "continue"]) -> None:
        """Ask something of the driver."""
        asked = Command(id=command, command=command, at="now", by="somebody")
        await asyncio.to_thread(ControlFile(self.launch.directory).ask, asked)

    async def resting(self) -> Samples:
        """A scrape of the launch after it did something, was paused, and ended and committed what was open."""
        asked = False
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = await self.scraped()
                waiting = total(found, "chime_dist_run_admitted_positions") - total(found, "chime_dist_run_head")
                if not asked and total(found, "chime_dist_episodes_total") >= 1:
                    await self.command("pause")
                    asked = True
                open_ones = waiting + total(found, "chime_dist_episodes_in_flight")
                if value(found, "chime_dist_paused") and not open_ones:
                    return found
                await asyncio.sleep(0.05)


def samples(text: str) -> Samples:
    """By name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    """Of one sample; 0 where there is none."""
    return found.get((name, frozenset(labels.items())), 0.0)


def total(found: Samples, name: str, **labels: str) -> float:
    """Sum over every sample that has these labels."""
    return sum(v for (known, its), v in found.items() if known == name and labels.items() <= set(its))


def outcomes(rows: list[dict[str, Any]]) -> Mapping[tuple[str, str, str], int]:
    """Rows by run, phase and outcome."""
    return Counter((row["unit"]["run_id"], row["unit"]["phase"], row["outcome"]) for row in rows)


def compare(found: Samples, folder: Path) -> None:
    """Everything that is counted from rows and journals, and the banks."""
    rows, used = rows_of(folder), Counter[tuple[str, str]]()
    commits = [entry.model_dump(mode="json") for entries in journals_of(folder).values() for entry in entries]
    for line in (*rows, *commits):
        for role, usage in line["usage"].items():
            used[role, "calls"] += usage["calls"]
            used[role, "prompt"] += usage["prompt_tokens"]
            used[role, "completion"] += usage["completion_tokens"]
    for (run, phase, outcome), count in outcomes(rows).items():
        assert total(found, "chime_dist_episodes_total", run=run, phase=phase, outcome=outcome) == count
    assert total(found, "chime_dist_episodes_total") == len(rows) > 0
    assert total(found, "chime_dist_episodes_total", benchmark="credit_world", backbone="m", final="true") == len(
        rows
    )
    assert total(found, "chime_dist_episode_seconds_count") == len(rows)
    assert total(found, "chime_dist_episode_seconds_sum") == pytest.approx(sum(row["duration_s"] for row in rows))
    for (role, what), count in used.items():
        if what == "calls":
            assert total(found, "chime_dist_model_calls_total", role=role) == count
        else:
            assert total(found, "chime_dist_model_tokens_total", role=role, kind=what) == count
    for run, entries in journals_of(folder).items():
        assert value(found, "chime_dist_run_head", run=run) == len(entries)
        assert value(found, "chime_dist_bank_commit_seconds_count", run=run) == len(entries)


async def test_a_scrape_of_a_running_launch_agrees_with_its_rows_and_its_banks(tmp_path: Path) -> None:
    watched = Watched(tmp_path, MEASURED)
    found = await watched.resting()
    compare(found, watched.folder)
    assert value(found, "chime_dist_pauses_total") == 1
    assert value(found, "chime_dist_slots") == 8
    assert value(found, "chime_dist_processes", state="answered") == 1
    assert total(found, "chime_dist_units_held") == 0
    assert total(found, "chime_dist_run_train_positions") == 6 * 14 * 2 - 3 * 14
    assert total(found, "chime_dist_run_eval_episodes") == 6 * 6
    assert total(found, "chime_dist_bank_records", collection="plan") > 0
    assert total(found, "chime_dist_bank_fence") >= 6
    turns = {
        role: total(found, "chime_dist_model_turn_seconds_count", role=role) for role in ("planner", "executor")
    }
    assert turns == {role: total(found, "chime_dist_model_calls_total", role=role) for role in turns}
    assert total(found, "chime_dist_bank_read_seconds_count") > 0
    await watched.command("continue")
    assert await watched.driving is Ending.COMPLETE
    with pytest.raises(aiohttp.ClientConnectionError):
        await watched.scraped()


async def test_without_the_setting_nothing_is_gathered_or_served(tmp_path: Path) -> None:
    watched = Watched(tmp_path, SWEEP.replace("orderings: [0, 1, 2]", "orderings: [0]"))
    assert await watched.driving is Ending.COMPLETE
    assert watched.url.cancelled()


@pytest.mark.slow
async def test_processes_of_a_ray_launch_tell_theirs_and_a_dead_one_breaks_no_scrape(tmp_path: Path) -> None:
    watched = Watched(tmp_path, ON_RAY)
    found = await watched.resting()
    compare(found, watched.folder)
    # Bank, records, embedder, three roles, two workers.
    assert value(found, "chime_dist_processes", state="answered") == 8
    assert total(found, "chime_dist_model_turn_seconds_count", role="executor") == total(
        found, "chime_dist_model_calls_total", role="executor"
    )
    cluster = ClusterConfig.model_validate({"execution": "ray", "ray": {"address": head_of_this_cluster()}})
    ray_here = await ray_finding(cluster)
    assert (ray_here.level, "has our Ray" in ray_here.what) == ("ok", True), ray_here
    await kill_an_executor(watched.launch.directory.id)
    after = await watched.scraped()
    for key, before in found.items():
        if key[0].endswith(("_total", "_count", "_bucket", "_sum")):
            assert after[key] >= before, key
    await watched.command("continue")
    assert await watched.driving is Ending.COMPLETE
    [run] = watched.launch.directory.manifest.runs
    for record in EpisodeArchive(watched.launch.directory).finals(run).values():
        found_prompts = load_prompts(watched.launch.directory.run(run), record)
        assert found_prompts is not None
        asked = sum(used.calls for role, used in record.usage.items() if role != "embedder")
        assert len(found_prompts.calls) == asked
        assert all(call.request is not None and call.request.messages for call in found_prompts.calls)


def head_of_this_cluster() -> str:
    """Its address."""
    import ray

    return str(ray.get_runtime_context().gcs_address)


async def kill_an_executor(launch: str) -> None:
    """Ray starts it again."""
    import ray

    ray.kill(ray.get_actor(f"chime-{launch}-executor-m"), no_restart=False)
