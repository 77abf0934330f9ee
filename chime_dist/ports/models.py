"""Who is asked: backbones, and the models of a run by role."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from chime_dist.core.episode import Role
from chime_dist.core.model_call import ChatReply, ChatRequest, Turn
from chime_dist.ports.bank import Embedded


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

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> Embedded:
        """See Embedder."""
        ...

    async def probe(self, budget_s: float) -> None:
        """Every model of the run answers a small request; raises the BackboneError or EmbeddingError of one."""
        ...


class Pacer(Protocol):
    """Who may call one backbone now: its limits, and a pause that everybody keeps. See ``core.pacing``.

    No result depends on it, so it fails no call: where the others who keep it cannot be asked, it goes on without.
    """

    async def enter(self, call: str, tokens: int, lasts_s: float) -> float:
        """0 lets ``call`` in; anything else is how many seconds to wait before asking again.

        ``tokens`` is what its prompt is thought to cost; ``lasts_s`` after entering it stops counting as in
        flight. ``call`` is unique to an attempt.
        """
        ...

    async def leave(self, call: str, tokens_beyond: int, slow_down: float | None, *, answered: bool) -> None:
        """``call`` ended and cost so many tokens more than thought.

        ``slow_down`` is None unless the server asked everybody to wait: then the seconds it named, or 0.
        ``answered`` tells a reply from an end that says nothing about how busy the server is.
        """
        ...
