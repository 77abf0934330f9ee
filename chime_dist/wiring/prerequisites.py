"""What tasks of a launch rest on, built before its runs start: once for each benchmark and executing backbone.

Every artifact is on disk, with what its building used, before anything goes on from it, so a launch that was
killed builds on resume what is missing and nothing twice. A backbone that is down is waited for, as in an episode
(A9). Artifacts travel to the workers inside the ``LaunchSpec``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from chime_dist import faults
from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.directory.launch_directory import LaunchDirectory, RunEntry
from chime_dist.adapters.directory.prerequisite_files import BuiltPrerequisite, PrerequisiteFiles
from chime_dist.config.run import RunConfig
from chime_dist.core.canonical import canonical_json, sha256_hex
from chime_dist.core.deadline import Deadline
from chime_dist.core.episode import Json, Role, Usage
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.engine.outage import AbandonedError, Outages
from chime_dist.engine.roles import RoleRunner
from chime_dist.errors import BackboneError, BenchmarkError, OutageError, RunDirectoryError
from chime_dist.ports import PreparedBenchmark, Prerequisite
from chime_dist.wiring import pacers, registry, services
from chime_dist.wiring.execution import all_or_none
from chime_dist.wiring.plans import PlannedRun
from chime_dist.wiring.services import LaunchSpec

ATTEMPTS = 3
"""How often one is tried on a backbone that answers probes and yet fails it."""

Tell = Callable[[str], None]
"""Takes a line for people."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Preparation:
    """One benchmark on one backbone, with all that the runs on them need."""

    benchmark: PreparedBenchmark
    backbone: str
    runs: Mapping[str, tuple[Prerequisite, ...]]
    """What each run's own tasks need, by run id."""
    files: PrerequisiteFiles
    deadline_s: float
    """For one attempt at one prerequisite."""
    built: dict[str, BuiltPrerequisite] = field(default_factory=dict)
    """By name, filled while it is prepared."""

    @property
    def wanted(self) -> tuple[Prerequisite, ...]:
        """Each once, after what it goes on from."""
        return tuple({wanted.name: wanted for needs in self.runs.values() for wanted in needs}.values())

    def of_run(self, run_id: str) -> dict[str, BuiltPrerequisite]:
        """What the run's benchmark is provided with: those that nothing else goes on from."""
        inner = {wanted.after for wanted in self.runs[run_id]}
        return {wanted.name: self.built[wanted.name] for wanted in self.runs[run_id] if wanted.name not in inner}


async def prepared(
    spec: LaunchSpec,
    runs: Sequence[PlannedRun],
    directory: LaunchDirectory,
    *,
    keeping: asyncio.Task[None],
    stopping: asyncio.Event,
    tell: Tell,
) -> tuple[LaunchSpec, LaunchDirectory]:
    """Build or load all that the runs need: the spec with the artifacts, the folder with their hashes.

    After ``stopping`` nothing new is begun, and both come back as they were. Raises OutageError where a backbone
    stays down or keeps failing, RunDirectoryError for a file that was changed and what ``keeping`` ends with,
    BenchmarkError.
    """
    preparations = await asyncio.to_thread(planned, spec, runs)
    if not preparations:
        return spec, directory
    clock = SystemClock()
    outages = Outages(clock, spec.cluster.outage_patience_s)
    async with AsyncExitStack() as stack:
        slots = asyncio.Semaphore(spec.cluster.slots)
        runners: dict[str, RoleRunner] = {}
        for name in {preparation.backbone for preparation in preparations}:
            # Only this process calls the backbone now, so its pace need not be shared.
            paced = pacers.local_pacer(spec, name)
            client = services.client(spec, name, paced)
            runners[name] = services.role_runner(spec, Role.EXECUTOR, name, client)
            stack.push_async_callback(runners[name].close)
        builders = [
            _Builder(spec.launch, preparation, runners[preparation.backbone], outages, slots, stopping, tell)
            for preparation in preparations
        ]
        await _guarded(all_or_none(builder.run() for builder in builders), keeping, stopping, outages)
    if any(len(p.built) < len(p.wanted) for p in preparations):
        return spec, directory
    found = {run_id: p.of_run(run_id) for p in preparations for run_id in p.runs}
    artifacts = {run: {name: built.artifact for name, built in of.items()} for run, of in found.items()}
    hashes = {run: {name: built.sha256 for name, built in of.items()} for run, of in found.items()}
    return replace(spec, prerequisites=artifacts), _noted(directory, hashes)


