"""One model turn of one role: render, call, normalise. What a role's actor does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from chime_dist.core.episode import Role
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.core.vector import Vector
from chime_dist.engine.prompting import PromptLibrary
from chime_dist.ports import Backbone, Embedder


class RoleRunner:
    """A role bound to a backbone. Holds no episode state, so all runs can share it."""

    def __init__(self, role: Role, backbone: Backbone, prompts: PromptLibrary, max_output_tokens: int) -> None:
        self._role = role
        self._backbone = backbone
        self._prompts = prompts
        self._max_output_tokens = max_output_tokens

    async def turn(self, turn: Turn, session_id: str, budget_s: float) -> ChatReply:
        """See ``ports.Models.turn``."""
        request = self._prompts.render(turn, session_id)
        limit = min(request.max_tokens or self._max_output_tokens, self._max_output_tokens)
        return await self._backbone.complete(request.model_copy(update={"max_tokens": limit}), budget_s)

    async def close(self) -> None:
        """Release the backbone's connections."""
        await self._backbone.close()


class RunModels:
    """``ports.Models`` of one run inside one process."""

    def __init__(self, roles: Mapping[Role, RoleRunner], embedder: Embedder) -> None:
        self._roles = roles
        self._embedder = embedder

    async def turn(self, role: Role, turn: Turn, session_id: str, budget_s: float) -> ChatReply:
        """See ``ports.Models``."""
        return await self._roles[role].turn(turn, session_id, budget_s)

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> list[Vector]:
        """See ``ports.Models``."""
        return await self._embedder.embed(texts, kind)
