"""One POST of JSON to a model's server, over aiohttp: what the clients of chats and of embeddings have in common.

Connecting, waiting and the body are under a single wall-clock timeout: a dripping server cannot stretch it (A7).
Nothing of a request enters an error, because it holds prompts and keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime

import aiohttp
from pydantic import SecretStr

from chime_dist.core.chat_reply import classify_failure
from chime_dist.core.retry import retry_after_seconds
from chime_dist.errors import BackboneError


def secret_values(api_key: SecretStr | None, headers: Mapping[str, SecretStr]) -> tuple[str, ...]:
    """Every secret that requests carry, for redaction."""
    held = [*([api_key] if api_key is not None else []), *headers.values()]
    return tuple(value for secret in held if (value := secret.get_secret_value()))


def open_session(
    api_key: SecretStr | None,
    headers: Mapping[str, SecretStr],
    *,
    connect_timeout_s: float,
    trust_env: bool,
    connector: aiohttp.TCPConnector | None = None,
) -> aiohttp.ClientSession:
    """A session whose requests carry ``headers``, and ``api_key`` as a bearer token; it keeps no cookies.

    ``connect_timeout_s`` bounds one TCP connection attempt, in seconds.
    """
    named = {"Content-Type": "application/json", "Accept": "application/json"}
    named |= {name: value.get_secret_value() for name, value in headers.items()}
    if api_key is not None:
        named["Authorization"] = f"Bearer {api_key.get_secret_value()}"
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=named,
        trust_env=trust_env,
    )


async def posted(
    session: aiohttp.ClientSession,
    url: str,
    body: bytes,
    *,
    timeout_s: float,
    most_bytes: int,
    now: Callable[[], datetime],
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """The body of a reply with status 200, of at most ``most_bytes`` after decompression.

    Redirects are not followed: a POST would become a GET. ``now`` is what a Retry-After date counts from. Raises
    BackboneError: ``unreachable``, ``timeout`` (without a status), ``server_error`` for a reply that is too large,
    and for any other status what ``classify_failure`` makes of it.
    """
    try:
        async with (
            asyncio.timeout(timeout_s),
            session.post(url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            content = await _read(response, most_bytes)
    except aiohttp.ServerTimeoutError:
        raise BackboneError("no connection in time", "unreachable", retriable=True) from None
    except TimeoutError:
        raise BackboneError(f"no complete reply within {timeout_s:g} s", "timeout", retriable=True) from None
    except (aiohttp.ClientError, OSError) as error:
        # The error's own text may show request headers; its type says what happened.
        message = f"the connection failed ({_reason(error)})"
        raise BackboneError(message, "unreachable", retriable=True) from None
    if response.status == 200:
        return content
    wait = retry_after_seconds(response.headers.get("Retry-After"), now())
    raise classify_failure(response.status, content, wait)


def _reason(error: aiohttp.ClientError | OSError) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its host has no known address"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionRefusedError):
        return "refused: nothing listens there"
    return type(error).__name__


async def _read(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > most_bytes:
            raise BackboneError(f"the reply exceeds {most_bytes} bytes", "server_error", response.status)
    return bytes(content)
