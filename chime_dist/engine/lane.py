"""The lane of one run: its commits, serialized and in position order, and its reads at pinned versions.

A lane takes a new fence, replays the journal, and rebuilds the projection in a namespace of that fence. Then,
for the position at the head: prepare (pure), answer what it asks, finish (pure), append to the journal, apply,
project. The journal's answer decides: nothing is applied or shown that the journal did not accept.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass

import structlog

from chime_dist import faults
from chime_dist.core.bank import BankState, Event, apply, as_of
from chime_dist.core.episode import Proposal
from chime_dist.core.journal import GENESIS, JournalEntry, verified
from chime_dist.core.window import InfraStreak
from chime_dist.engine.bank_answers import answer
from chime_dist.engine.commits import Committing
from chime_dist.engine.counting import CountedModels
from chime_dist.engine.meters import Meters
from chime_dist.engine.metrics import COMMIT_SECONDS
from chime_dist.engine.outage import Outages
from chime_dist.errors import BackboneError, EmbeddingError, FencedError, JournalError, ServiceError
from chime_dist.ports import (
    Appended,
    BankQuery,
    BankStore,
    Clock,
    CommitReply,
    CommitRequest,
    EmbedderFingerprint,
    Hit,
    Journal,
    Method,
    Models,
    Namespace,
    Queue,
)

log = structlog.get_logger()

ANSWER_ATTEMPTS = 3
"""How often a commit asks a model that is up before the method's fallback counts."""
READ_WAIT_S = 60.0
"""Longest wait of a read for the commit it was promised, in seconds."""
COMPACT_EVERY = 64
"""Commits between two compactions of a projection."""


@dataclass(frozen=True, slots=True)
class LaneServices:
    """What the lane of one run needs of that run."""

    method: Method
    models: Models
    fingerprint: EmbedderFingerprint
    window: int
    """W of R7: the position at the head may read the version ``window - 1`` commits back, and no later one reads
    further back."""
    hold_after_infra: int
    """The infra position that would be this many in a row is held back: something is wrong, a person decides."""
    answer_budget_s: float
    """Wall-clock seconds for one model request at a commit."""
    pinned: frozenset[int] = frozenset()
    """Versions that can be read however far the head is: checkpoints, and what eval is pinned to."""


