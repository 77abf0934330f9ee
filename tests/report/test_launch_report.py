"""Reports of real launches: the bank's growth out of a journal, and a launch that was killed on the way."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.core.journal import JournalEntry
from chime_dist.report.json_text import to_json
from chime_dist.report.results import BankPoint
from chime_dist.wiring.results import launch_report, run_results
from tests.integration.processes import finish, kill_tree, launch_below, start, wait_for_rows
from tests.spec.sweeps import TRAIN, journal_of, launched, written

SWEEP = """\
name: killed
benchmarks: [{name: credit_world, families: 2, tasks_per_family: 10, steps: 1}]
methods: [chime, {name: chime, ablation: no_gate}, no_plan]
backbones: [{name: m, scripted: {script: credit_world, gate_accuracy: 0.9}}]
orderings: [0, 1]
embedder: {kind: hashing, dim: 64}
protocol: {epochs: 1, window: 4}
cluster:
  slots: 8
  endpoints: {m: {kind: scripted, latency_s: [0.0, 0.05]}}
"""


def sizes(journal: list[JournalEntry], version: int) -> dict[str, int]:
    """Records by collection after so many entries, counted from their events."""
    there: dict[str, str] = {}
    for event in (event for entry in journal[:version] for event in entry.events):
        if event.op == "put":
            there[str(event.id)] = event.collection
        elif event.op == "drop":
            del there[str(event.id)]
    found = sorted(there.values())
    return {collection: found.count(collection) for collection in found}


async def test_growth_is_what_the_journal_says_at_quarters_and_at_the_ends_of_epochs(tmp_path: Path) -> None:
    """R47: of 28 positions 7, 14, 21, 28; the first epoch ends at 14. A method without memory has none."""
    launch = await launched(tmp_path)
    names = {"25%": 7, "epoch-1": TRAIN, "50%": 14, "75%": 21, "epoch-2": 2 * TRAIN, "100%": 28}
    for results in run_results(launch):
        journal = journal_of(launch, results.run_id)
        expected = [BankPoint(name=name, version=v, sizes=sizes(journal, v)) for name, v in names.items()]
        assert sorted(results.growth, key=str) == (sorted(expected, key=str) if results.has_bank else [])
        assert results.bank_size == (sum(sizes(journal, 28).values()) if results.has_bank else None)
    chime = launch_report(launch).rows[0]
    assert {grown.collection for grown in chime.growth} == {"plan", "exec"}
    journals = [journal_of(launch, results.run_id) for results in run_results(launch) if results.has_bank]
    for grown in chime.growth:
        totals = [sum(sizes(journal, v).get(grown.collection, 0) for journal in journals) for v in names.values()]
        assert list(grown.sizes.items()) == [(n, Fraction(k, 3)) for n, k in zip(names, totals, strict=True)]
        assert min(totals) > 0


def facts(launch: LaunchDirectory) -> dict[str, Any]:
    """A launch's report without where it lies, how long it took, and what was spent on the way."""
    document: dict[str, Any] = json.loads(to_json(launch_report(launch)))
    del document["options"]["directory"]
    # Attempts that a killed driver had finished and not committed may have been made twice.
    del document["spent"], document["total"]
    for row in document["rows"]:
        for cost in row["cost"].values():
            del cost["mean_duration_s"]
            # A process that starts again has forgotten which texts it had embedded.
            cost["usage"].pop("embedder", None)
    return document


@pytest.mark.slow
async def test_a_killed_and_resumed_launch_has_the_report_of_an_undisturbed_one(tmp_path: Path) -> None:
    """C1, H3: rows, comparisons with their intervals, growth, attribution mix and costs, to the last digit."""
    calm = facts(await launched(tmp_path / "calm", SWEEP))
    folder = tmp_path / "killed"
    written(folder, SWEEP)
    process = start(["sweep", "sweep.yaml"], folder)
    wait_for_rows(process, folder / "runs", 40)
    kill_tree(process)
    process = start(["resume", str(launch_below(folder / "runs"))], folder)
    assert finish(process, folder) == 0, (folder / "output.txt").read_text()
    assert facts(LaunchDirectory.open(launch_below(folder / "runs"))) == calm
    assert len(calm["comparisons"]) == 4
    assert calm["comparisons"][0]["result"]["interval"] is not None
