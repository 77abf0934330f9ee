"""What a launch's ``sweep.json`` holds, where a test does not care what that is."""

from __future__ import annotations

from chime_dist.adapters.directory.launch_directory import RunEntry
from chime_dist.config.cluster import ClusterConfig, ScriptedEndpoint
from chime_dist.config.models import BackboneModel
from chime_dist.config.run import RunConfig
from chime_dist.config.schema import Component
from chime_dist.config.sweep import SweepConfig
from chime_dist.core.episode import Json

_COMPONENT = Component(name="toy")
_MODEL = BackboneModel(name="m", model="m")

CONFIG: dict[str, Json] = SweepConfig(
    name="stored",
    benchmarks=(_COMPONENT,),
    methods=(_COMPONENT,),
    backbones=(_MODEL,),
    cluster=ClusterConfig(endpoints={"m": ScriptedEndpoint(kind="scripted")}),
).model_dump(mode="json")
"""Of a sweep."""

ENTRY = RunEntry(
    config=RunConfig(benchmark=_COMPONENT, method=_COMPONENT, backbone=_MODEL, ordering=0).model_dump(mode="json"),
    ordering="ab12",
    train_size=7,
    epochs=2,
    window=3,
    eval_size=3,
    stateful=True,
)
"""Of a run."""
