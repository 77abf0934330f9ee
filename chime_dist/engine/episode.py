"""One attempt at one unit, from opening the task to the trace that is stored.

The one place where an exception becomes an outcome (design "Outcomes"): what the agent did wrong is a failure
by score, what our machinery did wrong is infra, and nothing an episode raises leaves it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from chime_dist import faults
from chime_dist.core.deadline import Deadline
from chime_dist.core.episode import (
    INFRA_REASONS,
    EndReason,
    EpisodeRecord,
    EpisodeTrace,
    Outcome,
    Proposal,
    Trajectory,
    Unit,
    Usage,
)
from chime_dist.core.task import TaskView
from chime_dist.engine.capture import Capture
from chime_dist.engine.context import (
    AgentDeadlineError,
    MeteredModels,
    Reflecting,
    RunningEpisode,
    UnansweredError,
)
from chime_dist.engine.culprit import told
from chime_dist.engine.outage import AbandonedError, Outages
from chime_dist.errors import BackboneError, BenchmarkError, EmbeddingError, MethodError, OutageError
from chime_dist.ports import BankReader, Benchmark, Clock, Environment, Method, Models, Reflection

log = structlog.get_logger()

GATE_ATTEMPTS = 3
"""How often a gate that the backbone failed is asked again from the stored trajectory before gate_error."""

_OFF = Reflection(status="off")


@dataclass(frozen=True, slots=True)
class RunServices:
    """What the episodes of one run share."""

    method: Method
    benchmark: Benchmark
    models: Models
    deadline_s: float
    """Wall-clock seconds for one attempt, and again for its gate (R37)."""


@dataclass(frozen=True, slots=True)
class _Ending:
    outcome: Outcome
    reason: EndReason
    detail: str = ""


class EpisodeRunner:
    """Runs attempts for any unit of the launch's runs. Holds no state between attempts."""

    def __init__(
        self,
        runs: Mapping[str, RunServices],
        bank: BankReader,
        clock: Clock,
        outages: Outages,
        worker: str,
        mask: Callable[[str], str] = str,
        hide: Callable[[str], str] | None = None,
    ) -> None:
        """``mask`` takes secrets out of error texts, which are kept with the records (H6). ``hide`` takes known
        ones out of prompts; None captures no prompts."""
        self._runs = runs
        self._outages = outages
        self._bank = bank
        self._clock = clock
        self._worker = worker
        self._mask = mask
        self._hide = hide

    def models(self, unit: Unit) -> Models:
        """The models of the unit's run."""
        return self._runs[unit.run_id].models

    async def run(self, unit: Unit, delivery: int) -> EpisodeTrace:
        """Attempt ``unit``. Raises only how the wait for a gate's model ends: OutageError, AbandonedError."""
        services = self._runs[unit.run_id]
        started_at, started = self._clock.now(), self._clock.monotonic()
        attempt = uuid.uuid4().hex
        capture = Capture(self._hide) if self._hide is not None else None
        models = self._metered(services, unit, capture)
        ending, trajectory = await self._attempt(services, unit, models)
        usage = models.usage
        reflection = _OFF
        faults.reached("episode.scored")
        if unit.phase == "train" and ending.outcome is not Outcome.INFRA:
            reflection, gate_usage = await self._reflect(services, unit, trajectory, ending.outcome, capture)
            usage = _sum(usage, gate_usage)
        record = EpisodeRecord(
            unit=unit,
            attempt=attempt,
            delivery=delivery,
            final=ending.outcome is not Outcome.INFRA,
            outcome=ending.outcome,
            end_reason=ending.reason,
            detail=self._mask(ending.detail),
            gate_status=reflection.status,
            label=reflection.label,
            started_at=started_at.isoformat(),
            duration_s=round(self._clock.monotonic() - started, 6),
            steps=len(trajectory.steps),
            usage=usage,
            worker=self._worker,
            flags=trajectory.flags,
        )
        log.info(
            "episode.finished",
            unit=unit.key,
            outcome=record.outcome.value,
            end_reason=record.end_reason.value,
            duration_s=record.duration_s,
            label=record.label,
            gate=record.gate_status,
        )
        proposal = _proposal(record, reflection) if unit.phase == "train" else None
        return EpisodeTrace(
            record=record,
            trajectory=trajectory,
            proposal=proposal,
            gate=reflection.audit,
            calls=capture.calls if capture is not None else (),
        )

    def lost(self, unit: Unit, delivery: int, reason: EndReason = EndReason.WORKER_LOST) -> EpisodeTrace:
        """The trace of a unit whose workers died on every delivery: infra, committed empty (D9). ``reason`` is OOM
        where the last of them is known to have been killed for want of memory."""
        detail = f"no worker survived the unit in {delivery - 1} deliveries"
        if reason is EndReason.OOM:
            detail += ", and the last one, which worked on nothing else, was killed for want of memory"
        record = EpisodeRecord(
            unit=unit,
            attempt=uuid.uuid4().hex,
            delivery=delivery,
            final=False,
            outcome=Outcome.INFRA,
            end_reason=reason,
            detail=detail,
            started_at=self._clock.now().isoformat(),
            duration_s=0.0,
            steps=0,
            worker=self._worker,
        )
        log.error("episode.worker_lost", unit=unit.key, deliveries=delivery - 1, end_reason=reason.value)
        proposal = _proposal(record, _OFF) if unit.phase == "train" else None
        return EpisodeTrace(record=record, trajectory=_NOTHING, proposal=proposal)

    def _metered(self, services: RunServices, unit: Unit, capture: Capture | None) -> MeteredModels:
        deadline = Deadline.after(services.deadline_s, self._clock.monotonic)
        return MeteredModels(services.models, unit.key, deadline, capture)

    async def _attempt(
        self, services: RunServices, unit: Unit, models: MeteredModels
    ) -> tuple[_Ending, Trajectory]:
        environment: Environment | None = None
        trajectory = _NOTHING
        try:
            async with asyncio.timeout(services.deadline_s):
                environment = await services.benchmark.open(unit.task)
            episode = RunningEpisode(unit, services.benchmark, environment, self._bank, models)
            try:
                reason = await _acted(services.method, episode)
            finally:
                trajectory = episode.trajectory
            if reason is EndReason.AGENT_DEADLINE and await self._outages.waited_out(unit.run_id, services.models):
                # It was not the agent that was slow: a server that takes requests and answers none.
                return _Ending(Outcome.INFRA, EndReason.OUTAGE, "the deadline passed in an outage"), trajectory
            if reason in INFRA_REASONS:
                log.warning("episode.no_end_reason", unit=unit.key, reason=reason.value)
                return _Ending(Outcome.INFRA, reason, _why_no_end(services, episode)), trajectory
            # The deadline may be spent, and an evaluator needs time of its own; none may take for ever.
            async with asyncio.timeout(services.deadline_s):
                success = await environment.score()
            return _Ending(Outcome.SUCCESS if success else Outcome.FAILURE, reason), trajectory
        except (AbandonedError, OutageError):
            raise
        except BackboneError as error:
            return _Ending(Outcome.INFRA, EndReason.BACKBONE, str(error)), trajectory
        except EmbeddingError as error:
            return _Ending(Outcome.INFRA, EndReason.EMBEDDER, str(error)), trajectory
        except (BenchmarkError, UnansweredError) as error:
            return _Ending(Outcome.INFRA, EndReason.BENCHMARK, str(error)), trajectory
        except TimeoutError:
            detail = f"the benchmark did not open or score the task within {services.deadline_s:.0f} s"
            return _Ending(Outcome.INFRA, EndReason.BENCHMARK, detail), trajectory
        except MemoryError as error:
            # This worker's, not yet the machine's: its other episodes go on.
            log.exception("episode.out_of_memory", unit=unit.key)
            return _Ending(Outcome.INFRA, EndReason.OOM, f"{type(error).__name__}: {error}"), trajectory
        except Exception as error:
            log.exception("episode.crashed", unit=unit.key)
            return _Ending(
                Outcome.INFRA, EndReason.UNKNOWN, told(error, services.method, services.benchmark)
            ), trajectory
        finally:
            if environment is not None:
                try:
                    async with asyncio.timeout(services.deadline_s):
                        await environment.close()
                except Exception:
                    log.exception("episode.close_failed", unit=unit.key)

    async def _reflect(
        self,
        services: RunServices,
        unit: Unit,
        trajectory: Trajectory,
        outcome: Outcome,
        capture: Capture | None,
    ) -> tuple[Reflection, dict[str, Usage]]:
        usage: dict[str, Usage] = {}
        reason = ""
        attempts = 0
        while attempts < GATE_ATTEMPTS:
            attempts += 1
            models = self._metered(services, unit, capture)
            try:
                reflection = await services.method.reflect(
                    Reflecting(unit, self._bank, models), trajectory, outcome
                )
                if not isinstance(reflection, Reflection):
                    reason = f"returned {type(reflection).__name__} from reflect, not Reflection"
                    raise MethodError(f"method {services.method.name!r} {reason}")
                return reflection, _sum(usage, models.usage)
            except (BackboneError, EmbeddingError, AgentDeadlineError) as error:
                reason = str(error) or type(error).__name__
                log.warning("gate.failed", unit=unit.key, reason=reason)
                if await self._outages.waited_out(unit.run_id, services.models):
                    attempts = 0
            except Exception as error:
                log.exception("gate.crashed", unit=unit.key)
                reason = str(error) if isinstance(error, MethodError) else told(error, services.method)
                break
            finally:
                usage = _sum(usage, models.usage)
        return Reflection(status="gate_error", audit={"reason": self._mask(reason)}), usage


