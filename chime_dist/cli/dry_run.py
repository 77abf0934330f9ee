"""What a sweep would do: its runs, about what they cost, and which services they would use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from chime_dist.cli.output import counted
from chime_dist.config.cluster import ClusterConfig, Endpoint, HttpEndpoint, LlamaCppEndpoint
from chime_dist.config.sweep import SweepConfig
from chime_dist.core.episode import Json, Role
from chime_dist.ports import Method
from chime_dist.wiring import registry
from chime_dist.wiring.plans import PlannedRun

ESTIMATE = (
    "About: what the method asks per episode, and as many executor calls as the benchmark's episodes usually take "
    "steps. At most: every episode takes all the steps it may. The gate is asked for train episodes only; repairs "
    "of its replies, merges and retries come on top of both."
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

    @property
    def episodes(self) -> int:
        """Train and eval together."""
        return self.train * self.epochs + self.eval

    @classmethod
    def of(cls, run: PlannedRun) -> RunOutline:
        """Of a planned run. Raises ConfigError."""
        shape, config = run.plan.shape, run.config
        benchmark, method = registry.benchmark(config.benchmark), registry.method(config.method)
        episodes = shape.total + len(run.plan.eval)
        return cls(
            run_id=run.run_id,
            benchmark=config.benchmark.name,
            method=config.method.name,
            backbone=config.backbone.name,
            ordering=config.ordering,
            train=shape.epoch_size,
            epochs=shape.epochs,
            eval=len(run.plan.eval),
            window=shape.window,
            calls=_calls(method, benchmark.usual_steps, shape.total, episodes),
            calls_at_most=_calls(method, benchmark.max_steps, shape.total, episodes),
        )


def _calls(method: Method, steps: int, trained: int, episodes: int) -> dict[str, int]:
    per_episode = Counter({Role.EXECUTOR: steps}) + Counter(method.calls)
    return {
        role.value: per_episode[role] * (trained if role is Role.GATE else episodes)
        for role in Role
        if role in per_episode
    }


@dataclass(frozen=True, slots=True)
class Outline:
    """A sweep that was not started."""

    sweep: str
    runs: tuple[RunOutline, ...]
    episodes: int
    calls: dict[str, int]
    """About how many model calls by role, over all runs; see ``ESTIMATE``."""
    calls_at_most: dict[str, int]
    services: dict[str, str]
    endpoints: dict[str, str]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, sweep: SweepConfig, runs: Sequence[PlannedRun], warnings: Sequence[str]) -> Outline:
        """Of a planned sweep. Raises ConfigError."""
        outlines = tuple(RunOutline.of(run) for run in runs)
        calls, at_most = Counter[str](), Counter[str]()
        for outline in outlines:
            calls.update(outline.calls)
            at_most.update(outline.calls_at_most)
        return cls(
            sweep=sweep.name,
            runs=outlines,
            episodes=sum(outline.episodes for outline in outlines),
            calls=dict(calls),
            calls_at_most=dict(at_most),
            services=_services(sweep.cluster),
            endpoints={name: _address(endpoint) for name, endpoint in sweep.cluster.endpoints.items()},
            warnings=tuple(warnings),
        )

    def document(self) -> Json:
        """For programs."""
        dumped = asdict(self)
        for run, outline in zip(dumped["runs"], self.runs, strict=True):
            run["episodes"] = outline.episodes
        return {**dumped, "estimate": ESTIMATE}

    def rendered(self) -> list[RenderableType]:
        """For people."""
        table = Table(title=Text(f"Sweep {self.sweep}, not started"), title_justify="left")
        for name in ("Run", "Method", "Backbone"):
            table.add_column(name, overflow="fold")
        for name in ("Ordering", "Train x epochs", "Eval", "Window", "Episodes"):
            table.add_column(name, justify="right")
        for run in self.runs:
            numbers = (run.ordering, f"{run.train} x {run.epochs}", run.eval, run.window, run.episodes)
            table.add_row(run.run_id, run.method, run.backbone, *map(str, numbers))
        by_role = ", ".join(f"{role} {count:,}" for role, count in self.calls.items())
        about, at_most = sum(self.calls.values()), sum(self.calls_at_most.values())
        return [
            table,
            Text(f"{counted(len(self.runs), 'run')}, {counted(self.episodes, 'episode')}"),
            Text(f"About {about:,} model calls ({by_role}), at most {at_most:,}"),
            Text(ESTIMATE, style="dim"),
            *(Text(f"{name}: {what}") for name, what in self.services.items()),
            *(Text(f"endpoint {name}: {address}") for name, address in self.endpoints.items()),
        ]


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
