"""What the runs of a sweep would take, one by one, and what must be done before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from chime_dist.config.run import RunConfig
from chime_dist.core.canonical import canonical_json
from chime_dist.core.episode import Role
from chime_dist.core.estimate import Tokens, asked_by_benchmark, prerequisite_calls, tokens
from chime_dist.ports import Benchmark, Method, PreparedBenchmark
from chime_dist.wiring import paper_benchmarks, registry
from chime_dist.wiring.plans import PlannedRun, results_bytes


@dataclass(frozen=True, slots=True)
class RunOutline:
    """One run of a sweep that was not started."""

    run_id: str
    benchmark: str
    method: str
    settings: dict[str, str]
    """Of the method, as far as its name does not tell them."""
    backbone: str
    ordering: int
    train: int
    """Tasks of one epoch."""
    epochs: int
    eval: int
    window: int
    calls: dict[str, int]
    """About how many model calls, by the roles that are asked; see ``dry_run.ESTIMATE``."""
    calls_at_most: dict[str, int]
    """The same where every episode takes all the steps it may."""
    tokens: dict[str, Tokens]
    """About how many, by the backbones that are asked."""
    tokens_at_most: dict[str, Tokens]
    disk_bytes: int
    """About the size of its folder."""

    @property
    def episodes(self) -> int:
        """Train and eval together."""
        return self.train * self.epochs + self.eval

    @classmethod
    def of(cls, run: PlannedRun) -> RunOutline:
        """Of a planned run. Raises ConfigError."""
        shape, config, evaluated = run.plan.shape, run.config, len(run.plan.eval)
        benchmark = paper_benchmarks.benchmark(config.benchmark, config.protocol.preset)
        method = registry.method(config.method)
        calls = _calls(method, benchmark, benchmark.usual_steps, shape.total, evaluated)
        at_most = _calls(method, benchmark, benchmark.max_steps, shape.total, evaluated)
        return cls(
            run_id=run.run_id,
            benchmark=benchmark.name,
            method=config.method.label,
            settings=run.settings,
            backbone=config.backbone.name,
            ordering=config.ordering,
            train=shape.epoch_size,
            epochs=shape.epochs,
            eval=evaluated,
            window=shape.window,
            calls=_named(calls),
            calls_at_most=_named(at_most),
            tokens=_by_backbone(config, benchmark.name, calls),
            tokens_at_most=_by_backbone(config, benchmark.name, at_most),
            disk_bytes=results_bytes(run),
        )


def _calls(method: Method, benchmark: Benchmark, steps: int, trained: int, evaluated: int) -> dict[Role, int]:
    per_episode = Counter({Role.EXECUTOR: steps})
    per_episode.update(method.calls(steps))
    per_episode.update(asked_by_benchmark(benchmark.name, steps))
    return {
        role: per_episode[role] * (trained if role is Role.GATE else trained + evaluated)
        for role in Role
        if role in per_episode
    }


def _by_backbone(config: RunConfig, benchmark: str, calls: Mapping[Role, int]) -> dict[str, Tokens]:
    return summed((config.backbone_of(role).name, size) for role, size in tokens(benchmark, calls).items())


def _named(calls: Mapping[Role, int]) -> dict[str, int]:
    return {role.value: count for role, count in calls.items()}


def summed(sizes: Iterable[tuple[str, Tokens]]) -> dict[str, Tokens]:
    """Sums by name."""
    found: dict[str, Tokens] = {}
    for name, size in sizes:
        there = found.get(name, Tokens())
        found[name] = Tokens(there.prompt + size.prompt, there.completion + size.completion)
    return found


@dataclass(frozen=True, slots=True)
class Preparation:
    """What one backbone has to do once before the first episode of a benchmark."""

    benchmark: str
    backbone: str
    """The one that executes."""
    count: int
    """Prerequisites, e.g. sessions after which memories are asked for."""
    calls: int
    """About how many model calls; see ``dry_run.ESTIMATE``."""
    calls_at_most: int
    tokens: Tokens
    tokens_at_most: Tokens


def prerequisites(runs: Sequence[PlannedRun]) -> tuple[Preparation, ...]:
    """Once for each set-up of a benchmark and backbone that executes, as ``wiring.prerequisites`` groups them.

    Raises BenchmarkError, ConfigError.
    """
    groups: dict[str, list[PlannedRun]] = {}
    for run in runs:
        who = run.config.backbone_of(Role.EXECUTOR)
        key = canonical_json([run.config.benchmark.model_dump(mode="json"), who.model_dump(mode="json")])
        groups.setdefault(key, []).append(run)
    found = []
    for members in groups.values():
        config = members[0].config
        benchmark = paper_benchmarks.benchmark(config.benchmark, config.protocol.preset)
        if not isinstance(benchmark, PreparedBenchmark):
            continue
        asked_about = {task for run in members for task in (*run.plan.train, *run.plan.eval)}
        if count := len(benchmark.prerequisites(asked_about)):
            calls, spent = prerequisite_calls(benchmark.name, count)
            at_most, spent_at_most = prerequisite_calls(benchmark.name, count, benchmark.max_steps)
            backbone = config.backbone_of(Role.EXECUTOR).name
            found.append(Preparation(benchmark.name, backbone, count, calls, at_most, spent, spent_at_most))
    return tuple(found)
