"""The driver of a launch: admits positions, follows the journal, evaluates, ends.

Only the driver admits, and only into free slots: a position when its read version is committed, an eval index
when the run's last train position is. The least advanced run goes first, so that runs share the slots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from enum import StrEnum
from typing import Protocol

import structlog

from chime_dist import faults
from chime_dist.core.episode import Outcome, Unit
from chime_dist.core.journal import parse_line
from chime_dist.core.window import Admission, InfraStreak
from chime_dist.engine.control import Standing, Steering
from chime_dist.engine.driven_run import DrivenRun, Progress, RunEnd
from chime_dist.engine.plan import RunPlan
from chime_dist.engine.resume import lost_rows, lost_words
from chime_dist.errors import JournalError, RunDirectoryError
from chime_dist.ports import Appended, Change, Clock, Journal, Queue, RecordStore

log = structlog.get_logger()

LOOK_S = 1.0
"""Longest wait for a change, in seconds."""
REPORT_S = 0.5
"""Shortest time between two progress reports."""
RECHECK_S = 5.0
"""How often the queue's own list of open units is compared with ours, should a change hint get lost."""


class Ending(StrEnum):
    """How a launch ended."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    """Every unit was tried and some eval units ended infra and are owed, or a run was cancelled."""
    PAUSED = "paused"
    PREEMPTED = "preempted"


class BankControl(Protocol):
    """What the driver asks of the bank's owner."""

    async def digest(self, run_id: str) -> str:
        """The state digest at the head."""
        ...