def _why_no_end(services: RunServices, episode: RunningEpisode) -> str:
    if episode.end_reason is None:
        return f"method {services.method.name!r} ended its attempt without ctx.execute: nothing was done"
    return f"benchmark {services.benchmark.name!r} ended without a reason that counts"


async def _acted(method: Method, episode: RunningEpisode) -> EndReason:
    try:
        await method.attempt(episode)
    except AgentDeadlineError:
        return EndReason.AGENT_DEADLINE
    except BackboneError as error:
        if error.code == "context_overflow":
            return EndReason.CONTEXT_OVERFLOW
        if error.code == "budget":
            return EndReason.AGENT_DEADLINE
        raise
    return episode.end_reason or EndReason.UNKNOWN


def _proposal(record: EpisodeRecord, reflection: Reflection) -> Proposal:
    empty = None
    if record.outcome is Outcome.INFRA:
        empty = f"infra:{record.end_reason.value}"
    elif reflection.status == "gate_error":
        empty = "gate_error"
    return Proposal(
        run_id=record.unit.run_id,
        position=record.unit.position,
        task=record.unit.task,
        attempt=record.attempt,
        read_version=record.unit.read_version,
        outcome=record.outcome,
        diagnosis=None if empty else reflection.diagnosis,
        content={} if empty else reflection.content,
        empty_reason=empty,
    )


def _sum(first: Mapping[str, Usage], second: Mapping[str, Usage]) -> dict[str, Usage]:
    return {
        role: first.get(role, Usage()) + second.get(role, Usage()) for role in sorted(first.keys() | second.keys())
    }


_NOTHING = Trajectory(view=TaskView(request="", messages=()))
