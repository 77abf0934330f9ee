"""One launch of a sweep, from its config to its ending: services up, banks open, driver run, services down."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.directory.artifact_json import write
from chime_dist.adapters.directory.control_file import ControlFile
from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory, State
from chime_dist.adapters.launch_processes import accounted
from chime_dist.config.cluster import Endpoint, HttpEndpoint, with_absolute_paths
from chime_dist.config.loading import restore_sweep
from chime_dist.config.resume import compare
from chime_dist.config.run import RunConfig
from chime_dist.config.sweep import SweepConfig
from chime_dist.config.validation import validated
from chime_dist.core.model_call import ChatRequest
from chime_dist.engine.control import Command, Standing, Steering
from chime_dist.engine.driven_run import Progress, RunEnd
from chime_dist.engine.driver import Driver, Ending
from chime_dist.engine.resume import drop_unbacked, reconcile
from chime_dist.errors import BackboneError, JournalError, OutageError, RunDirectoryError, ServiceError
from chime_dist.logs import SecretMask
from chime_dist.wiring import services
from chime_dist.wiring.bookkeeping import Bookkeeper
from chime_dist.wiring.execution import Execution, LocalExecution, QueueParts
from chime_dist.wiring.health.models import PROBE_BUDGET_S, reach_fix
from chime_dist.wiring.metrics import metered
from chime_dist.wiring.one_driver import driving
from chime_dist.wiring.own_servers import with_own_servers
from chime_dist.wiring.plans import PlannedRun, plan_runs, with_forks
from chime_dist.wiring.prerequisites import Tell, kept, prepared
from chime_dist.wiring.requirements import require_parts
from chime_dist.wiring.results import evaluation_of
from chime_dist.wiring.services import LaunchSpec
from chime_dist.wiring.serving import serve_for
from chime_dist.wiring.spending import with_money_of
from chime_dist.wiring.warm_up import warm_up

log = structlog.get_logger()

LONGEST_REASON = 2_000
"""Characters of the reason in ``status.json``; the log holds the rest."""

_STATES: Mapping[Ending, State] = {
    Ending.COMPLETE: "complete",
    Ending.INCOMPLETE: "incomplete",
    Ending.PAUSED: "paused",
    Ending.PREEMPTED: "preempted",
}

Observer = Callable[[Sequence[Progress]], None]


class Launch:
    """A launch that can be driven once."""

    def __init__(self, sweep: SweepConfig, runs: Sequence[PlannedRun], directory: LaunchDirectory) -> None:
        self.sweep = sweep
        self.runs = tuple(runs)
        self.directory = directory
        self.extends = False
        """Whether it has more runs, or longer ones, than the folder says."""
        self._driver: Driver | None = None
        self._stop: Ending | None = None
        self._stopping = asyncio.Event()
        self.reason = ""
        """Why it did not end complete, in words."""
        self.tell: Tell = _unheard
        """Takes what is worth a line before the runs start."""
        self.books: Bookkeeper | None = None
        """What is spent; None before ``drive``."""

    @classmethod
    def new(cls, sweep: SweepConfig, runs: Sequence[PlannedRun]) -> Launch:
        """Start a launch's folder. Raises RunDirectoryError."""
        fixed = _from_anywhere(sweep)
        directory = LaunchDirectory.create(
            Path(sweep.cluster.runs_dir),
            sweep.name,
            fixed.model_dump(mode="json"),
            now=datetime.now(UTC),
            runs={run.run_id: run.entry for run in runs},
        )
        return cls(fixed, runs, directory)

    @classmethod
    def resume(cls, path: Path, overrides: Sequence[str] = ()) -> Launch:
        """Reopen a launch, possibly with more runs or longer ones; one that has not written anything may still be
        changed in any way.

        Raises ConfigError naming every key whose change would change results, RunDirectoryError, and
        MissingExtraError for what is not installed.
        """
        directory = LaunchDirectory.open(path)
        where = str(directory.path / "sweep.json")
        sweep = _from_anywhere(restore_sweep(directory.manifest.config, where, overrides))
        require_parts(sweep)
        runs = plan_runs(sweep)
        entries = directory.manifest.runs
        stored = {
            run_id: validated(RunConfig, entry.config, where)
            for run_id, entry in entries.items()
            if entry.forked_from is None
        }
        _require_named_by_settings(stored, where)
        differences = compare(list(stored.values()), [run.config for run in runs])
        if directory.runs():
            differences.require_resumable(str(directory.path))
        runs = with_forks(runs, entries)
        launch = cls(sweep, runs, directory)
        launch.extends = bool(
            differences.added or differences.extended or differences.removed or differences.refused
        )
        return launch

    def stop(self, ending: Ending) -> None:
        """Admit no more work; ``drive`` returns when the open episodes have ended."""
        self._stop = ending
        self._stopping.set()
        if self._driver is not None:
            self._driver.stop(ending)

    async def drive(self, observe: Observer) -> Ending:
        """Run to an ending.

        Raises ChimeDistError. The folder's status says how it went, except where it is RunDirectoryError because
        another driver has the launch, or because it was changed since it was read: then it stays as it was.
        """
        lock, since = self.directory.driver_lock(), datetime.now(UTC)
        lock.acquire(since)
        try:
            async with AsyncExitStack() as stack:
                keeping = await self._token(stack)
                return await self._held(observe, keeping, since)
        finally:
            lock.release()

    async def _token(self, stack: AsyncExitStack) -> asyncio.Task[None]:
        try:
            return await stack.enter_async_context(driving(self.sweep.cluster, self.directory.id, self.tell))
        except RunDirectoryError:
            # The folder may be the other driver's: what its status says is not ours to change.
            raise
        except BaseException as error:
            self._say_why(error)
            raise

    async def _held(self, observe: Observer, keeping: asyncio.Task[None], since: datetime) -> Ending:
        # Whatever was planned rests on it, and everything below writes it again. Its status is somebody else's.
        self.directory.require_current()
        try:
            if self.extends:
                self._extend()
            self.directory = with_money_of(self.directory, self.sweep.cluster)
            self.books = Bookkeeper(self.directory, self.sweep.cluster.limits, since)
            steering = await self._steering()
            self._say("running")
            if (overspent := await self.books.look()) is not None:
                ending, self.reason = Ending.PAUSED, overspent
            else:
                # From here on, because prerequisites are built before there is a driver.
                counting = asyncio.create_task(self.books.keep(self._overspent))
                try:
                    ending = await self._driven(observe, steering, keeping)
                finally:
                    counting.cancel()
                    await asyncio.gather(counting, return_exceptions=True)
                    await self.books.look()
        except BaseException as error:
            self._say_why(error)
            raise
        self._say(_STATES[ending], self.reason)
        if ending is Ending.COMPLETE:
            # The journal file and the records hold everything; embedded state would only fill the disk.
            await asyncio.to_thread(shutil.rmtree, self._state_dir, ignore_errors=True)
        return ending

    def _extend(self) -> None:
        """Write the longer plan down."""
        entries = kept({run.run_id: run.entry for run in self.runs}, self.directory)
        self.directory = self.directory.extended(self.sweep.model_dump(mode="json"), entries)
        log.info("launch.extended", runs=len(entries))

    @property
    def _state_dir(self) -> Path:
        return services.state_dir(self.sweep.cluster, self.directory.id)

    async def _steering(self) -> Steering:
        # Begun before anything slow is started, so that what is asked from here on is for this driver.
        control = ControlFile(self.directory)
        steering = Steering(self.sweep.cluster.slots, SystemClock(), control, self._paused)
        await steering.begin(Standing({run.run_id: 0 for run in self.runs}, ()))
        return steering

    def _paused(self, command: Command | None) -> None:
        if command is None:
            self._say("running")
        else:
            self._say("paused", f"by ctl: {command.by}; `ctl continue` goes on")

    def _overspent(self, reason: str) -> None:
        if self._driver is not None:
            self._driver.stop(Ending.PAUSED, reason)
        elif self._stop is None:
            self.reason = reason
            self.stop(Ending.PAUSED)

    async def _driven(self, observe: Observer, steering: Steering, keeping: asyncio.Task[None]) -> Ending:
        async with AsyncExitStack() as stack:
            # First in, last out: what the launch's services and workers leave behind is ended after them.
            await stack.enter_async_context(accounted(self.directory.id))
            path, cluster = self.directory.path.absolute(), self.sweep.cluster
            spec = services.spec_of(self.directory.id, path, self._state_dir, self.runs, cluster)
            spec, keeping = await with_own_servers(spec, path / "logs", keeping, stack)
            spec, fleets = await serve_for(spec, stack, self._stopping, self.tell)
            if self._stop is not None:
                return self._stop
            await _probe(spec)
            await warm_up(spec, self.runs, fleets, self.tell)
            try:
                spec, self.directory = await prepared(
                    spec, self.runs, self.directory, keeping=keeping, stopping=self._stopping, tell=self.tell
                )
            except OutageError as error:
                self.reason = str(error)
                return Ending.PAUSED
            if self._stop is not None:
                return self._stop
            parts = await QueueParts.open(spec, self.directory, stack)
            spec = replace(spec, turn=await parts.queue.reset())
            for run in self.runs:
                if parts.mirror is not None:
                    await reconcile(run.run_id, parts.journal, parts.mirror)
                head = await parts.journal.head(run.run_id)
                ahead = await asyncio.to_thread(EpisodeArchive(self.directory).ahead, run.run_id)
                await drop_unbacked(parts.queue, run.run_id, head, run.plan.shape.window, ahead)
            execution = await _execution(spec, parts, self.directory, stack)
            observe = await metered(spec, self.directory, execution, steering, observe, stack, self.tell)
            self._driver = Driver(
                [run.plan for run in self.runs],
                execution.queue,
                execution.journal,
                execution.records,
                execution.bank,
                SystemClock(),
                slots=spec.cluster.slots,
                pause_after_infra=spec.cluster.stop_after_infra,
                caps=spec.cluster.caps,
                mirror=parts.mirror,
                on_run_end=self._run_ended,
                on_progress=observe,
                steering=steering,
            )
            if self._stop is not None:
                self._driver.stop(self._stop, self.reason)
            try:
                return await _watched(self._driver, execution, keeping)
            except OutageError as error:
                return self._driver.stop(Ending.PAUSED, str(error))
            finally:
                self.reason = self._driver.reason

    async def _run_ended(self, end: RunEnd) -> None:
        folder = self.directory.run(end.run_id)
        noted = evaluation_of(folder)
        if noted is not None and noted.version == end.version and noted.digest_after_eval != end.digest_after_eval:
            raise JournalError(
                f"{folder.evaluation}: the bank that was evaluated at version {end.version} had the digest"
                f" {noted.digest_after_eval}, and the one of {folder.journal} has {end.digest_after_eval}: its"
                " evaluation is another bank's. Restore the journal from a backup, or start a new launch"
            )
        await asyncio.to_thread(write, end, folder.evaluation, "the evaluation")

    def _say_why(self, error: BaseException) -> None:
        killed = isinstance(error, asyncio.CancelledError)
        self._say("incomplete", "killed by the second signal" if killed else f"{type(error).__name__}: {error}")

    def _say(self, state: State, reason: str = "") -> None:
        # Masked before it is cut: what is left of half a secret would not be recognised.
        masked = SecretMask(services.secrets_of(self.sweep.cluster)).text(reason)
        self.directory.set_status(state, now=datetime.now(UTC), reason=masked[:LONGEST_REASON])


