"""Counts, durations and levels that one process of a launch gathers, as plain data that travels to whoever asks.

Nothing is gathered unless a launch asks for it: then the parts of an engine are given a ``Meters``, else None.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from time import perf_counter

from chime_dist.engine.metrics import Metric

Key = tuple[str, tuple[str, ...]]
"""A metric's name and the values of its labels, in the metric's order."""
Levels = Callable[[], Iterable[tuple[Metric, tuple[str, ...], float]]]
"""Reads gauges: each with its label values and its value now."""


@dataclass(slots=True)
class Durations:
    """A histogram: how many observations fell into each bucket, the last one without a limit, and their sum."""

    counts: list[int]
    total: float = 0.0

    def __add__(self, other: Durations) -> Durations:
        counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        return Durations(counts, self.total + other.total)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one process had gathered at one moment."""

    process: str
    """Unique: a restarted process, which begins at zero, has another one."""
    counts: Mapping[Key, float]
    durations: Mapping[Key, Durations]
    levels: Mapping[Key, float] = field(default_factory=dict)


class Meters:
    """What one process gathers. Not safe for threads: one event loop's, or one thread's."""

    def __init__(self) -> None:
        self._process = uuid.uuid4().hex
        self._counts: dict[Key, float] = {}
        self._durations: dict[Key, Durations] = {}
        self._levels: list[Levels] = []

    def add(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Count."""
        key = metric.key(labels)
        self._counts[key] = self._counts.get(key, 0.0) + by

    def observe(self, metric: Metric, *labels: str, seconds: float) -> None:
        """Take in one duration."""
        key = metric.key(labels)
        if key not in self._durations:
            self._durations[key] = Durations([0] * (len(metric.buckets) + 1))
        found = self._durations[key]
        found.counts[bisect_left(metric.buckets, seconds)] += 1
        found.total += seconds

    @contextmanager
    def timed(self, metric: Metric, *labels: str) -> Iterator[None]:
        """Observe how long the block takes, if it succeeds."""
        began = perf_counter()
        yield
        self.observe(metric, *labels, seconds=perf_counter() - began)

    def watch(self, levels: Levels) -> None:
        """Have ``levels`` read for every snapshot."""
        self._levels.append(levels)

    def snapshot(self) -> Snapshot:
        """Everything so far; a copy."""
        levels = {metric.key(labels): value for read in self._levels for metric, labels, value in read()}
        durations = {key: Durations(list(found.counts), found.total) for key, found in self._durations.items()}
        return Snapshot(self._process, dict(self._counts), durations, levels)


@cache
def meters_of(launch: str) -> Meters:
    """This process's for a launch, whichever of its parts asks."""
    return Meters()


class Gathered:
    """What the processes of a launch have told, together. What one counted before it died still counts."""

    def __init__(self) -> None:
        self._told: dict[str, Snapshot] = {}
        self._alive: frozenset[str] = frozenset()

    def take(self, snapshots: Iterable[Snapshot]) -> None:
        """The newest of every process that answered; the levels of others are not known any more."""
        newest = {snapshot.process: snapshot for snapshot in snapshots}
        self._told |= newest
        self._alive = frozenset(newest)

    def sum(self) -> Snapshot:
        """Counts and durations added up over all processes there were, and levels over those that answered."""
        counts: dict[Key, float] = {}
        durations: dict[Key, Durations] = {}
        levels: dict[Key, float] = {}
        for process, told in self._told.items():
            for key, value in told.counts.items():
                counts[key] = counts.get(key, 0.0) + value
            for key, found in told.durations.items():
                durations[key] = durations[key] + found if key in durations else found
            if process in self._alive:
                for key, value in told.levels.items():
                    levels[key] = levels.get(key, 0.0) + value
        return Snapshot("", counts, durations, levels)
