"""Ports over actor handles: what a worker or the driver holds instead of the object itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import ray
import structlog
from ray import ObjectRef
from ray.actor import ActorHandle

from chime_dist.adapters.ray.calls import called, kept_up
from chime_dist.adapters.ray.deaths import Life, killed_by_memory_monitor
from chime_dist.core.bank import BankState
from chime_dist.core.episode import EpisodeTrace, Role, Unit
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.engine.worker import Delivery
from chime_dist.ports import BankQuery, Embedded, EmbedderFingerprint, Hit

log = structlog.get_logger()

_WORKER = "a WorkerActor"


class RayBank:
    """``ports.BankReader`` and ``engine.driver.BankControl`` over the BankActor of this name."""

    def __init__(self, name: str) -> None:
        self._actor = ray.get_actor(name)

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
        await kept_up("the BankActor", self._actor.serve.remote)


class RayModels:
    """``ports.Models`` over the role actors and the EmbedderActor of these names."""

    def __init__(self, roles: Mapping[Role, str], embedder: str) -> None:
        self._roles: dict[Role, ActorHandle[Any]] = {role: ray.get_actor(name) for role, name in roles.items()}
        self._embedder = ray.get_actor(embedder)

    async def fingerprint(self) -> EmbedderFingerprint:
        """The embedder's; waits until its model is loaded."""
        found: EmbedderFingerprint = await called("the EmbedderActor", self._embedder.fingerprint.remote)
        return found

    async def turn(self, role: Role, turn: Turn, session_id: str, budget_s: float) -> ChatReply:
        """See ``ports.Models``."""
        actor = self._roles[role]
        reply: ChatReply = await called(
            f"the {role.value} actor", lambda: actor.turn.remote(turn, session_id, budget_s)
        )
        return reply

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> Embedded:
        """See ``ports.Models``."""
        vectors: Embedded = await called(
            "the EmbedderActor", lambda: self._embedder.embed.remote(list(texts), kind)
        )
        return vectors

    async def probe(self, budget_s: float) -> None:
        """See ``ports.Models``."""

        async def asked(actor: ActorHandle[Any]) -> None:
            await called("a role actor", lambda: actor.probe.remote(budget_s))

        await asyncio.gather(*map(asked, self._roles.values()), self.embed(["probe"], "query"))


class RayRecords:
    """``ports.RecordStore`` over the RecordActor of this name."""

    def __init__(self, name: str) -> None:
        self._actor = ray.get_actor(name)

    async def write(self, trace: EpisodeTrace) -> EpisodeTrace:
        """See ``ports.RecordStore``."""
        stored: EpisodeTrace = await called("the RecordActor", lambda: self._actor.write.remote(trace))
        return stored

    async def final(self, unit: Unit) -> EpisodeTrace | None:
        """See ``ports.RecordStore``."""
        trace: EpisodeTrace | None = await called("the RecordActor", lambda: self._actor.final.remote(unit))
        return trace

    async def settled(self, run_id: str) -> frozenset[str]:
        """See ``ports.RecordStore``."""
        settled: frozenset[str] = await called("the RecordActor", lambda: self._actor.settled.remote(run_id))
        return settled

    async def tally(self, run_id: str) -> Mapping[str, int]:
        """See ``ports.RecordStore``."""
        tally: Mapping[str, int] = await called("the RecordActor", lambda: self._actor.tally.remote(run_id))
        return tally


class RayWorkers:
    """The WorkerActors of one launch, as the driver sees them: kept up, and told how the others died."""

    def __init__(
        self,
        actors: Mapping[str, Callable[[], str]],
        held: Callable[[str], Awaitable[frozenset[Delivery]]],
    ) -> None:
        """``actors``: by name, what gives each of an actor's processes the name under which it claims. ``held``
        returns the deliveries that the queue has under such a name."""
        self._actors = {ray.get_actor(name): named for name, named in actors.items()}
        self._held = held
        self._out_of_memory: frozenset[Delivery] = frozenset()

    async def run(self) -> None:
        """Work until stopped; a restarted actor is told again. Raises what a worker raises, the first."""
        tasks = [asyncio.create_task(self._keep_up(actor, named)) for actor, named in self._actors.items()]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Claim no more."""
        await asyncio.gather(*(called(_WORKER, actor.stop.remote) for actor in self._actors))

    async def _keep_up(self, actor: ActorHandle[Any], named: Callable[[], str]) -> None:
        consumer = ""
        life: asyncio.Task[Life] | None = None

        def begin() -> ObjectRef[Any]:
            nonlocal consumer, life
            consumer = named()
            running: ObjectRef[Any] = actor.run.remote(consumer, self._out_of_memory)
            life = asyncio.create_task(called(_WORKER, actor.life.remote))
            return running

        async def died() -> None:
            assert life is not None
            if life.done() and not life.cancelled() and life.exception() is None:
                await self._judge(actor, life.result(), consumer)
            else:
                life.cancel()

        await kept_up(_WORKER, begin, died)

    async def _judge(self, actor: ActorHandle[Any], life: Life, consumer: str) -> None:
        """Find out whether that process died for want of memory, and if so tell every worker what it held."""
        # Before anything slow: what it held is its own only until the leases run out.
        held = await self._held(consumer)
        if not await killed_by_memory_monitor(life):
            successor: Life = await called(_WORKER, actor.life.remote)
            if not life.ended_by_kernel(successor):
                return
        log.warning("worker.out_of_memory", worker=consumer, units=sorted(unit for unit, _ in held))
        self._out_of_memory |= held

        async def tell(other: ActorHandle[Any]) -> None:
            await called(_WORKER, lambda: other.tell.remote(self._out_of_memory))

        await asyncio.gather(*map(tell, self._actors))
