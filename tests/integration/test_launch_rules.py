"""What a launch as a whole must hold: who may extend it, how slots are capped, how it drains on Ray."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.errors import RunDirectoryError
from chime_dist.wiring.launch import Launch
from tests.integration.processes import finish, launch_below, rows_of, start, wait_for_rows

SWEEP = """\
name: rules
benchmarks: [{{name: credit_world, families: 4, tasks_per_family: 10}}]
methods: [chime]
backbones: [{{name: m, scripted: {{script: credit_world}}}}]
orderings: [0]
embedder: {{kind: hashing, dim: 64}}
protocol: {{epochs: 1, window: 6}}
cluster:
  slots: 6
  runs_dir: runs
  state_dir: state
  endpoints: {{m: {{kind: scripted, latency_s: {latency}}}}}
{cluster}"""


def prepared(folder: Path, latency: str = "[0.0, 0.0]", cluster: str = "") -> Path:
    """A folder with the sweep's file."""
    folder.mkdir()
    (folder / "sweep.yaml").write_text(SWEEP.format(latency=latency, cluster=cluster))
    return folder


def test_a_refused_second_driver_changes_nothing(tmp_path: Path) -> None:
    """E7, H4: only the holder of the driver's lock may write a longer plan down."""
    folder = prepared(tmp_path / "sweep", "[0.1, 0.2]")
    process = start(["sweep", "sweep.yaml"], folder)
    wait_for_rows(process, folder / "runs", 3)
    launch = launch_below(folder / "runs")
    manifest = (launch / "sweep.json").read_bytes()
    second = start(["resume", str(launch), "--set", "protocol.epochs=5"], folder)
    assert finish(second, folder) == 1
    assert (launch / "sweep.json").read_bytes() == manifest
    assert finish(process, folder) == 0
    assert {row["unit"]["epoch"] for row in rows_of(launch) if row["unit"]["phase"] == "train"} == {0}


def test_two_resumes_that_extend_a_launch_cannot_both_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepared(tmp_path / "sweep")
    assert finish(start(["sweep", "sweep.yaml"], folder), folder) == 0
    launch = launch_below(folder / "runs")
    monkeypatch.chdir(folder)
    slow = Launch.resume(launch, ["protocol.epochs=2"])
    assert finish(start(["resume", str(launch), "--set", "orderings=[0, 1]"], folder), folder) == 0
    with pytest.raises(RunDirectoryError, match="was changed meanwhile, so resume it again"):
        asyncio.run(slow.drive(lambda _: None))
    assert len(LaunchDirectory.open(launch).manifest.runs) == 2


def test_a_launch_that_wrote_nothing_may_be_changed_in_any_way(tmp_path: Path) -> None:
    """A wrong model name is mended by a resume, not by a new launch."""
    folder = prepared(tmp_path / "sweep")
    served = "{kind: scripted, latency_s: [0.0, 0.0]}"
    text = (folder / "sweep.yaml").read_text().replace(served, "{url: 'http://127.0.0.1:9/v1'}")
    (folder / "sweep.yaml").write_text(text)
    assert finish(start(["sweep", "sweep.yaml"], folder), folder) == 1
    assert "at http://127.0.0.1:9/v1" in (folder / "output.txt").read_text()
    launch = launch_below(folder / "runs")
    words = ["--set", "backbones.0.model=other", "--set", "cluster.endpoints.m={kind: scripted}"]
    assert finish(start(["resume", str(launch), *words], folder), folder) == 0
    manifest = json.loads((launch / "sweep.json").read_text())
    assert [run["config"]["backbone"]["model"] for run in manifest["runs"].values()] == ["other"]


@pytest.mark.slow
def test_sigterm_drains_a_launch_on_ray_however_long_it_takes(tmp_path: Path) -> None:
    """H9: Ray's own handler would abort the driver after three seconds."""
    cluster = "  redis: embedded\n  qdrant: edge\n  execution: ray\n  ray: {num_cpus: 2}\n"
    folder = prepared(tmp_path / "sweep", "[2.0, 2.5]", cluster)
    process = start(["sweep", "sweep.yaml"], folder)
    wait_for_rows(process, folder / "runs", 1)
    process.send_signal(signal.SIGTERM)
    assert finish(process, folder) == 75, (folder / "output.txt").read_text()
    status = LaunchDirectory.open(launch_below(folder / "runs")).status()
    assert status is not None
    assert status.state == "preempted"


def test_a_cap_bounds_what_a_benchmark_has_in_flight(tmp_path: Path) -> None:
    """Design "The queue": caps per benchmark and backbone; one episode at a time is in order, wherever it runs."""
    folder = prepared(tmp_path / "sweep", "[0.0, 0.01]", "  benchmark_caps: {credit_world: 1}\n")
    assert finish(start(["sweep", "sweep.yaml"], folder), folder) == 0
    rows = rows_of(launch_below(folder / "runs"))
    assert len(rows) == 40
    positions = [row["unit"]["position"] for row in rows if row["unit"]["phase"] == "train"]
    assert positions == sorted(positions)


def test_a_cap_for_a_name_that_is_not_there_is_refused(tmp_path: Path) -> None:
    folder = prepared(tmp_path / "sweep", "[0.0, 0.0]", "  backbone_caps: {nope: 1}\n")
    assert finish(start(["sweep", "sweep.yaml"], folder), folder) == 2
    assert "cluster.backbone_caps: 'nope' is not in this sweep" in (folder / "output.txt").read_text()
