"""The embedder of a launch, built from its config."""

from __future__ import annotations

from pydantic import SecretStr

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.embedding.caching import CachingEmbedder
from chime_dist.adapters.embedding.hashing import HashingEmbedder
from chime_dist.adapters.embedding.http import HttpEmbedder, HttpEmbedderSettings
from chime_dist.adapters.embedding.sentence import SentenceEmbedder, SentenceEmbedderSettings
from chime_dist.config.cluster import HttpEndpoint
from chime_dist.config.models import EMBEDDER_ENDPOINT, EmbedderModel
from chime_dist.config.serving import VllmEndpoint
from chime_dist.errors import ConfigError
from chime_dist.ports import Embedder
from chime_dist.wiring.services import LaunchSpec


async def embedder(spec: LaunchSpec) -> Embedder:
    """The launch's embedder, loaded. Raises MissingExtraError, ConfigError."""
    model = spec.embedder
    if model.kind == "hashing":
        return CachingEmbedder(HashingEmbedder(model.dim))
    if model.kind == "http":
        return CachingEmbedder(_http_embedder(spec, model))
    loaded = await SentenceEmbedder.load(
        SentenceEmbedderSettings(model=model.model, query_prompt=model.query_prompt, max_tokens=model.max_length)
    )
    if loaded.fingerprint.dim != model.dim:
        raise ConfigError(
            f"embedder.dim is {model.dim}, but {model.model} gives {loaded.fingerprint.dim} components: "
            f"set embedder.dim to {loaded.fingerprint.dim}"
        )
    return CachingEmbedder(loaded)


def _http_embedder(spec: LaunchSpec, model: EmbedderModel) -> HttpEmbedder:
    endpoint = spec.cluster.endpoints.get(EMBEDDER_ENDPOINT)
    if not isinstance(endpoint, HttpEndpoint | VllmEndpoint):
        raise ConfigError(
            f"embedder.kind is 'http': cluster.endpoints.{EMBEDDER_ENDPOINT} must be the url of its server, or of "
            "kind vllm with runner: pooling"
        )
    remote = endpoint if isinstance(endpoint, HttpEndpoint) else None
    key = remote.api_key if remote else None
    headers = remote.headers if remote else {}
    run = next(iter(spec.runs.values()))
    settings = HttpEmbedderSettings(
        base_url=remote.url.reveal() if remote else spec.served[EMBEDDER_ENDPOINT],
        model=model.model,
        dim=model.dim,
        query_prompt=model.query_prompt,
        api_key=SecretStr(key.reveal()) if key is not None else None,
        headers={name: SecretStr(value.reveal()) for name, value in headers.items()},
        batch_size=model.batch_size,
        max_tokens=model.max_length,
        budget_s=run.episode.deadline_s,
        retry=run.requests,
    )
    return HttpEmbedder(settings, SystemClock())
