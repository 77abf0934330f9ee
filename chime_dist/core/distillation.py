"""Memory from outcomes alone: what CHIME learns where no gate attributes anything (R44 no_gate).

Two parts replace the gate. One call distils an experience for each stage from the trajectory, and the outcome
itself is the attribution: it speaks for both stages, with full confidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.core.json_schema import bounded_text, closed
from chime_dist.core.memory import Stage
from chime_dist.core.reply import Fault, sole_object
from chime_dist.core.verdict import (
    EXPERIENCE_KEYS,
    Diagnosis,
    GateFault,
    GateLimits,
    Label,
    Verdict,
    no_decision,
    read_experience,
)


class OutcomeParams(Frozen):
    """How an outcome becomes memory. All of it is our reading [U]."""

    delta: Literal["success_only", "signed"] = "success_only"
    """Feedback to every retrieved memory: 1 after a success, and after a failure 0 or, ``signed``, -1."""
    merge: bool = False
    """Whether like scenarios become one memory (R30); by default the bank grows by two memories an episode."""
    novelty: bool = False
    """Whether what the bank nearly says already is discarded (R32)."""


def distillation_schema(limits: GateLimits) -> dict[str, Json]:
    """The JSON schema of the distiller's reply: a scenario and an experience for each stage."""
    texts = closed({"scenario": bounded_text(limits.scenario), "experience": bounded_text(limits.experience)})
    return closed({EXPERIENCE_KEYS[stage]: texts for stage in Stage})


def parse_distillation(
    text: str | None, finish_reason: str, retrieved_ids: Sequence[str], success: bool, params: OutcomeParams
) -> Verdict:
    """Read one reply of the distiller as the verdict that an outcome comes to; never raises.

    Which text is a reply at all says ``reply.sole_object``, as for the gate (R21). The label is both and the
    confidence 1, so that S0 Eq. 8 gives every retrieved memory the feedback of ``params.delta``; under ``signed``
    a failure finds all of them misleading. [U] As for the gate, no decision updates nothing, values included.
    """
    found = sole_object(text, finish_reason)
    if isinstance(found, Fault):
        return no_decision(found, text)
    experience = {}
    for stage, key in EXPERIENCE_KEYS.items():
        given = found.get(key)
        new = read_experience({**given, "actionable": True}) if isinstance(given, dict) else None
        if new is None:
            return no_decision(GateFault.BAD_EXPERIENCE, text)
        experience[stage] = new
    blamed = params.delta == "signed" and not success
    return Verdict(
        status="decided",
        diagnosis=Diagnosis(
            label=Label.BOTH,
            confidence=1.0,
            experience=experience,
            misleading=tuple(dict.fromkeys(retrieved_ids)) if blamed else (),
        ),
    )
