"""The metrics of a launch, put together for a scrape: rows on disk, processes, and what the driver knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

import structlog

from chime_dist.adapters.directory.artifact_json import decode
from chime_dist.adapters.directory.growing_file import GrowingFile
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.prometheus import MetricsEndpoint
from chime_dist.config.run import RunConfig
from chime_dist.core.episode import EpisodeRecord, Role, Usage
from chime_dist.core.journal import usage_in
from chime_dist.engine import metrics
from chime_dist.engine.control import Steering
from chime_dist.engine.driven_run import Progress
from chime_dist.engine.meters import Gathered, Meters, Snapshot
from chime_dist.errors import RunDirectoryError
from chime_dist.wiring.execution import Execution
from chime_dist.wiring.services import LaunchSpec

log = structlog.get_logger()

Observer = Callable[[Sequence[Progress]], None]

_LEVELS = (
    (metrics.RUN_HEAD, "head"),
    (metrics.RUN_ADMITTED, "position"),
    (metrics.RUN_TRAIN, "total"),
    (metrics.RUN_EVALUATED, "evaluated"),
    (metrics.RUN_EVAL, "eval_total"),
    (metrics.IN_FLIGHT, "in_flight"),
)


async def metered(
    spec: LaunchSpec,
    directory: LaunchDirectory,
    execution: Execution,
    steering: Steering,
    observe: Observer,
    stack: AsyncExitStack,
    tell: Callable[[str], None],
) -> Observer:
    """Serve the metrics of a launch until ``stack`` ends, where its config asks for that, and ``tell`` where.

    Returns what the driver is to report to: ``observe``, by way of the metrics. Raises ServiceError.
    """
    wanted = spec.cluster.metrics
    if wanted is None:
        return observe
    launch = LaunchMetrics(spec.runs, directory, execution, steering)
    endpoint = MetricsEndpoint(launch.collect)
    url = await endpoint.start(wanted.host, wanted.port)
    stack.push_async_callback(endpoint.stop)
    log.info("metrics.served", url=url)
    tell(f"metrics at {url}")

    def seen(progress: Sequence[Progress]) -> None:
        launch.progress = progress
        observe(progress)

    return seen


class LaunchMetrics:
    """What a scrape of one launch is answered with."""

    def __init__(
        self, runs: Mapping[str, RunConfig], directory: LaunchDirectory, execution: Execution, steering: Steering
    ) -> None:
        self._rows = RowMeters(runs, directory)
        self._execution = execution
        self._steering = steering
        self._gathered = Gathered()
        self.progress: Sequence[Progress] = ()
        """The driver's last report."""

    async def collect(self) -> Snapshot:
        """Ask everybody. A process that does not answer is missing, and raises nothing."""
        told = await self._execution.gathered()
        answered = [snapshot for snapshot in told if snapshot is not None]
        rows = await asyncio.to_thread(self._rows.snapshot)
        self._gathered.take([*answered, rows, self._driver(len(answered), len(told) - len(answered))])
        return self._gathered.sum()

    def _driver(self, answered: int, silent: int) -> Snapshot:
        levels = {
            metric.key((run.run_id,)): float(getattr(run, name))
            for run in self.progress
            for metric, name in _LEVELS
        }
        levels[metrics.SLOTS.key(())] = self._steering.slots
        levels[metrics.PAUSED.key(())] = float(self._steering.paused is not None)
        levels[metrics.PROCESSES.key(("answered",))] = answered
        levels[metrics.PROCESSES.key(("silent",))] = silent
        return Snapshot("driver", {metrics.PAUSES.key(()): self._steering.pauses}, {}, levels)


class RowMeters:
    """Counts what the rows and the journals of a launch say, each line once."""

    def __init__(self, runs: Mapping[str, RunConfig], directory: LaunchDirectory) -> None:
        self._runs = runs
        self._files = {run_id: GrowingFile(directory.run(run_id).episodes) for run_id in runs}
        self._journals = {run_id: GrowingFile(directory.run(run_id).journal) for run_id in runs}
        self._meters = Meters()

    def snapshot(self) -> Snapshot:
        """Everything up to the newest whole lines. Blocking."""
        for run_id, file in self._files.items():
            try:
                for line in file.lines():
                    self._count(run_id, decode(EpisodeRecord, line, str(file.path)))
            except RunDirectoryError as error:
                log.warning("metrics.rows_skipped", run=run_id, reason=str(error))
        for run_id, file in self._journals.items():
            try:
                for line in file.lines():
                    self._count_usage(run_id, usage_in(line))
            except RunDirectoryError as error:
                log.warning("metrics.commits_skipped", run=run_id, reason=str(error))
        return self._meters.snapshot()

    def _count(self, run_id: str, row: EpisodeRecord) -> None:
        meters, run, phase = self._meters, self._runs[run_id], row.unit.phase
        names = (run.benchmark.name, run.method.label, run.backbone.name)
        meters.add(metrics.EPISODES, run_id, *names, phase, row.outcome.value, str(row.final).lower())
        if not row.unreported:
            meters.observe(metrics.EPISODE_SECONDS, run_id, phase, seconds=row.duration_s)
        if row.delivery > 1:
            meters.add(metrics.REDELIVERED, run_id)
        if row.gate_status == "gate_error":
            meters.add(metrics.GATE_ERRORS, run_id)
        self._count_usage(run_id, row.usage)

    def _count_usage(self, run_id: str, usage: Mapping[str, Usage]) -> None:
        meters, run = self._meters, self._runs[run_id]
        for role, used in usage.items():
            model = run.embedder.model if role == Role.EMBEDDER else run.backbone_of(Role(role)).name
            labels = (run_id, role, model)
            meters.add(metrics.MODEL_CALLS, *labels, by=used.calls)
            meters.add(metrics.MODEL_RETRIES, *labels, by=max(0, used.requests - used.calls))
            meters.add(metrics.MODEL_TOKENS, *labels, "prompt", by=used.prompt_tokens)
            meters.add(metrics.MODEL_TOKENS, *labels, "completion", by=used.completion_tokens)
            meters.add(metrics.MODEL_TOKENS, *labels, "cached", by=used.cached_tokens)
