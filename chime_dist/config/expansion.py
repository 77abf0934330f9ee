"""From a sweep to its runs, in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, Protocol

from chime_dist.config.policy import ProtocolSpec
from chime_dist.config.run import RunConfig
from chime_dist.config.schema import Component
from chime_dist.config.sweep import SweepConfig
from chime_dist.core.episode import Json
from chime_dist.errors import ConfigError

Kind = Literal["benchmark", "method"]


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a component makes of its options."""

    options: dict[str, Json]
    """Every option with its value, defaults included, so that leaving one out changes no hash (R45)."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """Hashes of what the component brings: data, prompts, code."""
    epochs: int | None = None
    """Benchmark: its selected epoch, taken where the protocol names none (R6). Method: the most epochs that mean
    anything, 1 for a method without state."""
    window: int | None = None
    """Benchmark: its concurrency, taken where the protocol names none (R7). Method: the largest window its
    commits are sound for. None sets no limit."""


class Resolve(Protocol):
    """Checks a component's options; raises ConfigError."""

    def __call__(self, kind: Kind, component: Component) -> Resolved:
        """The component with every option resolved."""
        ...


@dataclass(frozen=True, slots=True)
class _Part:
    place: str
    name: str
    resolved: Resolved

    @property
    def component(self) -> Component:
        return Component(name=self.name, options=self.resolved.options)


def expand(
    sweep: SweepConfig, resolve: Resolve, fingerprints: Mapping[str, str] | None = None
) -> tuple[RunConfig, ...]:
    """The sweep's runs: benchmarks, then methods, then backbones, then orderings, each in the order written.

    ``fingerprints`` are those of every run, such as the code's version. Raises ConfigError with every component
    that cannot be resolved, and for two runs that are the same, naming both.
    """
    problems: list[str] = []
    benchmarks = _resolved("benchmark", sweep.benchmarks, resolve, problems)
    methods = _resolved("method", sweep.methods, resolve, problems)
    if problems:
        raise ConfigError("\n".join(problems))
    runs: dict[str, RunConfig] = {}
    places: dict[str, str] = {}
    for benchmark, method, backbone, ordering in product(benchmarks, methods, sweep.backbones, sweep.orderings):
        run = RunConfig(
            benchmark=benchmark.component,
            method=method.component,
            backbone=backbone,
            roles=sweep.roles,
            embedder=sweep.embedder,
            ordering=ordering,
            protocol=_protocol(sweep.protocol, benchmark.resolved, method.resolved),
            requests=sweep.requests,
            episode=sweep.episode,
            fingerprints={
                **(fingerprints or {}),
                **{f"benchmark.{key}": value for key, value in benchmark.resolved.fingerprints.items()},
                **{f"method.{key}": value for key, value in method.resolved.fingerprints.items()},
            },
        )
        place = f"{benchmark.place} x {method.place} x {backbone.name} x ordering {ordering}"
        if run.run_id in runs:
            raise ConfigError(
                f"two runs are the same ({run.run_id}): {places[run.run_id]}, and {place}; remove one, or change"
                " an option that matters"
            )
        runs[run.run_id], places[run.run_id] = run, place
    return tuple(runs.values())


def _resolved(kind: Kind, components: Sequence[Component], resolve: Resolve, problems: list[str]) -> list[_Part]:
    parts = []
    for index, component in enumerate(components):
        place = f"{kind}s.{index} ({component.name})"
        try:
            parts.append(_Part(place, component.name, resolve(kind, component)))
        except ConfigError as error:
            problems.append(f"{place}: {error}")
    return parts


def _protocol(spec: ProtocolSpec, benchmark: Resolved, method: Resolved) -> ProtocolSpec:
    epochs = _within(spec.epochs or benchmark.epochs, method.epochs)
    window = _within(spec.window or benchmark.window, method.window)
    return spec.model_copy(update={"epochs": epochs, "window": window})


def _within(wanted: int | None, most: int | None) -> int | None:
    return min(wanted, most) if wanted is not None and most is not None else wanted