def planned(spec: LaunchSpec, runs: Sequence[PlannedRun]) -> list[Preparation]:
    """What a launch must prepare; empty for most benchmarks. Raises BenchmarkError, ConfigError."""
    groups: dict[str, list[PlannedRun]] = {}
    for run in runs:
        groups.setdefault(_origin(run.config), []).append(run)
    found = []
    for origin, members in groups.items():
        config = members[0].config
        benchmark = registry.benchmark(config.benchmark)
        if not isinstance(benchmark, PreparedBenchmark):
            continue
        needs = {run.run_id: tuple(benchmark.prerequisites({*run.plan.train, *run.plan.eval})) for run in members}
        if any(needs.values()):
            backbone = config.backbone_of(Role.EXECUTOR).name
            files = PrerequisiteFiles.below(spec.directory, benchmark.name, backbone, origin)
            found.append(Preparation(benchmark, backbone, needs, files, config.episode.deadline_s))
    return found


def kept(entries: Mapping[str, RunEntry], directory: LaunchDirectory) -> dict[str, RunEntry]:
    """A longer plan's entries, with the hashes that the launch has noted already."""
    known = directory.manifest.runs
    return {
        run: entry.model_copy(update={"prerequisites": known[run].prerequisites}) if run in known else entry
        for run, entry in entries.items()
    }


def _origin(config: RunConfig) -> str:
    """Hex digest of what an artifact depends on: the benchmark as set up, its data, and who executes."""
    data = {name: value for name, value in config.fingerprints.items() if name.startswith("benchmark.")}
    executor = config.backbone_of(Role.EXECUTOR)
    parts = [config.benchmark.model_dump(mode="json"), data, executor.model_dump(mode="json")]
    return sha256_hex(canonical_json(parts))


def _noted(directory: LaunchDirectory, hashes: Mapping[str, Mapping[str, str]]) -> LaunchDirectory:
    entries = dict(directory.manifest.runs)
    for run, now in hashes.items():
        before = entries[run].prerequisites
        for name in before.keys() & now.keys():
            if before[name] != now[name]:
                raise RunDirectoryError(
                    f"{directory.path}: prerequisite {name} of {run} was {before[name][:12]} and now is "
                    f"{now[name][:12]}: its file was exchanged or built anew. Put the original back, or start a "
                    "new launch"
                )
        entries[run] = entries[run].model_copy(update={"prerequisites": {**before, **now}})
    if entries == directory.manifest.runs:
        return directory
    return directory.extended(directory.manifest.config, entries)


async def _guarded(work: Any, keeping: asyncio.Task[None], stopping: asyncio.Event, outages: Outages) -> None:
    """Do the work while the launch is ours; nobody is waited for after ``stopping``."""
    building, stopped = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    pending: set[asyncio.Task[Any]] = {building, stopped, keeping}
    try:
        while not building.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if keeping in done:
                keeping.result()
            if stopped in done:
                outages.abandon()
        building.result()
    finally:
        for task in (building, stopped):
            task.cancel()
        await asyncio.gather(building, stopped, return_exceptions=True)


class _Executor:
    """Whom one attempt asks, within its deadline."""

    def __init__(self, runner: RoleRunner, session: str, deadline: Deadline) -> None:
        self._runner = runner
        self._session = session
        self.deadline = deadline
        self.usage = Usage()

    async def ask(self, turn: Turn) -> ChatReply:
        """See ``ports.Ask``."""
        reply = await self._runner.turn(turn, self._session, self.deadline.remaining_s)
        self.usage += reply.usage
        return reply


