"""An embedder behind an OpenAI-compatible ``/embeddings`` endpoint, over aiohttp.

Texts go out in batches, one after the other; each batch is a loop of attempts under ``core.retry``. Servers that
compute batches together may give a text other last bits in other company; inside a process the first vector wins
(``CachingEmbedder``), across processes the journal.

``ports.Embedder`` has no end of life, so connections live as long as one ``embed`` call. Texts and keys never
enter a log event or an error.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Literal

import aiohttp
import numpy as np
import structlog
from pydantic import Field, SecretStr, field_validator

from chime_dist.adapters.json_post import open_session, posted, secret_values
from chime_dist.core.canonical import sha256_hex
from chime_dist.core.chat_reply import usage_of
from chime_dist.core.deadline import Deadline
from chime_dist.core.embedding import embeddable_all, embedded
from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.core.retry import Attempt, GiveUp, RetryPolicy
from chime_dist.core.text import is_visible, whole_characters
from chime_dist.core.trimming import first_tokens
from chime_dist.core.vector import Vector
from chime_dist.errors import BackboneError, EmbeddingError
from chime_dist.ports import Clock, Embedded, EmbedderFingerprint

log = structlog.get_logger()


class HttpEmbedderSettings(Frozen):
    """Where an embedding model is and how it is spoken to."""

    base_url: str
    """Up to and without ``/embeddings``, e.g. ``http://host:8000/v1``."""
    model: str
    """The model name the server knows."""
    dim: int = Field(ge=1)
    """Components of a vector; any other number is refused."""
    query_prompt: str = ""
    """Put before queries, never before stored texts (F1)."""
    api_key: SecretStr | None = None
    """Sent as a bearer token."""
    headers: dict[str, SecretStr] = {}
    """Additional request headers; their values are treated as secrets."""
    batch_size: int = Field(default=16, ge=1)
    """Most texts in one request (R11)."""
    max_tokens: int = Field(default=16_384, ge=1)
    """[U] Longer texts are cut (R11), prompt included, as ``core.trimming.estimated_tokens`` counts: of a server's
    own tokenizer no more is known than that it refuses."""
    budget_s: float = Field(default=3600.0, gt=0)
    """Wall clock of one ``embed`` call, all batches, retries and waits included, in seconds."""
    retry: RetryPolicy = RetryPolicy()
    connect_timeout_s: float = Field(default=30.0, gt=0)
    """Limit for one TCP connection attempt, in seconds."""
    max_response_bytes: int = Field(default=32 * 1024 * 1024, ge=1)
    """Larger replies (after decompression) are refused."""
    trust_env: bool = False
    """Whether proxy settings of the environment are used."""

    @field_validator("base_url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError("base_url must start with http:// or https://")
        return value.rstrip("/")

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value, for redaction."""
        return secret_values(self.api_key, self.headers)


class HttpEmbedder:
    """Implements ``ports.Embedder``. ``uniform`` draws the retry jitter from [0, 1).

    ``truncated`` counts texts that were cut (F5).
    """

    def __init__(
        self, settings: HttpEmbedderSettings, clock: Clock, uniform: Callable[[], float] = random.random
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._uniform = uniform
        self._url = f"{settings.base_url}/embeddings"
        self._fingerprint = EmbedderFingerprint(
            model=settings.model, dim=settings.dim, query_prompt=settings.query_prompt
        )
        self.truncated = 0

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """The server's name of the model; where it is served is no part of it."""
        return self._fingerprint

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> Embedded:
        """One vector per text, in order, with the tokens that the server says it read.

        Raises EmbeddingError: a text that cannot be embedded, a request that failed for good or ran out of
        ``budget_s``, a reply without exactly one finite vector of ``dim`` components for each text.
        """
        prompt = self._fingerprint.query_prompt if kind == "query" else ""
        ready = [self._cut(prompt + text) for text in embeddable_all(texts)]
        deadline = Deadline.after(self._settings.budget_s, self._clock.monotonic)
        parts: list[Embedded] = []
        if ready:
            settings = self._settings
            async with open_session(
                settings.api_key,
                settings.headers,
                connect_timeout_s=settings.connect_timeout_s,
                trust_env=settings.trust_env,
            ) as session:
                for start in range(0, len(ready), settings.batch_size):
                    batch = ready[start : start + settings.batch_size]
                    parts.append(await self._embedded(session, batch, start, deadline))
        return _joined(parts)

    async def _embedded(
        self, session: aiohttp.ClientSession, batch: Sequence[str], start: int, deadline: Deadline
    ) -> Embedded:
        """The vectors of one batch; ``start`` is the 0-based index of its first text.

        Where the server finds it too long, its texts are asked for one by one, and one that is too long by itself
        loses its second half: what is left of a text does not depend on its company.
        """
        try:
            content = await self._posted(session, batch, deadline)
        except BackboneError as error:
            if len(batch) > 1:
                each = [
                    await self._embedded(session, [text], index, deadline)
                    for index, text in enumerate(batch, start)
                ]
                return _joined(each)
            half = batch[0][: len(batch[0]) // 2]
            if not is_visible(half):
                raise self._failed(error, 1) from None
            self._note_truncation(batch[0], half)
            return await self._embedded(session, [half], start, deadline)
        return self._read(content, len(batch), start)

    def _cut(self, text: str) -> str:
        kept = first_tokens(text, self._settings.max_tokens)
        if len(kept) < len(text):
            self._note_truncation(text, kept)
        return kept

    def _note_truncation(self, text: str, kept: str) -> None:
        self.truncated += 1
        log.warning(
            "embedding.truncated", text_sha256=sha256_hex(text), characters=len(text), kept_characters=len(kept)
        )

    async def _posted(self, session: aiohttp.ClientSession, batch: Sequence[str], deadline: Deadline) -> bytes:
        """The body of a reply with status 200. Raises BackboneError ``context_overflow`` where it is too long."""
        policy, failures = self._settings.retry, 0
        last = BackboneError(f"no reply within {self._settings.budget_s:g} s", "budget")
        while True:
            attempt = policy.attempt(deadline.remaining_s)
            if isinstance(attempt, GiveUp):
                raise self._failed(last, failures)
            try:
                return await self._attempt(session, batch, attempt)
            except BackboneError as error:
                if error.code == "context_overflow":
                    raise
                failures, last = failures + 1, error
            then = policy.after_failure(
                failures,
                retriable=last.retriable,
                retry_after_s=last.retry_after_s,
                remaining_s=deadline.remaining_s,
                u=self._uniform(),
            )
            if isinstance(then, GiveUp):
                raise self._failed(last, failures)
            log.warning(
                "embedding.retrying",
                model=self._settings.model,
                code=last.code,
                status=last.status,
                failures=failures,
                wait_s=round(then.seconds, 3),
            )
            await self._clock.sleep(then.seconds)

    async def _attempt(self, session: aiohttp.ClientSession, batch: Sequence[str], attempt: Attempt) -> bytes:
        body = json.dumps({"model": self._settings.model, "input": list(batch)}, ensure_ascii=False)
        return await posted(
            session,
            self._url,
            body.encode(),
            timeout_s=attempt.timeout_s,
            most_bytes=self._settings.max_response_bytes,
            now=self._clock.now,
        )

    def _read(self, content: bytes, count: int, start: int) -> Embedded:
        """The vectors of one reply; ``start`` is the 0-based index of the batch's first text."""
        try:
            payload = _payload(content)
            rows = _rows(payload, count)
        except EmbeddingError as error:
            raise EmbeddingError(f"{self._settings.model}: {error}") from None
        vectors = Embedded(prompt_tokens=usage_of(payload).prompt_tokens)
        for index, row in enumerate(rows, start):
            try:
                vectors.append(_vector(row, self._settings.dim))
            except EmbeddingError as error:
                raise EmbeddingError(f"{self._settings.model}, text {index}: {error}") from None
        return vectors

    def _failed(self, error: BackboneError, failures: int) -> EmbeddingError:
        log.warning(
            "embedding.failed",
            model=self._settings.model,
            code=error.code,
            status=error.status,
            failures=failures,
        )
        message = f"{self._settings.model}: {error} (after {failures} failed requests)"
        for secret in self._settings.secrets:
            message = message.replace(secret, "***")
        return EmbeddingError(message)


def _joined(parts: Sequence[Embedded]) -> Embedded:
    return Embedded(chain.from_iterable(parts), sum(part.prompt_tokens for part in parts))


def _payload(content: bytes) -> dict[str, Json]:
    try:
        payload = json.loads(content)
    except (ValueError, RecursionError):
        raise EmbeddingError("the reply is not JSON") from None
    return payload if isinstance(payload, dict) else {}


def _rows(payload: dict[str, Json], count: int) -> list[Json]:
    """What the reply holds for each of ``count`` texts, in the order of their ``index``."""
    items = payload.get("data")
    if not isinstance(items, list):
        raise EmbeddingError("the reply holds no list 'data'")
    rows: dict[int, Json] = {}
    for item in items:
        index = item.get("index") if isinstance(item, dict) else None
        if not isinstance(index, int) or index in rows or not 0 <= index < count:
            raise EmbeddingError(
                f"the reply holds an entry with index {whole_characters(str(index))[:20]!r} for {count} texts"
            )
        rows[index] = item.get("embedding")
    missing = [index for index in range(count) if index not in rows]
    if missing:
        raise EmbeddingError(f"the reply lacks entries for {len(missing)} of {count} texts (first: {missing[0]})")
    return [rows[index] for index in range(count)]


def _vector(row: Json, dim: int) -> Vector:
    try:
        values = np.array(row)
    except ValueError:
        raise EmbeddingError("the embedding is not one list of numbers") from None
    if values.dtype.kind not in "fiu":
        raise EmbeddingError("the embedding is not one list of numbers")
    if values.ndim == 1 and values.shape != (dim,):
        raise EmbeddingError(
            f"the server gives {values.shape[0]} components, expected {dim}: set embedder.dim to {values.shape[0]}"
        )
    return embedded(values, dim)
