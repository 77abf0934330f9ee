"""Making journal and file agree before a bank is opened, and finding what a launch still owes.

The journal in the queue's server and ``journal.jsonl`` in the run directory are two copies of one truth. After
a crash one may be ahead; if they differ in any shared line there is no truth left, and the launch is refused.
"""

from __future__ import annotations

from collections.abc import Set
from itertools import zip_longest

import structlog

from chime_dist import faults
from chime_dist.core.episode import Outcome
from chime_dist.core.journal import verified
from chime_dist.engine.plan import RunPlan
from chime_dist.errors import JournalError
from chime_dist.ports import Appended, Journal, Queue

log = structlog.get_logger()


async def reconcile(run_id: str, journal: Journal, mirror: Journal) -> int:
    """Bring ``journal`` and its file ``mirror`` to the same entries; returns the head.

    The longer one is right if the shorter is its prefix. Raises JournalError for a fork (it shows both lines'
    position), and for a damaged entry where one is to be extended: equal ones are verified by the bank's owner,
    which replays them next.
    """
    server, file = await journal.read(run_id), await mirror.read(run_id)
    for position, (ours, theirs) in enumerate(zip_longest(server, file)):
        if ours is not None and theirs is not None and ours != theirs:
            raise JournalError(
                f"run {run_id}: the queue's journal and the run directory's journal.jsonl differ at position "
                f"{position}; they come from different histories, as after a resume with another cluster.redis. "
                "Resume with the one that was used last; or, where the run directory is right, without what the "
                "other holds of this launch (its state directory or its keys), which is rebuilt then"
            )
    longer = server if len(server) >= len(file) else file
    if len(server) != len(file):
        for _ in verified(longer, f"journal of {run_id}"):
            pass
    faults.reached("resume.compared")
    if len(file) > len(server):
        await _extend(run_id, journal, file, len(server))
    elif len(server) > len(file):
        await _extend(run_id, mirror, server, len(file))
    return len(longer)


async def _extend(run_id: str, target: Journal, lines: list[str], start: int) -> None:
    fence = await target.take_fence(run_id)
    faults.reached("resume.fenced")
    for position in range(start, len(lines)):
        answer = await target.append(run_id, fence, position, lines[position])
        if answer not in (Appended.APPENDED, Appended.ALREADY_SAME):
            raise JournalError(f"run {run_id}: position {position} could not be restored: {answer.value}")
        faults.reached("resume.restored")
    log.warning("journal.extended", run=run_id, journal=type(target).__name__, start=start, head=len(lines))


def lost_rows(plan: RunPlan, head: int, empty: int, settled: Set[str]) -> str:
    """What is missing of committed positions, in words; empty where nothing is. Nothing will ever run them again.

    ``head`` positions are committed, ``empty`` of them as infra, which leaves no final record; ``settled`` are the
    keys of units that have one.
    """
    lost = [unit.position for unit in map(plan.train_unit, range(head)) if unit.key not in settled]
    if len(lost) <= empty:
        return ""
    return (
        f"{plan.run_id}: {head - empty} train positions were committed with an outcome, and episodes.jsonl has a"
        f" final row of {head - len(lost)}; the first without one is {lost[0]}. Restore the file from a backup, or"
        f" fork the run there: `ctl requeue --fork-at {lost[0]}`"
    )


async def drop_infra(queue: Queue, run_id: str, head: int, window: int) -> None:
    """Forget proposals of infra positions that are not committed yet: a resume tries them again."""
    for position in range(head, head + window):
        proposal = await queue.proposal(run_id, position)
        if proposal is not None and proposal.outcome is Outcome.INFRA:
            await queue.forget(run_id, position)
            log.info("position.owed_again", run=run_id, position=position, reason=proposal.empty_reason)
