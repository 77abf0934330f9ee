"""What a launch of a sweep needs, checked before it is started."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from chime_dist.config.loading import load_sweep
from chime_dist.config.sweep import SweepConfig
from chime_dist.errors import ChimeDistError
from chime_dist.wiring import services
from chime_dist.wiring.health.finding import Finding, ok, problem, warning
from chime_dist.wiring.health.models import backbone_findings, embedder_finding
from chime_dist.wiring.health.packages import package_findings
from chime_dist.wiring.health.places import place_findings
from chime_dist.wiring.health.servers import clock_finding, qdrant_finding, ray_finding, redis_finding
from chime_dist.wiring.plans import PlannedRun, plan_runs, results_bytes, warnings
from chime_dist.wiring.requirements import told_together

_NOBODY = "doctor"
"""Stands for a launch's id: nothing is written under it."""


async def sweep_findings(
    path: Path, overrides: Sequence[str], loaded: Callable[[SweepConfig], None]
) -> AsyncIterator[Finding]:
    """Every check, cheap ones first. Nothing is launched; what is written, here or on a server, is removed again.

    ``loaded`` is called with the config once it is read, before anything that could say a secret.
    """
    for finding in package_findings():
        yield finding
    try:
        sweep = load_sweep(path, overrides)
        loaded(sweep)
        with told_together(sweep):
            runs = plan_runs(sweep)
    except ChimeDistError as error:
        yield problem("config", str(error))
        return
    yield ok("config", f"{path}: {len(runs)} runs")
    for surprise in [*sweep.warnings(), *warnings(runs)]:
        yield warning("config", surprise)
    async for finding in _service_findings(sweep, runs):
        yield finding


async def _service_findings(sweep: SweepConfig, runs: tuple[PlannedRun, ...]) -> AsyncIterator[Finding]:
    cluster = sweep.cluster
    state_dir = services.state_dir(cluster, _NOBODY)
    for finding in place_findings(cluster, state_dir.parent, sum(map(results_bytes, runs))):
        yield finding
    spec = services.spec_of(_NOBODY, Path(cluster.runs_dir), state_dir, runs, cluster)
    yield (redis := await redis_finding(cluster))
    if redis.level != "problem" and (clock := await clock_finding(cluster)) is not None:
        yield clock
    yield await qdrant_finding(spec)
    yield await ray_finding(cluster)
    yield await embedder_finding(spec)
    async for finding in backbone_findings(spec, runs):
        yield finding
