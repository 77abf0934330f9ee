"""Whether a launch may go on under a config: its runs may be joined by others and grow longer, never change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chime_dist.config.problems import KeyPath, conceals, dotted
from chime_dist.config.run import GROWING_KEY, RunConfig
from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.errors import ConfigError

_ABSENT = object()
_LONGEST_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Change:
    """One key that differs. ``old`` and ``new`` are JSON, or words where there is nothing or it must not show."""

    key: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.key}: {self.old} -> {self.new}"


@dataclass(frozen=True, slots=True)
class Differences:
    """What a resume would meet. Cluster settings are not looked at: they may always change."""

    refused: dict[Change, tuple[str, ...]]
    """Changes of results, and the stored runs that each concerns."""
    removed: tuple[str, ...]
    """Stored runs that the config no longer holds."""
    added: tuple[str, ...]
    """Runs that are new."""
    extended: dict[Change, tuple[str, ...]]
    """Changes that make a stored run longer."""

    @property
    def resumable(self) -> bool:
        """Whether nothing stored would change its meaning."""
        return not self.refused and not self.removed

    def require_resumable(self, where: str) -> None:
        """Raise ConfigError naming every changed key with old and new value; ``where`` is the launch's folder."""
        if self.resumable:
            return
        lines = [f"{change} (runs: {', '.join(runs)})" for change, runs in self.refused.items()]
        lines += [f"{run}: is not in the config any more; put it back" for run in self.removed]
        raise ConfigError(
            "\n  ".join(
                [
                    f"{where}: cannot be resumed, the config changes its results; start a new sweep, or undo:",
                    *lines,
                ]
            )
        )


def compare(stored: Sequence[RunConfig], current: Sequence[RunConfig]) -> Differences:
    """Match the runs of a launch with those of a config.

    Runs with the same id are the same. A stored run without its like is compared with the new run of the same
    benchmark, method, backbone and ordering that differs from it least.
    """
    same = {run.run_id: run for run in current}
    stored_ids = {run.run_id for run in stored}
    unmatched = [run for run in current if run.run_id not in stored_ids]
    refused: dict[Change, list[str]] = {}
    extended: dict[Change, list[str]] = {}
    removed: list[str] = []
    for run in stored:
        if run.run_id in same:
            if (growth := _growth(run, same[run.run_id])) is not None:
                target = extended if same[run.run_id].epochs > run.epochs else refused
                target.setdefault(growth, []).append(run.run_id)
            continue
        rivals = [
            (tuple(_changes(run.identity(), other.identity())), other)
            for other in unmatched
            if _cell(other) == _cell(run)
        ]
        if not rivals:
            removed.append(run.run_id)
            continue
        found, nearest = min(rivals, key=lambda rival: len(rival[0]))
        unmatched.remove(nearest)
        for change in found:
            refused.setdefault(change, []).append(run.run_id)
    return Differences(
        refused={change: tuple(runs) for change, runs in refused.items()},
        removed=tuple(removed),
        added=tuple(run.run_id for run in unmatched),
        extended={change: tuple(runs) for change, runs in extended.items()},
    )


def changes_between(old: Frozen, new: Frozen) -> tuple[Change, ...]:
    """Every key that differs between two configs of one kind, e.g. two clusters; secrets show as written."""
    return tuple(_changes(old.model_dump(mode="json"), new.model_dump(mode="json")))


def _cell(run: RunConfig) -> tuple[str, str, str, int]:
    return run.benchmark.name, run.method.name, run.backbone.name, run.ordering


def _growth(stored: RunConfig, current: RunConfig) -> Change | None:
    old, new = stored.epochs, current.epochs
    return None if old == new else Change(f"protocol.{GROWING_KEY}", json.dumps(old), json.dumps(new))


def _changes(old: Json, new: Json, path: KeyPath = ()) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _changes(old.get(key, _ABSENT), new.get(key, _ABSENT), (*path, key))
    elif old != new or type(old) is not type(new):
        yield Change(dotted(path), _shown(old, path), _shown(new, path))


def _shown(value: Json, path: KeyPath) -> str:
    if value is _ABSENT:
        return "(not set)"
    if conceals(path):
        return "(hidden)"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
