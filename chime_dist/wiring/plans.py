"""From a sweep to the runs of a launch: configs, streams and what a report must say about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from chime_dist.adapters.directory.launch_directory import ForkedFrom, RunEntry
from chime_dist.config.expansion import Kind, Resolved, expand
from chime_dist.config.policy import window_warning
from chime_dist.config.run import RunConfig
from chime_dist.config.schema import Component
from chime_dist.config.sweep import SweepConfig
from chime_dist.core.canonical import canonical_json
from chime_dist.core.estimate import disk_bytes
from chime_dist.core.paper import PAPER
from chime_dist.core.split import PROTOCOLS, Ordering, SplitParams, order_tasks
from chime_dist.core.task import Task
from chime_dist.core.window import StreamShape
from chime_dist.engine.plan import RunPlan
from chime_dist.errors import ConfigError
from chime_dist.report.results import FORKED
from chime_dist.wiring import paper_benchmarks, registry

FORK_MARK = "-fork"
"""In a fork's id: between the id of the run that it left and the position."""
DEFAULT_WINDOW = 16
"""W for a benchmark that the paper does not name (R7)."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run, ready to be driven."""

    config: RunConfig
    plan: RunPlan
    ordering: Ordering
    stateful: bool
    """Whether its method keeps anything in the bank."""
    forked_from: ForkedFrom | None = None
    """None for a run of the sweep."""

    @property
    def run_id(self) -> str:
        """See ``RunConfig.run_id``; a fork has an id of its own."""
        return self.plan.run_id

    @property
    def settings(self) -> dict[str, str]:
        """Options that the method's name does not tell: those that are not its defaults, or its ablation's."""
        method = self.config.method
        usual = Component(name=method.name, options=registry.resolve("method", method.bare).options).settings()
        return {
            f"{method.name}.{path}": value for path, value in method.settings().items() if value != usual.get(path)
        }

    @property
    def deviations(self) -> dict[str, str]:
        """What a reader of a table must know beside the names (R16, R42)."""
        options = self.config.benchmark.options
        found: dict[str, str] = {key: str(options[key]) for key in ("action_mode", "checker") if key in options}
        near_tie = self.config.method.options.get("retrieval", {}).get("near_tie")
        if near_tie is not None and self.stateful:
            found["near_tie"] = str(near_tie)
        found |= {path: value for path, value in self.settings.items() if not path.endswith(".retrieval.near_tie")}
        found["window"] = str(self.plan.shape.window)
        found["protocol"] = self.config.protocol.preset
        if self.config.protocol.limit is not None:
            found["limit"] = str(self.config.protocol.limit)
        if self.forked_from is not None:
            found[FORKED] = fork_label(self.config.run_id, self.run_id)
        return found

    @property
    def entry(self) -> RunEntry:
        """What the launch's manifest keeps of it."""
        return RunEntry(
            config=self.config.model_dump(mode="json"),
            ordering=self.ordering.digest,
            train_size=len(self.plan.train),
            epochs=self.plan.shape.epochs,
            window=self.plan.shape.window,
            eval_size=len(self.plan.eval),
            stateful=self.stateful,
            deviations=self.deviations,
            forked_from=self.forked_from,
        )


def plan_runs(sweep: SweepConfig) -> tuple[PlannedRun, ...]:
    """Every run of the sweep with its stream. Raises ConfigError, MissingExtraError."""
    paper_benchmarks.require_present(sweep)
    return counted_runs(sweep)


def counted_runs(sweep: SweepConfig) -> tuple[PlannedRun, ...]:
    """``plan_runs`` where benchmarks of the paper that are not installed are planned from its printed sizes.

    Such runs can be counted, not driven. Raises ConfigError, MissingExtraError.
    """
    missing = paper_benchmarks.absent(sweep)

    def resolve(kind: Kind, component: Component) -> Resolved:
        if kind == "benchmark" and component.name in missing:
            return paper_benchmarks.resolved(component)
        return registry.resolve(kind, component)

    runs = expand(sweep, resolve)
    # Loading a task list can take seconds and every ordering shares it.
    tasks: dict[str, Sequence[Task]] = {}
    # Methods and backbones of one ordering share its streams, and ordering thousands of tasks takes tens of ms.
    orderings: dict[tuple[str, int], Ordering] = {}
    planned = []
    for run in runs:
        benchmark = _key(run.benchmark)
        if benchmark not in tasks:
            tasks[benchmark] = paper_benchmarks.benchmark(run.benchmark, run.protocol.preset).tasks()
        # A sweep has one protocol, so benchmark and index say which ordering it is.
        place = (benchmark, run.ordering)
        if place not in orderings:
            orderings[place] = order_tasks(tasks[benchmark], _split_params(run), run.ordering)
        planned.append(_planned(run, orderings[place]))
    return tuple(planned)