class Lane:
    """The ordered commits of one run, and its states."""

    def __init__(
        self,
        launch: str,
        run_id: str,
        services: LaneServices,
        queue: Queue,
        journal: Journal,
        store: BankStore,
        clock: Clock,
        outages: Outages,
        meters: Meters | None = None,
    ) -> None:
        self._outages = outages
        self._meters = meters
        self._launch = launch
        self._run_id = run_id
        self._services = services
        self._queue = queue
        self._journal = journal
        self._store = store
        self._clock = clock
        self._namespace = Namespace(launch=launch, run_id=run_id, fence=0)
        self._states = {0: BankState()}
        """What may still be read, the head too, without the matrices that the head carries from commit to commit:
        searches go to the store, and a matrix per version would be the bank once more per version."""
        self._head = BankState()
        self._content_hash = GENESIS
        self._infra = InfraStreak(services.hold_after_infra)
        self._projected_from = 0
        """The oldest version, beside pinned ones, that this owner's projection ever held."""
        self._compacted = 0
        """The head at the last compaction."""
        self._reading = Counter[int]()
        """Searches that are under way, by version: no compaction removes what they look for."""
        self._readable = 0
        """The newest one. The journal tells the driver of a commit before the store has it, so reads may wait."""
        self._news = asyncio.Condition()
        self._commits = asyncio.Lock()

    @property
    def head(self) -> BankState:
        """The newest committed state."""
        return self._head

    @property
    def fence(self) -> int:
        """The fence that this owner took; 0 before ``open``."""
        return self._namespace.fence

    async def open(self) -> None:
        """Take a fence, replay and project. Raises JournalError for a damaged journal."""
        fence = await self._journal.take_fence(self._run_id)
        self._namespace = Namespace(launch=self._launch, run_id=self._run_id, fence=fence)
        await self._store.open(self._namespace, self._services.fingerprint)
        lines = await self._journal.read(self._run_id)
        self._projected_from = max(0, len(lines) - self._services.window + 1)
        projected = BankState()
        for entry in verified(lines, f"journal of {self._run_id}"):
            self._advance(apply(self._head, entry), entry)
            if self._stays(self._head.version, self._projected_from):
                await self._store.project(self._namespace, self._head.version, projected, self._head)
                projected = self._head
        self._readable = self._compacted = self._head.version
        if self._head.version:
            # An owner that dies between an append and its clearing up leaves that one proposal behind.
            await self._queue.forget(self._run_id, self._head.version - 1)
        log.info(
            "bank.opened", run=self._run_id, fence=fence, version=self._head.version, items=len(self._head.records)
        )

    async def commit_ready(self) -> int:
        """Commit every proposal that is next in order; returns how many. Serialized.

        Stops before the infra position that ``hold_after_infra`` holds back. Raises FencedError when a newer owner
        exists and JournalError where the journal disagrees.
        """
        async with self._commits:
            count = 0
            while (proposal := await self._queue.proposal(self._run_id, self._head.version)) is not None:
                if self._infra.holds(proposal.outcome):
                    break
                with self._meters.timed(COMMIT_SECONDS, self._run_id) if self._meters else nullcontext():
                    await self._commit(proposal)
                count += 1
            return count

    async def search(self, query: BankQuery) -> list[Hit]:
        """See ``ports.BankReader``: the store proposes, the journal's vectors decide."""
        state = await self.state(query.version)
        if not self._stays(query.version, self._oldest_read):
            return await asyncio.to_thread(answer, state, query)
        self._reading[query.version] += 1
        try:
            return answer(state, query, await self._candidates(query))
        finally:
            self._reading -= Counter((query.version,))

    async def _candidates(self, query: BankQuery) -> list[str]:
        return await self._store.candidates(
            self._namespace,
            query.version,
            query.collection,
            query.vector_name,
            query.vector,
            query.limit + len(query.withheld),
            query.min_similarity,
        )

    @property
    def _oldest_read(self) -> int:
        """The oldest version that the head's position, or a later one, may read (R7), if the store has it."""
        return max(self._projected_from, self._head.version - self._services.window + 1)

    def _stays(self, version: int, oldest: int) -> bool:
        return version >= oldest or version in self._services.pinned

    async def compact_when_due(self) -> None:
        """Every ``COMPACT_EVERY`` commits have the store drop what no read can see any more. Not serialized with
        ``commit_ready``: the store keeps its writes apart.

        A store that cannot do it now is asked again after as many commits.
        """
        head = self._readable
        if head - self._compacted < COMPACT_EVERY:
            return
        self._compacted = head
        window = range(self._oldest_read, head + 1)
        keep = {*window, *self._services.pinned, *self._reading}
        try:
            await self._store.compact(self._namespace, sorted(keep))
        except ServiceError as error:
            log.warning("bank.compaction_failed", run=self._run_id, version=head, reason=str(error))
        else:
            log.info("bank.compacted", run=self._run_id, version=head, kept=len(keep), states=len(self._states))

    async def state(self, version: int) -> BankState:
        """The bank at ``version``; replays the journal for one that is no longer kept.

        Raises ServiceError for a version that does not come within ``READ_WAIT_S``.
        """
        async with self._news:
            try:
                async with asyncio.timeout(READ_WAIT_S):
                    await self._news.wait_for(lambda: self._readable >= version)
            except TimeoutError:
                raise ServiceError(
                    f"run {self._run_id}: version {version} was not committed here within {READ_WAIT_S:.0f} s; "
                    f"this owner is at {self._readable}"
                ) from None
        if version in self._states:
            return self._states[version]
        lines = (await self._journal.read(self._run_id))[:version]
        return as_of(verified(lines, f"journal of {self._run_id}"), version)

    async def _commit(self, proposal: Proposal) -> None:
        committing = Committing(self._services.method, self._services.fingerprint.dim, proposal)
        entry = await self._entry(proposal, committing)
        # Before the append: what the journal holds it holds for ever, also an entry that no bank can take.
        before, line = self._head, entry.line()
        after = committing.applied(before, entry)
        faults.reached("bank.committing")
        answer = await self._journal.append(self._run_id, self._namespace.fence, entry.position, line)
        if answer is Appended.FENCED:
            raise FencedError(
                f"run {self._run_id}: a newer owner than fence {self._namespace.fence} holds the bank"
            )
        if answer is Appended.CONFLICT:
            raise JournalError(
                f"run {self._run_id}: position {entry.position} is already committed with other content; "
                "two owners wrote to one journal"
            )
        faults.reached("bank.appended")
        self._advance(after, entry)
        await self._store.project(self._namespace, self._head.version, before, self._head)
        faults.reached("bank.projected")
        async with self._news:
            self._readable = self._head.version
            self._news.notify_all()
        await self._queue.forget(self._run_id, entry.position)
        faults.reached("bank.forgot")
        log.info(
            "bank.committed",
            run=self._run_id,
            version=self._head.version,
            events=len(entry.events),
            empty=entry.empty_reason,
            items=len(self._head.records),
        )

    async def _entry(self, proposal: Proposal, committing: Committing) -> JournalEntry:
        if proposal.position != self._head.version:
            raise JournalError(
                f"run {self._run_id}: a proposal for position {proposal.position} lies at {self._head.version}"
            )
        # Anew for every commit, and in the entry alone: what an owner used that dies before its append is known to
        # nobody, so a commit that another one does again counts once.
        models = CountedModels(self._services.models)
        events = () if proposal.empty_reason else await self._events(committing, models)
        return JournalEntry(
            position=proposal.position,
            task=proposal.task,
            outcome=proposal.outcome,
            diagnosis=proposal.diagnosis,
            events=events,
            content_hash=committing.content_hash(self._content_hash, events),
            run_id=self._run_id,
            fence=self._namespace.fence,
            attempt=proposal.attempt,
            read_version=proposal.read_version,
            committed_at=self._clock.now().isoformat(),
            empty_reason=proposal.empty_reason,
            usage=models.usage,
        )

    async def _events(self, committing: Committing, models: Models) -> tuple[Event, ...]:
        prepared = committing.prepared(self._head)
        if not prepared.requests:
            return prepared.events
        answers = (self._answer(committing, request, models) for request in prepared.requests)
        replies = await asyncio.gather(*answers)
        return committing.finished(self._head, replies)

    async def _answer(self, committing: Committing, request: CommitRequest, models: Models) -> CommitReply:
        """The method's answer; an outage is waited out, and only a model that is up can be given up on."""
        attempts = 0
        while attempts < ANSWER_ATTEMPTS:
            attempts += 1
            try:
                return await committing.answered(request, models, self._services.answer_budget_s)
            except (BackboneError, EmbeddingError) as error:
                log.warning("commit.request_failed", run=self._run_id, kind=request.kind, reason=str(error))
                if await self._outages.waited_out(self._run_id, models):
                    attempts = 0
        return await committing.fallen_back(request, models)

    def _advance(self, state: BankState, entry: JournalEntry) -> None:
        self._states[state.version] = BankState(state.version, state.records)
        left = state.version - self._services.window
        if left not in self._services.pinned:
            self._states.pop(left, None)
        self._head = state
        self._content_hash = entry.content_hash
        self._infra = self._infra.then(entry.outcome)
