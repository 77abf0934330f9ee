"""A set of runs as people write it: lists of benchmarks, methods, backbones and orderings, and one cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from chime_dist.config.cluster import ClusterConfig
from chime_dist.config.models import EMBEDDER_ENDPOINT, BackboneModel, EmbedderModel
from chime_dist.config.policy import EpisodePolicy, ProtocolSpec, RequestPolicy, deadline_warning
from chime_dist.config.problems import KeyPath, suggestion
from chime_dist.config.schema import Component, ConfigModel, RoleKey
from chime_dist.core.episode import Role

SweepName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]
"""A folder's name: ASCII letters, digits and ``_.-``."""


class SweepConfig(ConfigModel):
    """Every benchmark with every method, backbone and ordering (R4, R43)."""

    name: SweepName
    benchmarks: tuple[Component, ...] = Field(min_length=1, strict=False)
    methods: tuple[Component, ...] = Field(min_length=1, strict=False)
    backbones: tuple[BackboneModel, ...] = Field(min_length=1, strict=False)
    orderings: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(0, 1, 2), min_length=1, strict=False)
    """0-based indexes of random orderings; Avg@3 is three of them (R4)."""
    roles: dict[RoleKey, BackboneModel] = {}
    """Roles that have a model of their own, the same in all runs (R38)."""
    embedder: EmbedderModel = EmbedderModel()
    protocol: ProtocolSpec = ProtocolSpec()
    requests: RequestPolicy = RequestPolicy()
    episode: EpisodePolicy = EpisodePolicy()
    cluster: ClusterConfig = ClusterConfig()

    @model_validator(mode="after")
    def _check(self) -> SweepConfig:
        if Role.EMBEDDER in self.roles:
            raise ValueError("roles.embedder: the embedder is not a backbone; write it under 'embedder'")
        if twice := _doubled(list(self.orderings)):
            raise ValueError(f"orderings: {', '.join(twice)} is listed twice; keep one")
        if twice := _doubled([backbone.name for backbone in self.backbones]):
            raise ValueError(f"backbones: {', '.join(twice)} is listed twice; give each a name of its own")
        _known("cluster.benchmark_caps", self.cluster.benchmark_caps, [part.name for part in self.benchmarks])
        _known("cluster.backbone_caps", self.cluster.backbone_caps, [model.name for model in self.backbones])
        models = {model.name: model for model in self.backbones}
        for role, model in self.roles.items():
            if models.setdefault(model.name, model) != model:
                raise ValueError(
                    f"roles.{role.value}: {model.name!r} is set up in two ways; two set-ups need two names"
                )
        return self

    def missing_endpoints(self) -> dict[KeyPath, str]:
        """Endpoint names that ``cluster.endpoints`` lacks, by the key path of the model that needs each."""
        needed: dict[KeyPath, str] = {("backbones", i): backbone.name for i, backbone in enumerate(self.backbones)}
        needed |= {("roles", role.value): model.name for role, model in self.roles.items()}
        if self.embedder.kind == "http":
            needed["embedder",] = EMBEDDER_ENDPOINT
        return {path: name for path, name in needed.items() if name not in self.cluster.endpoints}

    def unpriced_endpoints(self) -> list[str]:
        """Endpoints without a price although ``cluster.limits.cost`` needs it of every model that is asked."""
        if self.cluster.limits.cost is None:
            return []
        asked = dict.fromkeys(model.name for model in (*self.backbones, *self.roles.values()))
        if self.embedder.kind == "http":
            asked[EMBEDDER_ENDPOINT] = None
        return [name for name in asked if name in self.cluster.endpoints and name not in self.cluster.prices]

    def warnings(self) -> list[str]:
        """What is allowed and may surprise, in words. The window is compared with the train size later, when
        the benchmark's tasks are known (``policy.window_warning``)."""
        found = [
            f"cluster.{path} is written out, so it is not stored and a resume will ask for it; use ${{NAME}}"
            for path in self.cluster.written_out_secrets()
        ]
        # The paper's own figures exceed its deadline; that is worth a line only to who changed one of them.
        own = self.requests != RequestPolicy() or self.episode != EpisodePolicy()
        bounded = deadline_warning(self.requests, self.episode) if own else None
        return [bounded, *found] if bounded is not None else found


def _known(place: str, caps: Iterable[str], names: list[str]) -> None:
    for name in caps:
        if name not in names:
            raise ValueError(f"{place}: {name!r} is not in this sweep; {suggestion(name, names)}")


def _doubled(names: list[str] | list[int]) -> list[str]:
    return [str(name) for name, count in Counter(names).items() if count > 1]
