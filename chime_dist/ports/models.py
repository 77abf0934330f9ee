"""Who is asked: backbones, and the models of a run by role."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from chime_dist.core.episode import Role
from chime_dist.core.model_call import ChatReply, ChatRequest, Turn
from chime_dist.core.vector import Vector


class Backbone(Protocol):
    """A model behind an OpenAI-compatible URL, or a double that ships in the package."""

    async def complete(self, request: ChatRequest, budget_s: float) -> ChatReply:
        """One completion within ``budget_s`` seconds of wall clock, retries and waits included (R37).

        Raises BackboneError.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class Models(Protocol):
    """The models of one run by role, wherever their actors are."""

    async def turn(self, role: Role, turn: Turn, session_id: str, budget_s: float) -> ChatReply:
        """Render, call, normalise. Raises BackboneError."""
        ...

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> list[Vector]:
        """See Embedder."""
        ...

    async def probe(self, budget_s: float) -> None:
        """Every model of the run answers a small request; raises the BackboneError or EmbeddingError of one."""
        ...
