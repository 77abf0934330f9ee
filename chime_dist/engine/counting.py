"""What model calls used, added up by role on their way through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from chime_dist.core.episode import Role, Usage
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.core.spending import add_usage
from chime_dist.ports import Embedded, Models


class CountedModels:
    """``ports.Models`` that keeps count. A call that raises told nothing of its tokens and counts as none."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self.usage: dict[str, Usage] = {}
        """By role; a role that was never asked is absent."""

    async def turn(self, role: Role, turn: Turn, session_id: str, budget_s: float) -> ChatReply:
        """See ``ports.Models``."""
        reply = await self._models.turn(role, turn, session_id, budget_s)
        self._count(role, reply.usage)
        return reply

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> Embedded:
        """See ``ports.Models``; one call of the embedder, however many texts."""
        vectors = await self._models.embed(texts, kind)
        self._count(Role.EMBEDDER, Usage(calls=1, requests=1, prompt_tokens=vectors.prompt_tokens))
        return vectors

    async def probe(self, budget_s: float) -> None:
        """See ``ports.Models``; a probe serves no episode and is not counted."""
        await self._models.probe(budget_s)

    def _count(self, role: Role, usage: Usage) -> None:
        add_usage(self.usage, [(role.value, usage)])
