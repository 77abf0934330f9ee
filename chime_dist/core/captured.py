"""What was said to a model and what it said, word for word, for whoever wants to read prompts. Pure.

It is kept only where a launch asks for it: prompts are large. Known secrets are taken out; nothing else is
changed, unless a call is so long that its longest texts have to be cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.core.model_call import ChatReply, ChatRequest

LONGEST_CALL = 2**20
"""Characters of the texts of one call that are kept; R36's longest prompt has about as many."""


class CapturedCall(Frozen):
    """One model turn: the request as it was rendered, and the reply as it was read."""

    role: str
    template: str
    request: ChatRequest | None
    """None where the turn failed before there was one."""
    reply: ChatReply | None
    """None where the turn failed."""
    error: str = ""
    cut: int = 0
    """Characters that were left out of the longest texts; each says how many of them are missing."""


class CapturedEpisode(Frozen):
    """Every model turn of one attempt, in the order in which they ended, the gate's last."""

    attempt: str
    calls: tuple[CapturedCall, ...]


def captured(
    role: str,
    template: str,
    request: ChatRequest | None,
    reply: ChatReply | None,
    error: str,
    hide: Callable[[str], str],
    longest: int = LONGEST_CALL,
) -> CapturedCall:
    """A call with its texts passed through ``hide``, then cut where they are longer than ``longest`` together."""
    said = request.model_dump(mode="json") if request is not None else None
    answered = reply.model_dump(mode="json") if reply is not None else None
    texts: Json = _mapped([said, answered, error], hide)
    lengths = list(_lengths(texts))
    each = longest
    while sum(min(length, each) for length in lengths) > longest:
        each //= 2
    left_out = sum(max(0, length - each) for length in lengths)
    if left_out:
        texts = _mapped(texts, lambda text: _shortened(text, each))
    said, answered, error = texts
    return CapturedCall(
        role=role,
        template=template,
        request=said and ChatRequest.model_validate(said),
        reply=answered and ChatReply.model_validate(answered),
        error=error,
        cut=left_out,
    )


def _lengths(value: Any) -> Iterator[int]:
    if isinstance(value, str):
        yield len(value)
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _lengths(inner)


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text) - longest} more characters)"


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The same value with every text in it changed; keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [_mapped(inner, change) for inner in value]
    return value
