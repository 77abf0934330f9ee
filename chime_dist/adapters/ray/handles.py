"""Ports over actor handles: what a worker or the driver holds instead of the object itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ray.actor import ActorHandle

from chime_dist.adapters.ray.calls import called
from chime_dist.core.bank import BankState
from chime_dist.core.episode import EpisodeRecord, EpisodeTrace, Role, Unit
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.core.vector import Vector
from chime_dist.ports import BankQuery, Hit


class RayBank:
    """``ports.BankReader`` and ``engine.driver.BankControl`` over a BankActor."""

    def __init__(self, actor: ActorHandle[Any]) -> None:
        self._actor = actor

    async def search(self, query: BankQuery) -> list[Hit]:
        """See ``ports.BankReader``."""
        hits: list[Hit] = await called("the BankActor", lambda: self._actor.search.remote(query))
        return hits

    async def export(self, run_id: str, version: int) -> BankState:
        """See ``ports.BankReader``."""
        state: BankState = await called("the BankActor", lambda: self._actor.export.remote(run_id, version))
        return state

    async def digest(self, run_id: str) -> str:
        """See ``engine.driver.BankControl``."""
        digest: str = await called("the BankActor", lambda: self._actor.digest.remote(run_id))
        return digest

    async def serve(self) -> None:
        """Keep the owner committing; a restarted actor is told again. Raises what the owner raises."""
        await called("the BankActor", lambda: self._actor.serve.remote())


class RayModels:
    """``ports.Models`` over role actors and an EmbedderActor."""

    def __init__(self, roles: Mapping[Role, ActorHandle[Any]], embedder: ActorHandle[Any]) -> None:
        self._roles = roles
        self._embedder = embedder

    async def turn(self, role: Role, turn: Turn, session_id: str, budget_s: float) -> ChatReply:
        """See ``ports.Models``."""
        actor = self._roles[role]
        reply: ChatReply = await called(
            f"the {role.value} actor", lambda: actor.turn.remote(turn, session_id, budget_s)
        )
        return reply

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> list[Vector]:
        """See ``ports.Models``."""
        vectors: list[Vector] = await called(
            "the EmbedderActor", lambda: self._embedder.embed.remote(list(texts), kind)
        )
        return vectors


class RayRecords:
    """``ports.RecordStore`` over a RecordActor."""

    def __init__(self, actor: ActorHandle[Any]) -> None:
        self._actor = actor

    async def write(self, trace: EpisodeTrace) -> EpisodeTrace:
        """See ``ports.RecordStore``."""
        stored: EpisodeTrace = await called("the RecordActor", lambda: self._actor.write.remote(trace))
        return stored

    async def final(self, unit: Unit) -> EpisodeTrace | None:
        """See ``ports.RecordStore``."""
        trace: EpisodeTrace | None = await called("the RecordActor", lambda: self._actor.final.remote(unit))
        return trace

    async def finals(self, run_id: str) -> Mapping[str, EpisodeRecord]:
        """See ``ports.RecordStore``."""
        finals: Mapping[str, EpisodeRecord] = await called(
            "the RecordActor", lambda: self._actor.finals.remote(run_id)
        )
        return finals

    async def tally(self, run_id: str) -> Mapping[str, int]:
        """See ``ports.RecordStore``."""
        tally: Mapping[str, int] = await called("the RecordActor", lambda: self._actor.tally.remote(run_id))
        return tally
