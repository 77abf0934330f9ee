"""Outcome-based evolution (S0 section 5, RQ2): CHIME under no_gate, by the name of what it stands for."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from chime_dist.core.frozen import Frozen
from chime_dist.methods.chime.method import Chime
from chime_dist.methods.chime.options import ChimeOptions


class UmemOutcomeOptions(ChimeOptions):
    """CHIME's settings with the switch set."""

    ablation: Literal["no_gate"] = Field(default="no_gate", exclude=True)


class UmemOutcome(Chime):
    """The same prompts, calls and events as CHIME under no_gate."""

    Options: ClassVar[type[Frozen]] = UmemOutcomeOptions
    name = "umem_outcome"
