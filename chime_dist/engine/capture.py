"""Keeping the model turns of one attempt, word for word, where a launch asks for that."""

from __future__ import annotations

from collections.abc import Callable

from chime_dist.core.captured import captured
from chime_dist.core.episode import Json, Role
from chime_dist.core.model_call import ChatReply, ChatRequest, Turn
from chime_dist.errors import BackboneError


class Capture:
    """The turns of one attempt and of its gate."""

    def __init__(self, hide: Callable[[str], str]) -> None:
        """``hide`` takes known secrets out of a text, and changes nothing else (H6)."""
        self._hide = hide
        self._calls: list[dict[str, Json]] = []

    @property
    def calls(self) -> tuple[dict[str, Json], ...]:
        """See ``EpisodeTrace.calls``."""
        return tuple(self._calls)

    def replied(self, role: Role, turn: Turn, reply: ChatReply) -> ChatReply:
        """Keep a turn that was answered; returns the answer without what was sent."""
        answer = reply.model_copy(update={"sent": None})
        self._keep(role, turn, reply.sent, answer, "")
        return answer

    def failed(self, role: Role, turn: Turn, error: BackboneError) -> None:
        """Keep a turn that failed for good."""
        self._keep(role, turn, error.sent, None, str(error))

    def _keep(self, role: Role, turn: Turn, sent: object, reply: ChatReply | None, error: str) -> None:
        request = sent if isinstance(sent, ChatRequest) else None
        call = captured(role.value, turn.template, request, reply, error, self._hide)
        self._calls.append(call.model_dump(mode="json"))
