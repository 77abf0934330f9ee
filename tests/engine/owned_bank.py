"""A bank with its real owner, whose commits a test writes down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.directory.file_journal import FileJournal
from chime_dist.adapters.embedding.hashing import HashingEmbedder
from chime_dist.adapters.local.change_feed import ChangeFeed
from chime_dist.adapters.local.queue import LocalQueue
from chime_dist.core.bank import BankState, Event
from chime_dist.core.episode import Outcome, Proposal
from chime_dist.engine.lane import Lane, LaneServices
from chime_dist.engine.outage import Outages
from chime_dist.engine.roles import RunModels
from chime_dist.methods.no_plan.method import NoPlan, NoPlanOptions
from chime_dist.ports import BankStore, Method, Models, Prepared

LAUNCH, RUN = "launch", "run"
DIM = 8


class Dictated(NoPlan):
    """A method whose commit at each position is what ``commits`` says."""

    collections: Mapping[str, tuple[str, ...]] = {"plan": ("c", "e"), "exec": ("c", "e")}

    def __init__(self, commits: Sequence[Sequence[Event]]) -> None:
        super().__init__(NoPlanOptions())
        self._commits = commits

    def prepare(self, state: BankState, proposal: Proposal) -> Prepared:
        """See ``ports.Method``."""
        return Prepared(events=tuple(self._commits[proposal.position]))


class OwnedBank:
    """Owners of one run's bank, one after the other, over one journal."""

    def __init__(
        self,
        folder: Path,
        commits: Sequence[Sequence[Event]],
        window: int,
        pinned: frozenset[int] = frozenset(),
        *,
        method: Method | None = None,
        models: Models | None = None,
    ) -> None:
        """``method`` is another than ``Dictated``, ``models`` what its commits ask."""
        self._clock = SystemClock()
        feed = ChangeFeed(self._clock)
        self.journal = FileJournal(lambda run_id: folder / run_id, feed)
        self.queue = LocalQueue(self._clock, feed, 60.0)
        self._method = method or Dictated(commits)
        self._models = models or RunModels({}, HashingEmbedder(DIM))
        self._window = window
        self._pinned = pinned

    async def lane(self, store: BankStore) -> Lane:
        """A new owner's lane, opened: the next fence, the journal replayed into ``store``."""
        fingerprint = HashingEmbedder(DIM).fingerprint
        services = LaneServices(self._method, self._models, fingerprint, self._window, 3, 60.0, self._pinned)
        outages = Outages(self._clock, 60.0)
        lane = Lane(LAUNCH, RUN, services, self.queue, self.journal, store, self._clock, outages)
        await lane.open()
        return lane

    async def commit(self, lane: Lane, upto: int) -> None:
        """Commit every position below ``upto``, as episodes would have proposed them."""
        for position in range(lane.head.version, upto):
            await self.queue.submit(proposal(position))
            await lane.commit_ready()
            await lane.compact_when_due()


def proposal(position: int) -> Proposal:
    """Of a success at the position, as an episode makes it."""
    return Proposal(
        run_id=RUN,
        position=position,
        task=f"task {position}",
        attempt=f"{position:032x}",
        read_version=0,
        outcome=Outcome.SUCCESS,
        diagnosis=None,
        content={},
    )
