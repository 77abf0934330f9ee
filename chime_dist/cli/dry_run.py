"""What a sweep would do: its runs, about what they cost, and which services they would use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.console import RenderableType
from rich.text import Text

from chime_dist.cli.output import counted
from chime_dist.config.cluster import ClusterConfig, Endpoint, HttpEndpoint, LlamaCppEndpoint
from chime_dist.config.sweep import SweepConfig
from chime_dist.core.episode import Json, Role
from chime_dist.core.estimate import Tokens, asked_by_benchmark, tokens
from chime_dist.ports import Benchmark, Method, PreparedBenchmark
from chime_dist.report.layout import Table
from chime_dist.report.terminal import Fitted
from chime_dist.wiring import paper_benchmarks, registry
from chime_dist.wiring.plans import PlannedRun, results_bytes, shortfalls

ESTIMATE = (
    "About: what the method asks per episode, and as many executor calls as the benchmark's episodes usually take "
    "steps. At most: every episode takes all the steps it may. The gate is asked for train episodes only; repairs "
    "of its replies, merges and retries come on top of both. Tokens and bytes are averages times the calls and "
    "episodes of About; where the averages come from is said in chime_dist.core.estimate, and for benchmarks that "
    "are not there yet they are guesses."
)


@dataclass(frozen=True, slots=True)
class RunOutline:
    """One run of a sweep that was not started."""

    run_id: str
    benchmark: str
    method: str
    backbone: str
    ordering: int
    train: int
    """Tasks of one epoch."""
    epochs: int
    eval: int
    window: int
    calls: dict[str, int]
    """About how many model calls, by the roles that are asked; see ``ESTIMATE``."""
    calls_at_most: dict[str, int]
    """The same where every episode takes all the steps it may."""
    tokens: dict[str, Tokens]
    """About how many, by the backbones that are asked."""
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
        spent: dict[str, Tokens] = {}
        for role, size in tokens(benchmark.name, calls).items():
            model = config.backbone_of(role).name
            spent[model] = _sum([spent.get(model, Tokens()), size])
        return cls(
            run_id=run.run_id,
            benchmark=benchmark.name,
            method=config.method.label,
            backbone=config.backbone.name,
            ordering=config.ordering,
            train=shape.epoch_size,
            epochs=shape.epochs,
            eval=evaluated,
            window=shape.window,
            calls=_named(calls),
            calls_at_most=_named(_calls(method, benchmark, benchmark.max_steps, shape.total, evaluated)),
            tokens=spent,
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


def _named(calls: Mapping[Role, int]) -> dict[str, int]:
    return {role.value: count for role, count in calls.items()}


def _sum(sizes: Iterable[Tokens]) -> Tokens:
    return Tokens(*map(sum, zip(*sizes, strict=True)))


@dataclass(frozen=True, slots=True)
class Outline:
    """A sweep that was not started."""

    sweep: str
    runs: tuple[RunOutline, ...]
    episodes: int
    calls: dict[str, int]
    """About how many model calls by role, over all runs; see ``ESTIMATE``."""
    calls_at_most: dict[str, int]
    tokens: dict[str, Tokens]
    """About how many by backbone, over all runs."""
    disk_bytes: int
    """About what all run folders hold together."""
    missing: tuple[str, ...]
    """What is planned or left out without being installed, in words. Such a sweep cannot start, or falls short."""
    prerequisites: dict[str, int]
    """By benchmark: what each backbone has to do before the first episode. Their calls are not counted."""
    services: dict[str, str]
    endpoints: dict[str, str]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, sweep: SweepConfig, runs: Sequence[PlannedRun], warnings: Sequence[str]) -> Outline:
        """Of a planned sweep. Raises ConfigError."""
        outlines = tuple(RunOutline.of(run) for run in runs)
        calls, at_most = Counter[str](), Counter[str]()
        spent: dict[str, Tokens] = {}
        for outline in outlines:
            calls.update(outline.calls)
            at_most.update(outline.calls_at_most)
            for model, size in outline.tokens.items():
                spent[model] = _sum([spent.get(model, Tokens()), size])
        return cls(
            sweep=sweep.name,
            runs=outlines,
            episodes=sum(outline.episodes for outline in outlines),
            calls=dict(calls),
            calls_at_most=dict(at_most),
            tokens=spent,
            disk_bytes=sum(outline.disk_bytes for outline in outlines),
            missing=shortfalls(sweep, runs),
            prerequisites=_prerequisites(runs),
            services=_services(sweep.cluster),
            endpoints={name: _address(endpoint) for name, endpoint in sweep.cluster.endpoints.items()},
            warnings=tuple(warnings),
        )

    def document(self) -> Json:
        """For programs."""
        dumped = asdict(self)
        dumped["tokens"] = {model: size._asdict() for model, size in self.tokens.items()}
        for run, outline in zip(dumped["runs"], self.runs, strict=True):
            run["episodes"] = outline.episodes
            run["tokens"] = {model: size._asdict() for model, size in outline.tokens.items()}
        return {**dumped, "estimate": ESTIMATE}

    def rendered(self) -> list[RenderableType]:
        """For people."""
        about, at_most = sum(self.calls.values()), sum(self.calls_at_most.values())
        by_role = ", ".join(f"{role} {count:,}" for role, count in self.calls.items())
        return [
            Fitted(self._table()),
            Text(f"{counted(len(self.runs), 'run')}, {counted(self.episodes, 'episode')}"),
            *(Text(f"NOT INSTALLED {line}", style="bold yellow") for line in self.missing),
            Text(f"About {about:,} model calls ({by_role}), at most {at_most:,}"),
            *(
                Text(
                    f"About {_short(size.prompt)} prompt and {_short(size.completion)} completion tokens: {model}"
                )
                for model, size in self.tokens.items()
            ),
            Text(f"About {_short(self.disk_bytes)}B of results"),
            *(
                Text(
                    f"before the first episode of {benchmark}, on each backbone: {counted(count, 'prerequisite')}"
                )
                for benchmark, count in self.prerequisites.items()
            ),
            Text(ESTIMATE, style="dim"),
            *(Text(f"{name}: {what}") for name, what in self.services.items()),
            *(Text(f"endpoint {name}: {address}") for name, address in self.endpoints.items()),
        ]

    def _table(self) -> Table:
        """The runs, those that differ in nothing but their ordering on one line."""
        groups: dict[tuple[object, ...], list[RunOutline]] = {}
        for run in self.runs:
            shape = (run.train, run.epochs, run.eval, run.window)
            groups.setdefault((run.benchmark, run.backbone, run.method, *shape), []).append(run)
        return Table(
            title=f"Sweep {self.sweep}, not started",
            header=(
                *("Benchmark", "Backbone", "Method", "Orderings"),
                *("Train x epochs", "Eval", "Window", "Episodes", "Calls", "Tokens"),
            ),
            rows=tuple(_line(members) for members in groups.values()),
            names=4,
        )


def _line(members: Sequence[RunOutline]) -> tuple[str, ...]:
    first = members[0]
    return (
        first.benchmark,
        first.backbone,
        first.method,
        ", ".join(str(run.ordering) for run in members),
        f"{first.train} x {first.epochs}",
        str(first.eval),
        str(first.window),
        f"{sum(run.episodes for run in members):,}",
        _short(sum(sum(run.calls.values()) for run in members)),
        _short(sum(sum(size) for run in members for size in run.tokens.values())),
    )


def _prerequisites(runs: Sequence[PlannedRun]) -> dict[str, int]:
    needs: dict[str, set[str]] = {}
    for run in runs:
        benchmark = paper_benchmarks.benchmark(run.config.benchmark, run.config.protocol.preset)
        if isinstance(benchmark, PreparedBenchmark):
            wanted = benchmark.prerequisites({*run.plan.train, *run.plan.eval})
            needs.setdefault(benchmark.name, set()).update(one.name for one in wanted)
    return {benchmark: len(names) for benchmark, names in needs.items() if names}


def _short(number: int) -> str:
    """About ``number``: three figures and a letter for the thousands."""
    for letter, unit in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= unit:
            return f"{number / unit:.3g} {letter}"
    return f"{number} "


def _services(cluster: ClusterConfig) -> dict[str, str]:
    # What a secret prints as is what was written, or a mask: never its value.
    size = f"{counted(cluster.slots, 'slot')}, {counted(cluster.workers, 'worker')}"
    services = {
        "execution": f"{cluster.execution}, {size}",
        "redis": str(cluster.redis.url or cluster.redis.mode),
        "qdrant": str(cluster.qdrant.url or cluster.qdrant.mode),
        "results": f"below {cluster.runs_dir}",
    }
    if cluster.execution == "ray":
        services["ray"] = cluster.ray.address or "started on this machine"
    return services


def _address(endpoint: Endpoint) -> str:
    if isinstance(endpoint, HttpEndpoint):
        return str(endpoint.url)
    if isinstance(endpoint, LlamaCppEndpoint):
        return f"llama.cpp, started on this machine with {counted(endpoint.slots, 'slot')}"
    return "scripted, in this process"
