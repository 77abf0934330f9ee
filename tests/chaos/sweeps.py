"""A small sweep of the whole product, and what must be true of its folder when it has ended."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from chime_dist.core.journal import JournalEntry, verified
from tests.chaos.counting import calls_in, merges_in, silence_in
from tests.chaos.nursery import Child, Nursery

SWEEP = """\
name: drill
benchmarks: [{{name: credit_world, families: 3, tasks_per_family: 6, action_mode: json_schema}}]
methods: [chime]
backbones: [{{name: m, scripted: {{script: credit_world}}}}]
orderings: [0]
embedder: {{kind: hashing, dim: 64}}
protocol: {{epochs: 2, window: 4}}
cluster:
  slots: 4
  workers: {workers}
  lease_s: {lease_s}
  max_deliveries: {max_deliveries}
  redelivery_pause_s: 0.01
  runs_dir: runs
  state_dir: state
  redis: {redis}
  qdrant: {qdrant}
  endpoints: {{m: {endpoint}}}
"""
RAY = "  execution: ray\n  ray: {{num_cpus: 2, address: {ray}}}\n"
EPOCHS, TRAIN, EVAL = 2, 24, 6

costs: list[str] = []
"""What each disturbance has cost so far, in words; shown when all tests are over."""


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """What the sweep gives when nobody touches it."""

    chain: tuple[str, ...]
    """Content hash of each position."""
    calls: int
    """Requests to models."""
    merges: int
    """Those of them that merged items at a turn."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """One folder with one sweep."""

    nursery: Nursery
    folder: Path

    @classmethod
    def prepare(
        cls,
        nursery: Nursery,
        folder: Path,
        *,
        redis: str = "embedded",
        qdrant: str = "edge",
        latency_s: float = 0.0,
        model: str = "",
        workers: int = 2,
        lease_s: float = 30.0,
        max_deliveries: int = 3,
        ray: str = "",
    ) -> Sweep:
        """Write the sweep's file into a new folder. The model is in every process that asks it, or at the URL."""
        folder.mkdir(parents=True)
        text = SWEEP.format(
            redis=redis,
            qdrant=qdrant,
            workers=workers,
            lease_s=lease_s,
            max_deliveries=max_deliveries,
            endpoint=f"{{url: {model}}}" if model else f"{{kind: scripted, latency_s: [0.0, {latency_s}]}}",
        )
        (folder / "sweep.yaml").write_text(text + (RAY.format(ray=f'"{ray}"') if ray else ""))
        return cls(nursery, folder)

    def start(self, environment: Mapping[str, str] | None = None) -> Child:
        """The launch, in a process of its own."""
        return self._run(["sweep", "sweep.yaml"], environment)

    def resume(self, environment: Mapping[str, str] | None = None) -> Child:
        """Go on with the launch, in another process."""
        return self._run(["resume", str(self.launch)], environment)

    def resume_with(self, override: str) -> Child:
        """Go on with another setting of the cluster."""
        return self._run(["resume", str(self.launch), "--set", override], None)

    def _run(self, arguments: list[str], environment: Mapping[str, str] | None) -> Child:
        return self.nursery.start("tests.chaos.counting:chime_dist", arguments, self.folder, environment)

    @property
    def launch(self) -> Path:
        """The launch's folder."""
        [manifest] = (self.folder / "runs").rglob("sweep.json")
        return manifest.parent

    @property
    def launched(self) -> bool:
        """Whether a launch's folder is there."""
        return any((self.folder / "runs").rglob("sweep.json"))

    def rows(self) -> list[dict[str, Any]]:
        """Rows of episodes.jsonl, torn or missing ones left out."""
        found = (self.folder / "runs").rglob("episodes.jsonl")
        return [json.loads(line) for path in found for line in path.read_text().split("\n")[:-1]]

    def entries(self) -> list[JournalEntry]:
        """The verified journal: chain valid, each position once and in order."""
        [path] = self.launch.rglob("journal.jsonl")
        return list(verified(path.read_text().split("\n")[:-1], str(path)))

    def observed(self) -> Undisturbed:
        """Content and cost of what ran in the folder."""
        return Undisturbed(
            tuple(entry.content_hash for entry in self.entries()), calls_in(self.folder), merges_in(self.folder)
        )

    def assert_as_if_nothing_had_happened(self, calm: Undisturbed) -> None:
        """Everything the design promises of a launch that is complete, however it got there."""
        entries = self.entries()
        assert [entry.position for entry in entries] == list(range(TRAIN))
        assert tuple(entry.content_hash for entry in entries) == calm.chain
        final = Counter(_key(row) for row in self.rows() if row["final"])
        assert len(final) == TRAIN + EVAL
        assert set(final.values()) == {1}, "a unit with two final rows"
        assert json.loads((self.launch / "status.json").read_text())["state"] == "complete"
        stray = [path for path in self.folder.rglob("*") if path.name.endswith((".tmp", ".sock"))]
        assert not stray
        assert not [path for path in self.folder.glob("state/*") if path.is_dir()], "embedded state was left"
        costs.append(
            f"{os.environ['PYTEST_CURRENT_TEST'].partition('::')[2].partition(' ')[0]}: {self._cost(calm)}"
        )

    def _cost(self, calm: Undisturbed) -> str:
        if calls_in(self.folder):
            silence_s, repeated = silence_in(self.folder), f"{self.repeated(calm)} model calls"
        else:
            # Ray's actors count no calls: what the longest pause was between commits, and who worked again.
            times = [datetime.fromisoformat(entry.committed_at) for entry in self.entries()]
            silence_s = max((after - before).total_seconds() for before, after in pairwise(times))
            repeated = f"{sum(row['delivery'] - 1 for row in self.rows())} deliveries"
        return f"silent for {silence_s:.1f} s at most, {repeated} repeated"

    def repeated(self, calm: Undisturbed) -> int:
        """Model requests beyond those of an undisturbed launch."""
        return calls_in(self.folder) - calm.calls

    def repeated_in_episodes(self, calm: Undisturbed) -> int:
        """Those of them that episodes made."""
        return self.repeated(calm) - (merges_in(self.folder) - calm.merges)


def _key(row: dict[str, Any]) -> str:
    unit = row["unit"]
    return f"{unit['run_id']}:{unit['phase']}:{unit['position']}"
