"""A method's half of one commit, asked for and checked before the journal may see it.

What the journal holds it holds for ever. So an exception of the method's, an answer of another type than the
protocol says, and events that no bank could take all end as a MethodError that names the method, with nothing
committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from chime_dist.core.bank import BankState, Event, apply
from chime_dist.core.episode import Proposal
from chime_dist.core.journal import JournalEntry, content_hash
from chime_dist.engine.culprit import told
from chime_dist.errors import ChimeDistError, JournalError, MethodError
from chime_dist.ports import CommitReply, CommitRequest, Method, Models, Prepared

_T = TypeVar("_T")

_FIX = "Nothing of it was committed. Mend the method, then resume the launch"


class Committing:
    """What the method makes of one proposal. Everything raises MethodError where the method is broken."""

    def __init__(self, method: Method, dim: int, proposal: Proposal) -> None:
        """``dim``: components of the embedder's vectors."""
        self._method = method
        self._dim = dim
        self._proposal = proposal

    def prepared(self, head: BankState) -> Prepared:
        """See ``ports.Method.prepare``."""
        with self._blaming("prepare"):
            found = self._of_type(Prepared, self._method.prepare(head, self._proposal), "prepare")
            self._all_events(found.events, "prepare")
        return found

    async def answered(self, request: CommitRequest, models: Models, budget_s: float) -> CommitReply:
        """See ``ports.Method.answer``; raises what a failed model raises."""
        with self._blaming("answer"):
            return self._of_type(CommitReply, await self._method.answer(request, models, budget_s), "answer")

    async def fallen_back(self, request: CommitRequest, models: Models) -> CommitReply:
        """See ``ports.Method.fallback``; raises what a failed embedder raises."""
        with self._blaming("fallback"):
            return self._of_type(CommitReply, await self._method.fallback(request, models), "fallback")

    def finished(self, head: BankState, replies: Sequence[CommitReply]) -> tuple[Event, ...]:
        """See ``ports.Method.finish``."""
        with self._blaming("finish"):
            return self._all_events(self._method.finish(head, self._proposal, replies), "finish")

    def content_hash(self, previous: str, events: tuple[Event, ...]) -> str:
        """The entry's link of the content chain, after ``previous``."""
        proposal = self._proposal
        with self._blaming("what it gave to journal"):
            return content_hash(
                previous,
                position=proposal.position,
                task=proposal.task,
                outcome=proposal.outcome,
                diagnosis=proposal.diagnosis,
                events=events,
            )

    def applied(self, head: BankState, entry: JournalEntry) -> BankState:
        """The bank after the entry."""
        for event in entry.events:
            self._check(event)
        try:
            return apply(head, entry)
        except JournalError as error:
            raise self._refusal(f"made an event that cannot be applied: {error}") from None

    def _check(self, event: Event) -> None:
        what = f"event {event.kind!r} ({event.op})"
        known = self._method.collections.get(event.collection)
        if known is None:
            names = ", ".join(self._method.collections) or "none"
            raise self._refusal(f"made the {what} in collection {event.collection!r}; it declares {names}")
        for name, vector in (event.vectors or {}).items():
            if name not in known:
                raise self._refusal(
                    f"made the {what} with a vector {name!r}; {event.collection!r} declares {', '.join(known)}"
                )
            if vector.dim != self._dim:
                raise self._refusal(
                    f"made the {what} with a vector of {vector.dim} components; the embedder gives {self._dim}"
                )

    def _of_type(self, wanted: type[_T], found: object, asked: str) -> _T:
        if not isinstance(found, wanted):
            raise self._refusal(f"returned {type(found).__name__} from {asked}, not {wanted.__name__}")
        return found

    def _all_events(self, found: object, asked: str) -> tuple[Event, ...]:
        events = self._of_type(tuple, found, asked)
        for event in events:
            self._of_type(Event, event, f"{asked}, in its events")
        return events

    def _refusal(self, why: str) -> MethodError:
        place = f"{self._proposal.run_id}, position {self._proposal.position}"
        return MethodError(f"{place}: method {self._method.name!r} {why}. {_FIX}")

    @contextmanager
    def _blaming(self, asked: str) -> Iterator[None]:
        try:
            yield
        except (ChimeDistError, MemoryError):
            raise
        except Exception as error:
            raise self._refusal(f"failed in {asked}: {told(error, self._method)}") from error
