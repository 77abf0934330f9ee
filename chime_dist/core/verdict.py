"""From the credit attribution gate's reply to a diagnosis, or to no decision (R18 to R23, S0 Eq. 6 and 7)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from pydantic import Field

from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.core.json_schema import bounded_text, closed
from chime_dist.core.memory import Stage
from chime_dist.core.reply import Fault, confidence, excerpt, flag, sole_object, word


class Label(StrEnum):
    """The attribution label a of S0 Eq. 6. On success it names the stage credited, on failure the one at fault."""

    PLANNING = "planning"
    EXECUTION = "execution"
    BOTH = "both"
    NONE = "none"


_ATTRIBUTED: dict[Label, tuple[Stage, ...]] = {
    Label.PLANNING: (Stage.PLAN,),
    Label.EXECUTION: (Stage.EXEC,),
    Label.BOTH: (Stage.PLAN, Stage.EXEC),
    Label.NONE: (),
}


def attributed(label: Label) -> tuple[Stage, ...]:
    """L(a) of S0 Eq. 7 (R22), plan before exec."""
    return _ATTRIBUTED[label]


class NewExperience(Frozen):
    """What the gate would remember for one stage."""

    scenario: str
    """c_new: the tasks to which it applies."""
    experience: str
    """e_new: what to do there."""
    actionable: bool
    """The gate's own word that the content can be acted on (R29)."""

    def joined(self, other: NewExperience) -> NewExperience:
        """Both as one, under this one's scenario; what both say is said once."""
        same = self.experience == other.experience
        return NewExperience(
            scenario=self.scenario,
            experience=self.experience if same else f"{self.experience}\n{other.experience}",
            actionable=self.actionable and other.actionable,
        )


class Assessment(Frozen):
    """What the gate judged, in its words (R18). Free text for people: no label is ever read from it (B5)."""

    plan: str = ""
    execution: str = ""
    external: str = ""


class Diagnosis(Frozen):
    """g of S0 Eq. 6."""

    label: Label
    confidence: float = Field(ge=0.0, le=1.0)
    """gamma, the magnitude of every value feedback of the episode (R24)."""
    experience: dict[Stage, NewExperience] = {}
    """By attributed stage; a stage without an entry has nothing to remember."""
    misleading: tuple[str, ...] = ()
    """Ids of retrieved memories, in retrieval order."""
    assessment: Assessment = Assessment()


EXPERIENCE_KEYS = {stage: f"{stage.value}_experience" for stage in Stage}
"""The reply's key for each stage's experience."""


class GateFault(StrEnum):
    """What is wrong with an object that is no verdict."""

    BAD_LABEL = "bad_label"
    """The label is missing or outside the closed list (B5)."""
    BAD_CONFIDENCE = "bad_confidence"
    """The confidence is missing, not finite, or out of range (B3, B4, R21)."""
    BAD_EXPERIENCE = "bad_experience"
    """An attributed stage's experience is not {scenario, experience, actionable}."""
    BAD_MISLEADING = "bad_misleading"
    """The misleading ids are not a list."""


class Verdict(Frozen):
    """What became of one reply of the gate. ``gate_error`` is not the label none: nothing may be updated (R21)."""

    status: Literal["decided", "gate_error"]
    diagnosis: Diagnosis | None = None
    """Set exactly when decided."""
    dropped_ids: tuple[str, ...] = ()
    """Misleading ids outside the retrieved set, as the gate spelled them (R21)."""
    dropped_stages: tuple[Stage, ...] = ()
    """Stages for which the gate gave experience although its label does not attribute them."""
    reason: Fault | GateFault | None = None
    """Set exactly when not decided."""
    excerpt: str = ""
    """The start of a reply that was not decided; for logs and reports."""


class GateLimits(Frozen):
    """Bounds on the gate's reply, in characters. Unbounded strings let guided decoding run to the output limit."""

    assessment: int = Field(default=400, ge=1)
    scenario: int = Field(default=400, ge=1)
    experience: int = Field(default=1600, ge=1)


