"""Making journal and file agree before a bank is opened, and finding what a launch still owes.

The journal in the queue's server and ``journal.jsonl`` in the run directory are two copies of one truth. After
a crash one may be ahead; if they differ in any shared line there is no truth left, and the launch is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import zip_longest

import structlog

from chime_dist import faults
from chime_dist.core.episode import unit_key
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


def lost_rows(plan: RunPlan, head: int, empty: Set[int], settled: Set[str]) -> list[int]:
    """Committed positions that have an outcome and no final row of their attempt, in order. Nothing will ever run
    them again.

    ``head`` positions are committed, those of ``empty`` as infra; ``settled`` are the keys of units with a final
    row that counts.
    """
    return [
        position
        for position in range(head)
        if position not in empty and unit_key(plan.run_id, "train", 0, position) not in settled
    ]


def lost_words(run_id: str, lost: Sequence[int], scored: int) -> str:
    """The ``lost`` of ``scored`` positions that were committed with an outcome, and what can be done."""
    return (
        f"{run_id}: {scored} train positions were committed with an outcome, and episodes.jsonl has a"
        f" final row of {scored - len(lost)}; the first without one is {lost[0]}. Restore the file from a backup,"
        f" or fork the run there: `ctl requeue --fork-at {lost[0]}`"
    )


async def drop_unbacked(queue: Queue, run_id: str, head: int, window: int, attempts: Mapping[int, str]) -> None:
    """Forget proposals that are not committed yet and have no row in the run directory: they are run again.

    ``attempts`` are those of final rows at positions from ``head`` on. A worker stores its row before it
    completes, so a proposal of any other attempt comes from a directory that is not this one (a copy of it that
    was resumed, this one before a backup was put back), or ended infra, which a resume tries again. Were it
    committed, the row would be one attempt's and what the bank learnt another's.
    """
    for position in range(head, head + window):
        proposal = await queue.proposal(run_id, position)
        if proposal is not None and proposal.attempt != attempts.get(position):
            await queue.forget(run_id, position)
            log.info(
                "position.owed_again",
                run=run_id,
                position=position,
                attempt=proposal.attempt,
                reason=proposal.empty_reason,
            )