def _require_named_by_settings(stored: Mapping[str, RunConfig], where: str) -> None:
    for run_id, config in stored.items():
        if config.run_id != run_id:
            raise RunDirectoryError(
                f"{where}: runs.{run_id}.config: with these settings the run is {config.run_id}. The file was "
                "edited, or is another version's, in which settings had other names or defaults: put the original "
                "back, or resume it with that version. Its results can be read"
            )


def _from_anywhere(sweep: SweepConfig) -> SweepConfig:
    # Whoever goes on with a launch may do so from another folder than the one in which its paths were written.
    return sweep.model_copy(update={"cluster": with_absolute_paths(sweep.cluster)})


def _unheard(_: str) -> None:
    """Where nobody listens."""


async def _execution(
    spec: LaunchSpec, parts: QueueParts, directory: LaunchDirectory, stack: AsyncExitStack
) -> Execution:
    if spec.cluster.execution == "local":
        return await LocalExecution.start(spec, parts, directory, stack)
    # Ray takes a second to import; a local launch never needs it.
    from chime_dist.wiring.ray_execution import RayExecution

    return await RayExecution.start(spec, parts, directory, stack)


async def _probe(spec: LaunchSpec) -> None:
    """Every backbone shows that it can produce a token: healthy servers that do not answer exist (A9).

    One that is asked too much is there: episodes wait for it as they would later on.
    """
    run = next(iter(spec.runs.values()))
    once = run.requests.model_copy(update={"max_retries": 0})
    ask = ChatRequest.one_token(f"probe:{spec.launch}")
    for name, model in spec.models.items():
        client = services.backbone(spec, model, once)
        try:
            await client.complete(ask, PROBE_BUDGET_S)
        except BackboneError as error:
            if error.code == "rate_limited":
                log.warning("backbone.busy", backbone=name, reason=error.message)
                continue
            raise ServiceError(
                f"backbone {name!r} did not complete one token{_at(spec.cluster.endpoints[name])}: {error}; "
                f"{reach_fix(error, name, model.model)}"
            ) from error
        finally:
            await client.close()


def _at(endpoint: Endpoint) -> str:
    return f" at {endpoint.url}" if isinstance(endpoint, HttpEndpoint) else ""


async def _watched(driver: Driver, execution: Execution, keeping: asyncio.Task[None]) -> Ending:
    """The driver's ending; the first failure of a vital part ends the launch instead."""
    driving, serving = asyncio.create_task(driver.run()), asyncio.create_task(execution.serve())
    working, stopping = asyncio.create_task(execution.work()), asyncio.create_task(driver.stopping.wait())
    tasks: set[asyncio.Task[Any]] = {driving, serving, working, stopping}
    pending = {*tasks, keeping}
    try:
        while not driving.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if stopping in done:
                await execution.stop_workers()
            for part in done & {serving, working, keeping}:
                part.result()
                if part is not working or not stopping.done():
                    raise ServiceError("a part of the launch ended before the driver did; see log.jsonl")
                driver.drained()
        return driving.result()
    finally:
        await execution.stop_workers()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
