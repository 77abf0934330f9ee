"""What the requests of a commit used is in the journal, once, whoever failed on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from chime_dist.adapters.local.memory_store import MemoryStore
from chime_dist.core.bank import BankState, Event
from chime_dist.core.episode import Proposal, Role, Usage
from chime_dist.core.journal import usage_in, verified
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.core.vector import Vector
from chime_dist.engine.lane import ANSWER_ATTEMPTS
from chime_dist.errors import EmbeddingError
from chime_dist.ports import CommitReply, CommitRequest, Embedded, Models, Prepared
from tests.engine.owned_bank import DIM, RUN, Dictated, OwnedBank, proposal

TURN = Usage(calls=1, requests=2, prompt_tokens=10, completion_tokens=3)
TOLD = 7
"""Tokens of an embedding."""


class Asking(Dictated):
    """Every commit asks the gate and then the embedder; of the second position it asks nothing."""

    def prepare(self, state: BankState, proposal: Proposal) -> Prepared:
        """See ``ports.Method``."""
        return Prepared() if proposal.position == 1 else Prepared(requests=(CommitRequest(key="k", kind="merge"),))

    async def answer(self, request: CommitRequest, models: Models, budget_s: float) -> CommitReply:
        """See ``ports.Method``."""
        await models.turn(Role.GATE, Turn(template="merge"), "merge:0-0", budget_s)
        return await self.fallback(request, models)

    async def fallback(self, request: CommitRequest, models: Models) -> CommitReply:
        """See ``ports.Method``."""
        await models.embed(["both"], "document")
        return CommitReply(key=request.key)

    def finish(self, state: BankState, proposal: Proposal, replies: Sequence[CommitReply]) -> tuple[Event, ...]:
        """See ``ports.Method``."""
        return ()


class Failing:
    """Implements ``ports.Models``: so many embeddings fail before the others succeed."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.asked = asyncio.Event()
        """The embedder was."""
        self.held: asyncio.Event | None = None
        """What an embedding waits for."""

    async def turn(self, role: Role, turn: Turn, session_id: str, budget_s: float) -> ChatReply:
        """See ``ports.Models``."""
        return ChatReply(text="", usage=TURN)

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> Embedded:
        """See ``ports.Models``."""
        self.asked.set()
        if self.held is not None:
            await self.held.wait()
        if self.failures:
            self.failures -= 1
            raise EmbeddingError("not now")
        return Embedded([Vector.of([1.0] * DIM)], TOLD)

    async def probe(self, budget_s: float) -> None:
        """They are up."""


async def used(bank: OwnedBank) -> list[dict[str, Usage]]:
    """By entry; read in both ways."""
    lines = await bank.journal.read(RUN)
    entries = [entry.usage for entry in verified(lines, "journal")]
    assert [usage_in(line.encode()) for line in lines] == entries
    return entries


def spent(turns: int) -> dict[str, Usage]:
    """Of a commit that asked the gate so often, and whose embedder answered once."""
    embedder = Usage(calls=1, requests=1, prompt_tokens=TOLD)
    return {"gate": sum([TURN] * turns, Usage()), "embedder": embedder}


async def test_an_entry_says_what_its_commit_used_with_attempts_that_failed(tmp_path: Path) -> None:
    """A turn that was answered is paid for, also where the embedder failed behind it."""
    bank = OwnedBank(tmp_path, [], 4, method=Asking([]), models=(models := Failing(1)))
    await bank.commit(lane := await bank.lane(MemoryStore()), 2)
    models.failures = ANSWER_ATTEMPTS
    await bank.commit(lane, 3)
    assert await used(bank) == [spent(2), {}, spent(ANSWER_ATTEMPTS)], "and the fallback, which asks no gate"


async def test_a_commit_that_another_owner_did_again_counts_once(tmp_path: Path) -> None:
    """C1: an owner that dies before its append takes what it used along; the journal has one entry."""
    bank = OwnedBank(tmp_path, [], 4, method=Asking([]), models=(models := Failing()))
    models.held = asyncio.Event()
    first = await bank.lane(MemoryStore())
    await bank.queue.submit(proposal(0))
    dying = asyncio.create_task(first.commit_ready())
    await models.asked.wait()
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    models.held = None
    await bank.commit(await bank.lane(MemoryStore()), 1)
    assert await used(bank) == [spent(1)]