class Driver:
    """Drives all runs of one launch over one pool of slots."""

    def __init__(
        self,
        plans: Sequence[RunPlan],
        queue: Queue,
        journal: Journal,
        records: RecordStore,
        bank: BankControl,
        clock: Clock,
        *,
        slots: int,
        pause_after_infra: int,
        caps: Mapping[str, int] | None = None,
        mirror: Journal | None,
        on_run_end: Callable[[RunEnd], Awaitable[None]],
        on_progress: Callable[[Sequence[Progress]], None],
        steering: Steering | None = None,
    ) -> None:
        """``steering`` has begun, and has the same ``slots``; with None nobody steers."""
        self._queue = queue
        self._journal = journal
        self._records = records
        self._bank = bank
        self._clock = clock
        self._caps = caps or {}
        self._steering = steering or Steering(slots, clock)
        self._mirror = mirror
        self._on_run_end = on_run_end
        self._on_progress = on_progress
        self._runs = {
            plan.run_id: DrivenRun(plan, Admission(plan.shape), InfraStreak(pause_after_infra)) for plan in plans
        }
        self._ending: Ending | None = None
        self._drained = False
        self.reason = ""
        """Why it was stopped, in words."""
        self.stopping = asyncio.Event()
        """Set by ``stop``: the workers should claim no more either."""

    def stop(self, ending: Ending, reason: str = "") -> Ending:
        """Admit no more; ``run`` returns once no unit is open, or with ``drained``. Returns the first ending."""
        if self._ending is None:
            log.warning("driver.stopping", ending=ending.value, reason=reason)
            self._ending, self.reason = ending, reason
            self.stopping.set()
        return self._ending

    def drained(self) -> None:
        """No worker is left: units that are still open belong to a later resume."""
        self._drained = True

    async def run(self) -> Ending:
        """Drive to the end; call after the queue was reset, journal and mirror reconciled, and the bank opened.

        Raises what the ports raise.
        """
        for run in self._runs.values():
            await self._take_stock(run)
        cursor, _ = await self._queue.changes("", 0.0)
        checked = reported = self._clock.monotonic()
        while True:
            await self._steering.look(self._standing())
            if self._ending is None and self._steering.paused is None:
                await self._admit()
            if self._clock.monotonic() - reported >= REPORT_S:
                reported = self._clock.monotonic()
                await self._report()
            if self._over():
                break
            cursor, changes = await self._queue.changes(cursor, LOOK_S)
            for change in changes:
                if change.kind == "completed":
                    await self._completed(change)
            recheck = self._clock.monotonic() - checked >= RECHECK_S
            if recheck:
                checked = self._clock.monotonic()
                await self._recheck()
            committed = {change.run_id for change in changes if change.kind == "committed"}
            for run in self._runs.values():
                if recheck or not changes or run.plan.run_id in committed:
                    await self._follow(run)
                await self._advance(run)
        for run in self._runs.values():
            await self._follow(run)
        await self._report()
        if self._ending is not None:
            return self._ending
        owed = [await self._owed(run) for run in self._runs.values()]
        self.reason = "; ".join(filter(None, (self._cancellations(), *(run.lost for run in self._runs.values()))))
        return Ending.INCOMPLETE if any(owed) else Ending.COMPLETE

    async def _owed(self, run: DrivenRun) -> bool:
        settled = await self._records.settled(run.plan.run_id)
        self._note_lost(run, settled)
        return bool(run.lost) or not run.finished or not settled.issuperset(run.plan.eval_keys())

    async def _report(self) -> None:
        runs = self._runs.values()
        self._on_progress([run.snapshot(await self._records.tally(run.plan.run_id)) for run in runs])

    def _over(self) -> bool:
        if self._drained:
            return True
        if any(run.in_flight for run in self._runs.values()):
            return False
        return self._ending is not None or all(run.finished or self._is_left(run) for run in self._runs.values())

    def _is_left(self, run: DrivenRun) -> bool:
        """Whether nothing more is done for it: it was cancelled, or can never be complete."""
        return bool(run.lost) or run.plan.run_id in self._steering.cancelled

    def _standing(self) -> Standing:
        return Standing(
            {run_id: len(run.in_flight) for run_id, run in self._runs.items()},
            [run_id for run_id, run in self._runs.items() if run.finished],
        )

    def _cancellations(self) -> str:
        cancelled = self._steering.cancelled
        left = [
            f"{id_} by {cancelled[id_].by}"
            for id_, run in self._runs.items()
            if id_ in cancelled and not run.finished
        ]
        return f"cancelled: {', '.join(left)}; `ctl revive` takes them up again" if left else ""

    async def _take_stock(self, run: DrivenRun) -> None:
        plan = run.plan
        run.settled = await self._records.settled(plan.run_id)
        if self._mirror is not None:
            run.mirror_fence = await self._mirror.take_fence(plan.run_id)
            run.mirrored = await self._mirror.head(plan.run_id)
        run.owed = [index for index, key in enumerate(plan.eval_keys()) if key not in run.settled]
        run.evaluated = len(plan.eval) - len(run.owed)
        await self._follow(run)
        lost = self._note_lost(run, run.settled)
        if lost and (plan.left_at is None or plan.left_at > lost[0]):
            # Now, and not when the rest of it has been paid for.
            raise RunDirectoryError(run.lost)
        await self._advance(run)
        head = run.admission.head
        log.info("run.opened", run=plan.run_id, head=head, total=plan.shape.total, owed=len(run.owed))

    def _note_lost(self, run: DrivenRun, settled: Set[str]) -> list[int]:
        head = run.admission.head
        lost = lost_rows(run.plan, head, run.empty, settled)
        run.lost = lost_words(run.plan.run_id, lost, head - len(run.empty)) if lost else ""
        return lost

    async def _admit(self) -> None:
        free = self._steering.slots - sum(len(run.in_flight) for run in self._runs.values())
        while free > 0:
            waiting = [
                run for run in self._runs.values() if run.waits and not self._is_left(run) and self._has_room(run)
            ]
            if not waiting:
                return
            run = min(waiting, key=lambda r: r.progress)
            free -= await self._admit_unit(run, run.next_unit())

    def _has_room(self, run: DrivenRun) -> bool:
        """Whether every pool of the run is below its cap."""
        return all(
            sum(len(other.in_flight) for other in self._runs.values() if pool in other.plan.pools) < cap
            for pool in run.plan.pools
            if (cap := self._caps.get(pool)) is not None
        )

    async def _admit_unit(self, run: DrivenRun, unit: Unit) -> int:
        """Hand out one unit; returns the slots it takes (none for an episode that was finished before)."""
        if unit.phase == "eval":
            run.owed.pop(0)
        else:
            run.admission = run.admission.admitted()
            if unit.key in run.settled:
                await self._resubmit(unit)
                return 0
        run.in_flight[unit.key] = unit
        await self._queue.admit(unit)
        faults.reached("driver.admitted")
        return 1

    async def _resubmit(self, unit: Unit) -> None:
        trace = await self._records.final(unit)
        if trace is None or trace.proposal is None:
            raise JournalError(
                f"{unit.key} has a final record but no stored proposal; its trajectory file is missing"
            )
        await self._queue.submit(trace.proposal)
        log.info("episode.resubmitted", unit=unit.key)

    async def _completed(self, change: Change) -> None:
        run = self._runs.get(change.run_id)
        if run is None or change.unit not in run.in_flight:
            return
        del run.in_flight[change.unit]
        await self._pause_if_held(run)
        if ":eval:" in change.unit:
            run.evaluated += 1

    async def _recheck(self) -> None:
        outstanding = await self._queue.outstanding()
        for run in self._runs.values():
            for key, unit in [(k, u) for k, u in run.in_flight.items() if k not in outstanding]:
                if self._ending is None and await self._queue.admit(unit):
                    # The server lost acknowledged writes (D10): it would refuse what it knows to be completed.
                    log.warning("unit.admitted_again", unit=key)
                    continue
                await self._completed(Change(kind="completed", run_id=run.plan.run_id, unit=key))
            await self._hand_out_again(run)

    async def _hand_out_again(self, run: DrivenRun) -> None:
        """See to the head's position where it was completed and the server has forgotten even that (D10)."""
        run_id, head = run.plan.run_id, run.admission.head
        if head >= run.admission.next_position or self._ending is not None or self._is_left(run):
            return
        unit = run.plan.train_unit(head)
        known = unit.key in run.in_flight or await self._queue.proposal(run_id, head) is not None
        # The bank's owner drops a proposal after the append, so what is asked second tells a loss from a commit.
        if known or await self._journal.head(run_id) != head:
            return
        if await self._records.final(unit) is not None:
            await self._resubmit(unit)
        elif await self._queue.admit(unit):
            log.warning("unit.admitted_again", unit=unit.key)
            run.in_flight[unit.key] = unit

    async def _follow(self, run: DrivenRun) -> None:
        """Take in new journal entries: into the file first, then as the head that admits positions."""
        run_id, start = run.plan.run_id, run.admission.head
        lines = await self._journal.read(run_id, start)
        for position, line in enumerate(lines, start):
            if self._mirror is not None and position >= run.mirrored:
                answer = await self._mirror.append(run_id, run.mirror_fence, position, line)
                if answer not in (Appended.APPENDED, Appended.ALREADY_SAME):
                    raise JournalError(f"run {run_id}: journal.jsonl refused position {position}: {answer.value}")
            entry = parse_line(line, f"journal of {run_id}, entry {position}")
            run.infra = run.infra.then(entry.outcome)
            if entry.outcome is Outcome.INFRA:
                run.empty.add(position)
            faults.reached("driver.followed")
        run.admission = run.admission.committed(start + len(lines))
        await self._pause_if_held(run)

    async def _pause_if_held(self, run: DrivenRun) -> None:
        """Pause before one more position in a row is committed empty: the bank's owner holds it back as well."""
        if not run.infra.at_the_edge or self._ending is not None or self._is_left(run):
            return
        proposal = await self._queue.proposal(run.plan.run_id, run.admission.head)
        if proposal is not None and run.infra.holds(proposal.outcome):
            self.stop(
                Ending.PAUSED,
                f"{run.infra.length + 1} train positions in a row ended infra; {run.plan.run_id} stands before "
                f"position {proposal.position} ({proposal.empty_reason}), which was not committed",
            )

    async def _advance(self, run: DrivenRun) -> None:
        if run.finished or not run.admission.done:
            return
        if run.digest_before is None:
            run.digest_before = await self._bank.digest(run.plan.run_id)
        if run.owed or run.in_flight:
            return
        run.finished = True
        digest = await self._bank.digest(run.plan.run_id)
        if digest != run.digest_before:
            raise JournalError(f"run {run.plan.run_id}: the bank changed during eval, which must not happen (R5)")
        end = RunEnd(
            run_id=run.plan.run_id,
            version=run.admission.head,
            digest_before_eval=run.digest_before,
            digest_after_eval=digest,
        )
        await self._on_run_end(end)
        log.info("run.finished", run=run.plan.run_id, version=run.admission.head, digest=digest)
