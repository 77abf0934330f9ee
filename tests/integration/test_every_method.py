"""All methods and ablations in one launch: undisturbed, and killed twice with the same tables at the end."""

from __future__ import annotations

import json
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, get_args

import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.methods.chime.options import Ablation
from chime_dist.report.json_text import to_json
from chime_dist.wiring import registry
from chime_dist.wiring.results import launch_report, run_config
from tests.integration.every_method import METHODS
from tests.integration.processes import finish, journals_of, kill_tree, launch_below, start, wait_for_rows
from tests.integration.stated_cost import schemas_asked, surprises

SWEEP = f"""\
name: every
benchmarks: [{{name: credit_world, families: 3, tasks_per_family: 8, steps: 3, noise: 0.2, seed: 2}}]
methods:
{METHODS}\
backbones: [{{name: m, scripted: {{script: credit_world, gate_accuracy: 0.8}}}}]
orderings: [0]
embedder: {{kind: hashing, dim: 64}}
protocol: {{epochs: 2, window: 4}}
cluster:
  slots: 16
  workers: 2
  lease_s: 5
  runs_dir: runs
  state_dir: state
  endpoints: {{m: {{kind: scripted, latency_s: [0.0, 0.02]}}}}
"""

RUNS, TRAIN, EVAL = METHODS.count("\n"), 15, 9
EPISODES = RUNS * (2 * TRAIN + EVAL)
"""About: methods without state take one epoch only."""
SERVICES = "  redis: embedded\n  qdrant: edge\n"


def prepared(folder: Path, services: str = "") -> Path:
    """A folder with the sweep's file."""
    folder.mkdir()
    (folder / "sweep.yaml").write_text(SWEEP + services)
    return folder


def finished(process: Any, folder: Path) -> LaunchDirectory:
    """The launch, once its process ended well."""
    assert finish(process, folder) == 0, (folder / "output.txt").read_text()
    return LaunchDirectory.open(launch_below(folder / "runs"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> LaunchDirectory:
    """The sweep as it runs when nobody touches it, in one process without services."""
    folder = prepared(tmp_path_factory.mktemp("calm") / "sweep")
    return finished(start(["sweep", "sweep.yaml", "--capture-prompts"], folder), folder)


def tables(launch: LaunchDirectory) -> Any:
    """The report without what may differ between two launches: where it is, and seconds."""
    document = json.loads(to_json(launch_report(launch)))
    del document["options"]["directory"]
    for row in document["rows"]:
        for cost in row["cost"].values():
            del cost["mean_duration_s"]
    return document


def chains(launch: LaunchDirectory) -> dict[str, list[str]]:
    """The content chain of every run, by run id."""
    return {run: [entry.content_hash for entry in entries] for run, entries in journals_of(launch.path).items()}


def kinds(launch: LaunchDirectory, method: str) -> set[str]:
    """The kinds of events that the method's commits made."""
    [entries] = [found for run, found in journals_of(launch.path).items() if f"-{method}-m-" in run]
    return {event.kind for entry in entries for event in entry.events}


@pytest.mark.slow
def test_every_method_and_ablation_runs_in_one_launch(undisturbed: LaunchDirectory) -> None:
    """R43, R44: nothing is missing, and each kind of memory is written as its method writes it."""
    labels = [entry.config["method"] for entry in undisturbed.manifest.runs.values()]
    assert {label["options"].get("ablation", "none") for label in labels} == set(get_args(Ablation))
    shipped = distribution("chime-dist").entry_points.select(group="chime_dist.methods")
    assert {label["name"] for label in labels} == shipped.names
    report = launch_report(undisturbed)
    assert report.complete
    assert {(row.train_first.total.scored, row.eval.total.scored) for row in report.rows} == {(TRAIN, EVAL)}
    assert {"content.insert", "content.merge", "value.update", "prune"} <= kinds(undisturbed, "chime")
    assert {"record.insert", "rule.add", "rule.agree", "rule.merged"} <= kinds(undisturbed, "a_mapreduce")
    assert kinds(undisturbed, "umem_outcome") == kinds(undisturbed, "chime_no_gate")


@pytest.mark.slow
def test_every_episode_asks_its_models_as_often_as_its_method_states(undisturbed: LaunchDirectory) -> None:
    """R9, R43, R44: calls by role of each of the episodes, train and eval; none ended infra."""
    assert surprises(undisturbed) == []


@pytest.mark.slow
def test_every_schema_that_an_episode_asks_for_is_stated_by_its_method(undisturbed: LaunchDirectory) -> None:
    """A9: a backbone is tried before a start for what it is stated to be asked for, and for nothing else."""
    for run in undisturbed.manifest.runs:
        stated = registry.method(run_config(undisturbed, run).method).schemas
        expected = {(role.value, name) for role, names in stated.items() for name in names}
        assert schemas_asked(undisturbed, run) - MERGES == expected


MERGES = {("gate", "merge")}
"""A part of commits, done ahead: where no schema is enforced the texts are joined."""


@pytest.mark.slow
def test_a_launch_of_every_method_that_is_killed_twice_ends_with_the_same_tables(
    tmp_path: Path, undisturbed: LaunchDirectory
) -> None:
    """R1, R34, C1, H3: kill -9 of the whole tree, on Redis and the embedded Qdrant; the memories and the tables
    are those of the undisturbed launch in one process."""
    folder = prepared(tmp_path / "sweep", SERVICES)
    process = start(["sweep", "sweep.yaml"], folder)
    for kill in (1, 2):
        wait_for_rows(process, folder / "runs", kill * EPISODES // 3)
        kill_tree(process)
        process = start(["resume", str(launch_below(folder / "runs"))], folder)
    resumed = finished(process, folder)
    assert chains(resumed) == chains(undisturbed)
    assert tables(resumed) == tables(undisturbed)
    assert surprises(resumed) == []