def shortfalls(sweep: SweepConfig, runs: Sequence[PlannedRun]) -> tuple[str, ...]:
    """What of the paper is not there, in words: absent benchmarks, and domains that an installed one lacks."""
    lines = []
    if names := paper_benchmarks.absent(sweep):
        lines.append(
            f"{', '.join(names)}: counted from the paper's streams; each is {paper_benchmarks.HOW_TO_GET}"
        )
    for run in runs:
        name, preset = run.config.benchmark.name, run.config.protocol.preset
        sizes = PAPER[name].streams[preset].tasks_by_domain if name in PAPER else {}
        later = paper_benchmarks.LATER_DOMAINS.get(name, frozenset()) - run.ordering.domain_counts().keys()
        if not sizes.keys() - later <= run.ordering.domain_counts().keys():
            # Who asks for a part of the paper's stream misses nothing of the rest.
            continue
        lines += [
            f"{name}: {domain} is part of a later version; the counts are without its {sizes[domain]} tasks"
            for domain in sorted(later)
            if domain in sizes
        ]
    return tuple(dict.fromkeys(lines))


def with_forks(runs: Sequence[PlannedRun], entries: Mapping[str, RunEntry]) -> tuple[PlannedRun, ...]:
    """The sweep's ``runs`` and the forks among a launch's ``entries``, each planned like the run that it left.

    Raises ConfigError where that run is not planned any more.
    """
    planned = {run.run_id: run for run in runs}
    for run_id, entry in entries.items():
        if (origin := entry.forked_from) is None:
            continue
        if origin.run not in planned:
            raise ConfigError(f"{run_id} was forked from {origin.run}, which the config does not hold any more")
        left = planned[origin.run]
        planned[run_id] = forked(left, run_id, origin)
        first = origin.position if left.plan.left_at is None else min(origin.position, left.plan.left_at)
        planned[origin.run] = replace(left, plan=replace(left.plan, left_at=first))
    return tuple(planned.values())


def fork_label(root: str, run_id: str) -> str:
    """Where a fork left the sweep's run ``root``, for a table. It names no run: forks of several orderings at one
    position are one row."""
    return run_id.removeprefix(root).replace(FORK_MARK, " position ").strip()


def forked(run: PlannedRun, run_id: str, origin: ForkedFrom) -> PlannedRun:
    """The same stream under another id."""
    return replace(run, plan=replace(run.plan, run_id=run_id, left_at=None), forked_from=origin)


def _key(component: Component) -> str:
    return canonical_json(component.model_dump(mode="json"))


def warnings(runs: Sequence[PlannedRun]) -> list[str]:
    """What is allowed and may surprise, once the task streams are known."""
    found = (window_warning(run.plan.shape.window, run.plan.shape.epoch_size) for run in runs if run.stateful)
    return list(dict.fromkeys(warning for warning in found if warning is not None))


def results_bytes(run: PlannedRun) -> int:
    """About the size of the run's folder when it is complete. Raises ConfigError."""
    config, shape = run.config, run.plan.shape
    vectors = sum(len(names) for names in registry.method(config.method).collections.values())
    return disk_bytes(config.benchmark.name, shape.total, len(run.plan.eval), vectors, config.embedder.dim)


def _planned(run: RunConfig, ordering: Ordering) -> PlannedRun:
    if not ordering.train:
        raise ConfigError(f"{run.run_id}: the train split is empty; give the benchmark more tasks")
    shape = StreamShape(
        epoch_size=len(ordering.train),
        epochs=run.epochs,
        window=run.protocol.window or DEFAULT_WINDOW,
    )
    plan = RunPlan(
        run_id=run.run_id,
        shape=shape,
        train=tuple(task.id for task in ordering.train),
        eval=tuple(task.id for task in ordering.eval),
        pools=(f"benchmark:{run.benchmark.name}", f"backbone:{run.backbone.name}"),
    )
    return PlannedRun(run, plan, ordering, bool(registry.method(run.method).collections))


def _split_params(run: RunConfig) -> SplitParams:
    protocol = run.protocol
    return SplitParams.model_validate(
        {
            **PROTOCOLS[protocol.preset].model_dump(),
            "fixed_split": protocol.fixed_split,
            "interleave": protocol.interleave,
            "seed": protocol.seed,
            "limit": protocol.limit,
        }
    )
