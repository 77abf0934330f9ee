"""CHIME's settings, and its seven ablations: one switch, translated once into what is left of the method (R44).

An ablation decides some options by itself, and others mean nothing under it. Setting either is a config error, so
that no two configs are one experiment; what it decides stands in the resolved options like any other value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from pydantic import Field, ValidationInfo, field_validator

from chime_dist.core.credit import EvolutionParams
from chime_dist.core.distillation import OutcomeParams
from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.core.memory import SEPARATE, Banks, Stage
from chime_dist.core.retrieval import RetrievalParams
from chime_dist.core.verdict import GateLimits

Ablation = Literal[
    "none",
    "no_plan_memory",
    "no_exec_memory",
    "no_memory",
    "no_hierarchy",
    "no_gate",
    "no_rerank",
    "no_evolution",
]

SHARED = "shared"
"""The one collection of both stages under no_hierarchy."""

_Section = TypeVar("_Section", bound=Frozen)


_SECTIONS: dict[str, type[Frozen]] = {
    "outcome": OutcomeParams,
    "retrieval": RetrievalParams,
    "evolution": EvolutionParams,
    "gate": GateLimits,
}


def _all(*sections: str) -> frozenset[str]:
    return frozenset(f"{section}.{name}" for section in sections for name in _SECTIONS[section].model_fields)


_MERGING = frozenset({"evolution.merge", "evolution.rewrite_scenario"})
_NOVELTY = frozenset({"evolution.addition_threshold"})


@dataclass(frozen=True, slots=True)
class Variant:
    """What a run of CHIME is made of. The defaults are CHIME; each ablation changes what its name says."""

    banks: Banks = field(default_factory=lambda: SEPARATE)
    """Which stages are read and written, and where."""
    reviewer: Literal["gate", "distiller"] | None = "gate"
    """Who looks back at a train episode: the gate attributes, the distiller only writes down."""
    decided: Mapping[str, Json] = field(default_factory=dict)
    """Values of options that follow from the switch, by ``SECTION.OPTION``."""
    idle: frozenset[str] = _all("outcome")
    """Options without an effect."""


_VARIANTS: dict[Ablation, Variant] = {
    "none": Variant(),
    "no_plan_memory": Variant(banks={Stage.EXEC: SEPARATE[Stage.EXEC]}),
    "no_exec_memory": Variant(banks={Stage.PLAN: SEPARATE[Stage.PLAN]}),
    "no_memory": Variant(banks={}, reviewer=None, idle=_all(*_SECTIONS)),
    "no_hierarchy": Variant(banks=dict.fromkeys(Stage, SHARED)),
    "no_rerank": Variant(
        decided={"retrieval.alpha": 0.0, "retrieval.near_tie": "off"},
        idle=_all("outcome") | {"retrieval.beta", "retrieval.smoothing", "retrieval.near_tie_margin"},
    ),
    "no_evolution": Variant(
        decided={
            "evolution.value_update": "off",
            "evolution.prune_threshold": -1.0,
            "evolution.merge_threshold": 1.0,
            "evolution.addition": "off",
        },
        idle=_all("outcome") | {"evolution.conf_gates_values", "evolution.prune_min_count"} | _MERGING | _NOVELTY,
    ),
}


def variant_of(ablation: Ablation, outcome: OutcomeParams) -> Variant:
    """What is left under the switch; ``outcome`` says more of it under no_gate and nothing under any other."""
    if ablation != "no_gate":
        return _VARIANTS[ablation]
    return Variant(
        reviewer="distiller",
        decided={
            "evolution.accept": "any",
            **({} if outcome.merge else {"evolution.merge_threshold": 1.0}),
            **({} if outcome.novelty else {"evolution.addition": "off"}),
        },
        idle=frozenset({"evolution.conf_threshold", "evolution.conf_gates_values", "gate.assessment"})
        | (frozenset() if outcome.merge else _MERGING)
        | (frozenset() if outcome.novelty else _NOVELTY),
    )


class ChimeOptions(Frozen):
    """CHIME's settings; defaults are Table 7 of S0."""

    ablation: Ablation = "none"
    """Table 2 of S0 (R44): the one thing that is taken away."""
    outcome: OutcomeParams = Field(default=OutcomeParams(), validate_default=True)
    """How an outcome becomes memory under no_gate."""
    retrieval: RetrievalParams = Field(default=RetrievalParams(), validate_default=True)
    """For both stages."""
    evolution: EvolutionParams = Field(default=EvolutionParams(), validate_default=True)
    gate: GateLimits = Field(default=GateLimits(), validate_default=True)
    """Bounds on the gate's texts, in characters."""

    @field_validator("outcome", "retrieval", "evolution", "gate")
    @classmethod
    def _settle(cls, section: _Section, info: ValidationInfo) -> _Section:
        """Take what the switch decides, and refuse what contradicts it or means nothing under it."""
        ablation = info.data.get("ablation")
        outcome = section if isinstance(section, OutcomeParams) else info.data.get("outcome")
        if ablation is None or outcome is None:
            return section
        variant = variant_of(ablation, outcome)
        decided = {}
        for name, option in type(section).model_fields.items():
            path, value = f"{info.field_name}.{name}", getattr(section, name)
            if path in variant.decided:
                decided[name] = variant.decided[path]
                if value not in (option.default, decided[name]):
                    raise ValueError(f"the ablation {ablation} sets {name} to {decided[name]}; leave {name} out")
            elif path in variant.idle and value != option.default:
                raise ValueError(f"{name} has no effect under the ablation {ablation}; leave it out")
        return section.model_copy(update=decided)
