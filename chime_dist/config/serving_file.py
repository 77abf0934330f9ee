"""One backbone of a sweep's file, for serving it without the sweep: ``chime-dist serve NAME FILE``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from chime_dist.config.cluster import ClusterConfig, with_environment
from chime_dist.config.document import Tree
from chime_dist.config.including import read_config
from chime_dist.config.interpolation import fill
from chime_dist.config.models import EMBEDDER_ENDPOINT, BackboneModel, EmbedderModel
from chime_dist.config.overrides import apply_overrides
from chime_dist.config.problems import refuse, suggestion
from chime_dist.config.schema import ConfigModel
from chime_dist.config.serving import VllmEndpoint
from chime_dist.config.validation import validated
from chime_dist.errors import ConfigError

_KEPT_OF_CLUSTER = ("ray", "runs_dir")
_MODELS = ("backbones", "embedder")


@dataclass(frozen=True, slots=True)
class ServedBackbone:
    """What is served, and where."""

    name: str
    model: str
    """What requests call it."""
    endpoint: VllmEndpoint
    cluster: ClusterConfig
    """Ray, the folder of results, and this endpoint; the rest of the file's cluster is left out."""


class _Models(ConfigModel):
    backbones: tuple[BackboneModel, ...] = Field(default=(), strict=False)
    embedder: EmbedderModel = EmbedderModel()

    def model_of(self, name: str) -> str | None:
        """What requests to the endpoint called ``name`` ask for; None where no model here is served there."""
        models = {backbone.name: backbone.model for backbone in self.backbones}
        return self.embedder.model if name == EMBEDDER_ENDPOINT else models.get(name)


def load_served(
    name: str, path: Path, overrides: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> ServedBackbone:
    """Read the backbone called ``name`` (or ``embedder``) from a sweep's file, or from one that holds nothing but
    its ``cluster``, and ``backbones`` where requests call the model otherwise.

    What the backbone does not need is not read: variables of other parts may be unset. Raises ConfigError.
    """
    document = apply_overrides(read_config(path), overrides)
    root: dict[str, Any] = document.root
    cluster = _mapping(root.get("cluster"))
    endpoints = _mapping(cluster.get("endpoints"))
    if name not in endpoints:
        known = suggestion(name, endpoints)
        raise ConfigError(f"{path}: no cluster.endpoints.{name} says how it is served; {known}")
    needed = {key: cluster[key] for key in _KEPT_OF_CLUSTER if key in cluster}
    needed["endpoints"] = {name: endpoints[name]}
    models = {key: root[key] for key in _MODELS if key in root}
    filled = fill(replace(document, root={"cluster": needed, **models}), environ)
    refuse(filled.problems)
    checked = validated(ClusterConfig, filled.root["cluster"], str(path), ("cluster",))
    endpoint = checked.endpoints[name]
    if not isinstance(endpoint, VllmEndpoint):
        raise ConfigError(
            f"{path}: cluster.endpoints.{name} is of kind {endpoint.kind!r}; only 'vllm' is ours to serve"
        )
    known_models = validated(_Models, {key: filled.root[key] for key in models}, str(path))
    model = known_models.model_of(name) or endpoint.model or name
    return ServedBackbone(name, model, endpoint, with_environment(checked, environ))


def _mapping(tree: Tree) -> dict[str, Any]:
    return tree if isinstance(tree, dict) else {}
