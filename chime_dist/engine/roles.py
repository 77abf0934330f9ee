"""One model turn of one role: render, call, normalise. What a role's actor does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Literal

import structlog

from chime_dist.config.models import BackboneModel
from chime_dist.core.chat_reply import tokens_too_many
from chime_dist.core.deadline import Deadline
from chime_dist.core.episode import Role
from chime_dist.core.model_call import ChatReply, ChatRequest, Turn
from chime_dist.core.trimming import estimated_tokens, without, without_half
from chime_dist.engine.meters import Meters
from chime_dist.engine.metrics import MODEL_ERRORS, TURN_SECONDS
from chime_dist.engine.prompting import PromptLibrary
from chime_dist.errors import BackboneError
from chime_dist.ports import Backbone, Embedded, Embedder

log = structlog.get_logger()


class RoleRunner:
    """A role bound to a backbone. Holds no episode state, so all runs can share it."""

    def __init__(
        self,
        role: Role,
        model: BackboneModel,
        backbone: Backbone,
        prompts: PromptLibrary,
        meters: Meters | None = None,
        captures: bool = False,
    ) -> None:
        """``captures``: bring back what was sent, with every reply and every error."""
        self._role = role
        self._model = model
        self._backbone = backbone
        self._prompts = prompts
        self._meters = meters
        self._captures = captures

    async def turn(self, turn: Turn, session_id: str, budget_s: float) -> ChatReply:
        """See ``ports.Models.turn``; gathered where there are meters."""
        if self._meters is None:
            return await self._turned(turn, session_id, budget_s)
        labels = (self._role.value, self._model.name)
        try:
            with self._meters.timed(TURN_SECONDS, *labels):
                return await self._turned(turn, session_id, budget_s)
        except BackboneError as error:
            self._meters.add(MODEL_ERRORS, *labels, error.code)
            raise

    async def _turned(self, turn: Turn, session_id: str, budget_s: float) -> ChatReply:
        """A prompt that is too long loses its oldest observations (R36): by our
        estimate before it is sent, by the server's word after it refused; ``usage.left_out`` counts them."""
        request, left_out = self._request(turn, session_id), 0
        beyond = estimated_tokens(request.messages, request.tools) - self._model.max_input_tokens
        trimmed = without(turn, beyond) if beyond > 0 else None
        deadline = Deadline.after(budget_s, time.monotonic)
        while True:
            if trimmed is not None:
                turn, left_out = trimmed.turn, left_out + trimmed.left_out
                request = self._request(turn, session_id)
                log.warning("prompt.trimmed", role=self._role.value, session=session_id, left_out=left_out)
            try:
                reply = await self._backbone.complete(request, deadline.remaining_s)
            except BackboneError as error:
                error.sent = request if self._captures else None
                if error.code != "context_overflow":
                    raise
                too_many = tokens_too_many(error.message, request.max_tokens or 0)
                trimmed = without_half(turn) if too_many is None else without(turn, too_many)
                if trimmed is None:
                    raise
            else:
                usage = reply.usage.model_copy(update={"left_out": left_out}) if left_out else reply.usage
                sent = request if self._captures else None
                return reply.model_copy(update={"usage": usage, "sent": sent}) if left_out or sent else reply

    def _request(self, turn: Turn, session_id: str) -> ChatRequest:
        return ChatRequest(
            messages=self._prompts.render(turn),
            tools=turn.tools,
            response_schema=turn.response_schema,
            schema_name=turn.schema_name,
            temperature=self._model.temperature if turn.temperature is None else turn.temperature,
            max_tokens=self._model.output_limit(self._role, turn.max_tokens),
            session_id=session_id,
        )

    async def probe(self, budget_s: float) -> None:
        """One token, as proof that the backbone completes (A9); raises BackboneError."""
        await self._backbone.complete(ChatRequest.one_token("probe", paced=False), budget_s)

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

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> Embedded:
        """See ``ports.Models``."""
        return await self._embedder.embed(texts, kind)

    async def probe(self, budget_s: float) -> None:
        """See ``ports.Models``."""
        # Roles on one backbone share a runner only by chance, so several may ask it; a token each is cheap.
        runners = {id(runner): runner for runner in self._roles.values()}.values()
        await asyncio.gather(*(runner.probe(budget_s) for runner in runners), self.embed(["probe"], "query"))