class _Builder:
    """Builds what one preparation lacks."""

    def __init__(
        self,
        launch: str,
        preparation: Preparation,
        runner: RoleRunner,
        outages: Outages,
        slots: asyncio.Semaphore,
        stopping: asyncio.Event,
        tell: Tell,
    ) -> None:
        self._launch = launch
        self._preparation = preparation
        self._runner = runner
        self._outages = outages
        self._slots = slots
        self._stopping = stopping
        self._tell = tell
        self._where = f"{preparation.benchmark.name} on {preparation.backbone}"

    async def run(self) -> None:
        """Load what is there, then build the rest, what does not depend on each other at the same time."""
        wanted = self._preparation.wanted
        await asyncio.to_thread(self._load, wanted)
        built = self._preparation.built
        missing = [one for one in wanted if one.name not in built]
        log.info("prerequisites.found", where=self._where, there=len(built), missing=len(missing))
        if not missing:
            return
        self._tell(f"prerequisites of {self._where}: {len(missing)} to build, {len(built)} there")
        done = {one.name: asyncio.Event() for one in wanted}
        for name in built:
            done[name].set()
        await all_or_none(self._one(one, done) for one in missing)

    def _load(self, wanted: Sequence[Prerequisite]) -> None:
        preparation = self._preparation
        for one in wanted:
            if one.after is not None and one.after not in preparation.built:
                preparation.files.require_absent(one)
                continue
            found = preparation.files.read(one, self._hash(one.after))
            if found is not None:
                preparation.built[one.name] = found

    async def _one(self, one: Prerequisite, done: Mapping[str, asyncio.Event]) -> None:
        preparation = self._preparation
        try:
            if one.after is not None:
                await done[one.after].wait()
                if one.after not in preparation.built:
                    return
            async with self._slots:
                if self._stopping.is_set():
                    return
                began = time.monotonic()
                try:
                    artifact, usage = await self._built(one)
                except AbandonedError:
                    return
                faults.reached("prerequisite.built")
                stored = await asyncio.to_thread(
                    preparation.files.write, one, self._hash(one.after), artifact, preparation.backbone, usage
                )
                preparation.built[one.name] = stored
                faults.reached("prerequisite.stored")
            took_s = round(time.monotonic() - began, 3)
            log.info(
                "prerequisite.built",
                where=self._where,
                name=one.name,
                sha256=stored.sha256,
                duration_s=took_s,
                **usage.model_dump(),
            )
            count = f"{len(preparation.built)} of {len(preparation.wanted)}"
            self._tell(f"prerequisites of {self._where}: {one.name} took {took_s:.1f} s, {count} there")
        finally:
            done[one.name].set()

    async def _built(self, one: Prerequisite) -> tuple[Json, Usage]:
        """The artifact, and what all attempts at it together used."""
        preparation, clock, failures = self._preparation, SystemClock(), 0
        before = preparation.built[one.after].artifact if one.after is not None else None
        session, run = f"{self._launch}:{preparation.files.origin[:8]}:{one.name}", next(iter(preparation.runs))
        used = Usage()
        while True:
            executor = _Executor(self._runner, session, Deadline.after(preparation.deadline_s, clock.monotonic))
            try:
                artifact = await preparation.benchmark.build(one.name, before, executor.ask)
                return artifact, used + executor.usage
            except BackboneError as error:
                used += executor.usage
                log.warning("prerequisite.failed", where=self._where, name=one.name, reason=str(error))
                if await self._outages.waited_out(run, self._runner):
                    failures = 0
                    continue
                if executor.deadline.passed:
                    raise BenchmarkError(
                        f"prerequisite {one.name} of {self._where} did not end within "
                        f"{preparation.deadline_s:.0f} s: raise episode.deadline_s"
                    ) from error
                failures += 1
                if failures == ATTEMPTS:
                    raise OutageError(
                        f"prerequisite {one.name} of {self._where} failed {ATTEMPTS} times: {error}. Repair the "
                        "backbone, then resume the launch"
                    ) from error

    def _hash(self, name: str | None) -> str | None:
        return self._preparation.built[name].sha256 if name is not None else None
