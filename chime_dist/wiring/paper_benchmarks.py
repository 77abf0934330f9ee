"""Benchmarks that the paper names and no installed package brings: planned from what is printed, never run.

A sweep that holds one can be counted before the benchmark is there, and refuses to start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from chime_dist.config.expansion import Resolved
from chime_dist.config.schema import Component
from chime_dist.config.sweep import SweepConfig
from chime_dist.core.estimate import USUAL_STEPS
from chime_dist.core.paper import PAPER
from chime_dist.core.split import ProtocolName
from chime_dist.core.task import Task
from chime_dist.errors import BenchmarkError, MissingExtraError
from chime_dist.ports import Benchmark, Environment
from chime_dist.wiring import registry

HOW_TO_GET = (
    "part of a later version of chime_dist, or of a package that registers it in the entry point group"
    " chime_dist.benchmarks"
)

LATER_DOMAINS = {"bfcl_v4": frozenset({"web_search_base"})}
"""Domains of the paper's streams that a benchmark of this version does not have yet."""


class PaperBenchmark:
    """Stands for an absent benchmark in plans: as many tasks per domain as the paper prints, without content."""

    action_mode: Literal["tools", "json_schema"] = "tools"

    def __init__(self, name: str, protocol: ProtocolName) -> None:
        self.name = name
        self.max_steps = PAPER[name].max_steps
        self.usual_steps = USUAL_STEPS[name]
        self._stream = PAPER[name].streams[protocol]

    def tasks(self) -> Sequence[Task]:
        """Tasks that only have a domain."""
        return tuple(
            Task(id=f"{domain}:{k}", domain=domain)
            for domain, size in self._stream.tasks_by_domain.items()
            for k in range(size)
        )

    def fingerprint(self) -> dict[str, str]:
        """None: there are no data."""
        return {}

    async def open(self, task_id: str) -> Environment:
        """Raises BenchmarkError."""
        raise BenchmarkError(f"the benchmark {self.name} is not installed: it is {HOW_TO_GET}")


def absent(sweep: SweepConfig) -> tuple[str, ...]:
    """Benchmarks of the sweep that the paper names and nothing installed brings, in the order written."""
    known = registry.known("benchmark")
    return tuple(dict.fromkeys(part.name for part in sweep.benchmarks if part.name in PAPER.keys() - known))


def require_present(sweep: SweepConfig) -> None:
    """Raise MissingExtraError that names every absent benchmark, and what can be done."""
    if names := absent(sweep):
        raise MissingExtraError(
            "\n".join(
                [
                    "this sweep needs benchmarks that are not installed:",
                    *(f"  {name}: {HOW_TO_GET}" for name in names),
                    "take them out of 'benchmarks' to start, or count the sweep with --dry-run",
                ]
            )
        )


def benchmark(component: Component, protocol: ProtocolName) -> Benchmark:
    """The installed benchmark, or what stands for it. Raises ConfigError, MissingExtraError."""
    if component.name in registry.known("benchmark") or component.name not in PAPER:
        return registry.benchmark(component)
    return PaperBenchmark(component.name, protocol)


def resolved(component: Component) -> Resolved:
    """What is known of an absent benchmark's options: they are taken as they are, for nobody can check them."""
    paper = PAPER[component.name]
    return Resolved(options=component.options, epochs=paper.epochs, window=paper.concurrency)