def gate_schema(retrieved_ids: Sequence[str], limits: GateLimits) -> dict[str, Json]:
    """The JSON schema of the gate's reply (R18), within what strict ``response_format: json_schema`` takes.

    Every property is required and no other allowed; a stage without experience is null. The assessment comes
    first, so that the label follows from it. ``misleading`` may name retrieved ids only; without any the
    property is left out, because an empty enum is not a schema.
    """
    properties: dict[str, Json] = {
        "assessment": closed({part: bounded_text(limits.assessment) for part in Assessment.model_fields}),
        "label": {"type": "string", "enum": [label.value for label in Label]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        **{EXPERIENCE_KEYS[stage]: _experience_schema(limits) for stage in Stage},
    }
    if retrieved_ids:
        ids = list(dict.fromkeys(retrieved_ids))
        properties["misleading"] = {
            "type": "array",
            "items": {"type": "string", "enum": ids},
            "maxItems": len(ids),
        }
    return closed(properties)


def parse_verdict(text: str | None, finish_reason: str, retrieved_ids: Sequence[str]) -> Verdict:
    """Read one reply of the gate (R21; B1, B3, B4, B5, B7, B8). Never raises.

    - Which text is a reply at all: ``reply.sole_object``. Unknown keys in it are ignored.
    - The label must be in the closed list (B5), the confidence on a known scale (``reply.confidence``).
    - An attributed stage's experience is optional, but where given it must be whole: two texts and a flag.
      White space around the texts goes. Experience for any other stage is dropped and recorded, whatever it
      looks like.
    - ``misleading`` may be left out or null. Ids outside ``retrieved_ids`` are dropped and recorded, and an id
      counts once.
    - The assessment decides nothing, so any form of it is taken, and parts that are not text are left out.
    """
    found = sole_object(text, finish_reason)
    if isinstance(found, Fault):
        return no_decision(found, text)
    label = word(found.get("label"), _LABELS)
    if label is None:
        return no_decision(GateFault.BAD_LABEL, text)
    gamma = confidence(found.get("confidence"))
    if gamma is None:
        return no_decision(GateFault.BAD_CONFIDENCE, text)
    given = {stage: found[key] for stage, key in EXPERIENCE_KEYS.items() if found.get(key) is not None}
    experience = {stage: read_experience(given[stage]) for stage in attributed(label) if stage in given}
    named = found.get("misleading")
    if not isinstance(named, list | None):
        return no_decision(GateFault.BAD_MISLEADING, text)
    spelled = [_id(entry) for entry in named or ()]
    whole = {stage: e for stage, e in experience.items() if e is not None}
    if len(whole) < len(experience):
        return no_decision(GateFault.BAD_EXPERIENCE, text)
    return Verdict(
        status="decided",
        diagnosis=Diagnosis(
            label=label,
            confidence=gamma,
            experience=whole,
            misleading=tuple(i for i in dict.fromkeys(retrieved_ids) if i in spelled),
            assessment=_assessment(found.get("assessment")),
        ),
        dropped_ids=tuple(i for i in dict.fromkeys(spelled) if i not in retrieved_ids),
        dropped_stages=tuple(stage for stage in given if stage not in attributed(label)),
    )


def no_decision(reason: Fault | GateFault, text: str | None) -> Verdict:
    """The verdict of a reply that is none."""
    return Verdict(status="gate_error", reason=reason, excerpt=excerpt(text))


def read_experience(value: Json) -> NewExperience | None:
    """One stage's experience out of a reply, white space around its texts gone, or None where it is not whole."""
    if not isinstance(value, dict):
        return None
    scenario, experience, actionable = (
        value.get("scenario"),
        value.get("experience"),
        flag(value.get("actionable")),
    )
    if not isinstance(scenario, str) or not isinstance(experience, str) or actionable is None:
        return None
    return NewExperience(scenario=scenario.strip(), experience=experience.strip(), actionable=actionable)


_LABELS: dict[str, Label] = {
    **dict.fromkeys(
        ("planning", "plan", "planner", "规划", "计划", "规划阶段", "计划阶段", "規劃", "計劃", "計畫"),
        Label.PLANNING,
    ),
    **dict.fromkeys(("execution", "exec", "executor", "执行", "执行阶段", "執行", "執行階段"), Label.EXECUTION),
    **dict.fromkeys(
        (
            "both",
            "both stages",
            "planning and execution",
            "两者",
            "二者",
            "两者都有",
            "规划和执行",
            "规划与执行",
            "兩者",
        ),
        Label.BOTH,
    ),
    **dict.fromkeys(("none", "neither", "无", "都不是", "两者都不是", "無"), Label.NONE),
}


def _experience_schema(limits: GateLimits) -> dict[str, Json]:
    whole = closed(
        {
            "scenario": bounded_text(limits.scenario),
            "experience": bounded_text(limits.experience),
            "actionable": {"type": "boolean"},
        }
    )
    return {"anyOf": [whole, {"type": "null"}]}


def _id(entry: Json) -> str:
    return entry.strip() if isinstance(entry, str) else json.dumps(entry)


def _assessment(value: Json) -> Assessment:
    parts = value if isinstance(value, dict) else {}
    return Assessment(
        **{name: parts[name] for name in Assessment.model_fields if isinstance(parts.get(name), str)}
    )
