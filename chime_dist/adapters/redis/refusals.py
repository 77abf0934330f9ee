"""What an error of Redis means for a launch: whether asking again may help, and what to do where it cannot."""

from __future__ import annotations

import re
from collections.abc import Iterator

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ConnectionError,
    InvalidResponse,
    NoPermissionError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from chime_dist.adapters.redis.tls import tls_refusal

# Redis puts a script's own error into a sentence of its own, so errors are told by what they contain.
LOST = ("CHIMELOST", "NOGROUP", "UNBLOCKED")
"""The launch's keys are gone, or what a blocked reader waited for."""

REPLACED = ("CHIMETURN",)
"""Another driver has begun a turn of the launch."""

_FULL = ("OOM",)
# The last is how Redis 6.2 says it of a command inside a script.
_FORBIDDEN = ("NOPERM", "ACL failure", "can't run this command", "can't access at least one of the keys")
_COMMAND = re.compile(r"'([a-z|]+)' command", re.IGNORECASE)
_URL = "CHIME_REDIS_URL (or cluster.redis.url)"


def transient(error: Exception) -> bool:
    """Whether the same command may succeed a moment later."""
    if isinstance(error, ConnectionError | TimeoutError):
        return not any(isinstance(e, _UNWELCOME) or tls_refusal(e) for e in _chain(error))
    return says(error, _FULL)


def says(error: Exception, marks: tuple[str, ...]) -> bool:
    """Whether the server's answer contains one of the marks."""
    return isinstance(error, ResponseError) and any(mark in str(error) for mark in marks)


def explained(error: RedisError, tls: bool) -> str:
    """What happened and what to do, in sentences; no credentials in it. ``tls``: whether we speak TLS."""
    for e in _chain(error):
        if refusal := tls_refusal(e):
            return ". ".join(refusal)
        if isinstance(e, _UNWELCOME):
            return _sentences(str(e), _login_fix(str(e)))
    text = str(error)
    if says(error, LOST):
        text = "the launch's keys are gone, or were never made (FLUSHALL, eviction, another server, no reset)"
        fix = "Check the server, then resume the launch: the run directory holds every finished episode"
    elif says(error, REPLACED):
        text = "another driver has started a turn of this launch"
        fix = "Leave the launch to it"
    elif says(error, _FULL):
        fix = "Raise its maxmemory (CONFIG SET maxmemory), then resume the launch"
    elif forbidden(error):
        fix = _permission_fix(text)
    elif isinstance(error, InvalidResponse):
        text = f"the answer is not Redis's protocol ({text})"
        fix = f"Check the port; where it speaks TLS, write rediss:// in {_URL}"
    elif tls:
        # A server that speaks in the clear waits for the rest of what it takes for a command.
        fix = "Check the server, the network, and that this port speaks TLS, then resume the launch"
    else:
        fix = "Check the server and the network, then resume the launch"
    return _sentences(text, fix)


def _sentences(text: str, fix: str) -> str:
    text = text.rstrip(". ")
    return f"{text}{'' if text.endswith('?') else '.'} {fix}"


def forbidden(error: Exception) -> bool:
    """Whether the user that we are may not do this."""
    return isinstance(error, NoPermissionError) or says(error, _FORBIDDEN)


_UNWELCOME = (AuthenticationError, AuthorizationError)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from: redis-py wraps what the socket and the handshake raise."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _login_fix(text: str) -> str:
    if "required" in text.lower():
        return f"Put the user and its password into {_URL}: redis://USER:PASSWORD@HOST:PORT"
    return f"Check user and password in the Redis URL: {_URL}"


def _permission_fix(text: str) -> str:
    if "key" in text:
        missing = "its keys: ~chime:*"
    elif found := _COMMAND.search(text):
        missing = f"the command: +{found[1].lower()}"
    else:
        missing = "the commands of our scripts"
    return f"Allow the Redis user {missing} (ACL SETUSER; deploy/redis.conf has the rules that a launch needs)"
