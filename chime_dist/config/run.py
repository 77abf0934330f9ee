"""One run: everything that changes its results, and the name that follows from that."""

from __future__ import annotations

import re

from pydantic import Field

from chime_dist.config.models import BackboneModel, EmbedderModel
from chime_dist.config.policy import REPORTING_KEYS, EpisodePolicy, ProtocolSpec, RequestPolicy
from chime_dist.config.schema import Component, ConfigModel, RoleKey
from chime_dist.core.canonical import canonical_json, sha256_hex
from chime_dist.core.episode import Json, Role

DEFAULT_EPOCHS = 1
"""Passes where neither the config nor the benchmark says how many."""
GROWING_KEY = "epochs"
"""The key of the protocol that may grow on a resume: earlier positions do not depend on it."""


class RunConfig(ConfigModel):
    """Benchmark x method x backbone x ordering, with every option resolved and every default written out."""

    benchmark: Component
    method: Component
    backbone: BackboneModel
    """Serves every role that ``roles`` leaves out (R9)."""
    roles: dict[RoleKey, BackboneModel] = {}
    embedder: EmbedderModel = EmbedderModel()
    ordering: int = Field(ge=0)
    """0-based index of the random ordering (R4)."""
    protocol: ProtocolSpec = ProtocolSpec()
    requests: RequestPolicy = RequestPolicy()
    episode: EpisodePolicy = EpisodePolicy()
    fingerprints: dict[str, str] = {}
    """Hashes of what is not config: benchmark data, prompts, code."""

    def backbone_of(self, role: Role) -> BackboneModel:
        """The model that answers for ``role`` (R38)."""
        return self.roles.get(role, self.backbone)

    @property
    def epochs(self) -> int:
        """Passes over the train stream."""
        return self.protocol.epochs or DEFAULT_EPOCHS

    def identity(self) -> dict[str, Json]:
        """What the digest is taken of: all of the config but what lets the same run go on or be counted anew.

        Those are ``protocol.epochs`` (a longer run repeats the shorter one's positions) and the keys that only
        reports read.
        """
        dumped = self.model_dump(mode="json")
        for key in (GROWING_KEY, *REPORTING_KEYS):
            del dumped["protocol"][key]
        return dumped

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the identity's canonical JSON; defaults count as if written (R45)."""
        return sha256_hex(canonical_json(self.identity()))

    @property
    def run_id(self) -> str:
        """``BENCHMARK-METHOD-BACKBONE-oORDERING-XXXXXXXX``: lower case, safe in file names and Redis keys."""
        names = (self.benchmark.name, self.method.label, self.backbone.name)
        return "-".join([*map(_slug, names), f"o{self.ordering}", self.digest[:8]])


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9._]+", "_", name.lower())[:40].strip("._")
