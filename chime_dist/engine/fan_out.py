"""Model calls that do not depend on each other, made at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable

from chime_dist.core.model_call import ChatReply


async def every(calls: Iterable[Awaitable[ChatReply]]) -> list[ChatReply]:
    """All replies in order. Raises the first failure in that order, and only once all calls have ended: which
    error counts, and what was asked before it, must not depend on timing."""
    replies: list[ChatReply] = []
    for ended in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended
        replies.append(ended)
    return replies
