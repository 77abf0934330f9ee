"""What a vLLM server says about itself at ``/metrics``. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

_SAMPLE = re.compile(r"^vllm:(?P<name>\w+)(?:\{[^}]*\})? (?P<value>\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """One server, its engines (data-parallel ranks) together. Counters begin at its start."""

    running: int
    """Requests that are worked on."""
    waiting: int
    """Requests that wait for room."""
    kv_cache_used: float
    """Share of the fullest engine's KV cache, 0 to 1."""
    prefix_queries: int
    """Prompt tokens that were looked up in the prefix cache."""
    prefix_hits: int
    """Those of them that were found there, so that they cost nothing."""

    @property
    def in_flight(self) -> int:
        """Requests that have no complete answer yet."""
        return self.running + self.waiting

    @property
    def hit_rate(self) -> float | None:
        """``prefix_hits / prefix_queries``; None before the first prompt."""
        return self.prefix_hits / self.prefix_queries if self.prefix_queries else None


def read_metrics(text: str) -> EngineMetrics:
    """Read the Prometheus text; a value that is not there is 0."""
    found: dict[str, list[float]] = defaultdict(list)
    for sample in _SAMPLE.finditer(text):
        found[sample["name"]].append(float(sample["value"]))

    def total(name: str) -> int:
        return round(sum(found[name]))

    return EngineMetrics(
        running=total("num_requests_running"),
        waiting=total("num_requests_waiting"),
        kv_cache_used=max(found["kv_cache_usage_perc"], default=0.0),
        prefix_queries=total("prefix_cache_queries_total"),
        prefix_hits=total("prefix_cache_hits_total"),
    )
