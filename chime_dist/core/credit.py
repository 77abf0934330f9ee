"""What an episode's feedback does to a memory's value, and which experience is worth keeping (R24 to R29)."""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum
from typing import Literal

from pydantic import Field

from chime_dist.core.frozen import Frozen
from chime_dist.core.memory import SEPARATE, Banks, Stage
from chime_dist.core.vector import at_least, below
from chime_dist.core.verdict import Diagnosis, NewExperience, attributed


class EvolutionParams(Frozen):
    """Evolution of the bank. Defaults are Table 7 of S0, or our reading where it says [U]."""

    conf_threshold: float = Field(default=0.5, ge=0.0, le=1.0)
    """theta_conf of S0 Eq. 10: least confidence, inclusive, with which content is accepted (R29)."""
    accept: Literal["checked", "any"] = "checked"
    """[U] What R29's filter asks for: ``checked`` is confidence and content, ``any`` is text, whatever it says."""
    conf_gates_values: bool = False
    """[U] Whether ``conf_threshold`` holds values back too; by default they always move by gamma (R29)."""
    merge_threshold: float = Field(default=0.88, ge=-1.0, le=1.0)
    """theta_merge: scenarios more similar than this, strictly, are one memory (R30); 1 merges nothing."""
    prune_min_count: int = Field(default=3, ge=1)
    """n_min: least number of reuses before a memory may be pruned (R27)."""
    prune_threshold: float = Field(default=-0.1, ge=-1.0, le=1.0)
    """theta_prune: a value below it, strictly, is pruned (R27); -1 prunes nothing."""
    value_update: Literal["retrieved", "attributed", "count_only", "skip_zero", "off"] = "retrieved"
    """[U] Which retrieved memories S0 Eq. 9 moves (R26): all of them as printed; only those of an attributed
    stage, or misleading; all, but a delta of 0 only counts; only those with another delta than 0; or none."""
    merge: Literal["llm", "append"] = "llm"
    """[U] How two experiences become one (R31): a call of the gate's backbone, or joined texts."""
    rewrite_scenario: bool = False
    """[U] Whether a merge also rewrites the scenario and embeds it again; by default c stays (R31)."""
    addition: Literal["content_novelty", "min_stage_score", "off"] = "content_novelty"
    """[U] What ``addition_threshold`` tests before an insert (R32). ``content_novelty``: 1 minus the largest
    similarity of the new experience to one in the bank. ``min_stage_score``: the credit that the gate gives
    the stage, its confidence. ``off``: S0 Eq. 10 as printed."""
    addition_threshold: float = Field(default=0.1, ge=0.0, le=1.0)
    """Table 7's experience-addition threshold: less than it is discarded, equal is inserted."""


class Rejection(StrEnum):
    """Why experience of an attributed stage is discarded (the last branch of S0 Eq. 10)."""

    NO_EXPERIENCE = "no_experience"
    """The gate gave none."""
    LOW_CONFIDENCE = "low_confidence"
    EMPTY = "empty"
    """A text without a letter or digit."""
    PLACEHOLDER = "placeholder"
    """A text that only holds the place of one."""
    NOT_ACTIONABLE = "not_actionable"
    """By the gate's own word."""
    NOT_NOVEL = "not_novel"
    """The bank says nearly the same already (R32, ``content_novelty``)."""
    LOW_STAGE_SCORE = "low_stage_score"
    """R32, ``min_stage_score``."""


def delta(confidence: float, success: bool, in_attributed: bool, misleading: bool) -> float:
    """S0 Eq. 8 (R24), first match wins: -gamma if misleading, +gamma if a credited stage succeeded, else 0."""
    if misleading:
        return 0.0 - confidence
    return confidence if success and in_attributed else 0.0


def averaged(value: float, count: int, feedback: float) -> tuple[float, int]:
    """S0 Eq. 9 (R25): the online average of ``feedback`` into ``value``, clipped to [-1, 1], and n + 1."""
    mean = (count * value + feedback) / (count + 1)
    return min(max(mean, -1.0), 1.0) + 0.0, count + 1


def prunable(value: float, count: int, params: EvolutionParams) -> bool:
    """R27: reused often enough, and still worth less than the threshold (strictly)."""
    return count >= params.prune_min_count and below(value, params.prune_threshold)


def rejection(diagnosis: Diagnosis, stage: Stage, params: EvolutionParams) -> Rejection | None:
    """Why the experience for ``stage`` is not accepted, or None: the part of R29 that needs no bank."""
    new = diagnosis.experience.get(stage)
    if new is None:
        return Rejection.NO_EXPERIENCE
    checked = params.accept == "checked"
    if checked and not at_least(diagnosis.confidence, params.conf_threshold):
        return Rejection.LOW_CONFIDENCE
    texts = (new.scenario, new.experience)
    if not all(any(char.isalnum() for char in text) for text in texts):
        return Rejection.EMPTY
    if not checked:
        return None
    if any(is_placeholder(text) for text in texts):
        return Rejection.PLACEHOLDER
    return None if new.actionable else Rejection.NOT_ACTIONABLE


def accepted(diagnosis: Diagnosis, params: EvolutionParams, banks: Banks = SEPARATE) -> dict[Stage, NewExperience]:
    """The experience of attributed stages that is accepted, and whose texts need vectors (R28, R29).

    [U] One experience per bank: of stages that share one, the first stands for both, with their texts joined
    under its scenario (R44 no_hierarchy).
    """
    found: dict[str, tuple[Stage, NewExperience]] = {}
    for stage in attributed(diagnosis.label):
        if stage not in banks or rejection(diagnosis, stage, params) is not None:
            continue
        new = diagnosis.experience[stage]
        first, before = found.get(banks[stage], (stage, None))
        found[banks[stage]] = (first, new if before is None else before.joined(new))
    return dict(found.values())


def is_placeholder(text: str) -> bool:
    """Whether ``text`` as a whole only stands for a text: ``<scenario>``, ``{{x}}``, ``TODO: ...``, ``N/A``.

    Angle brackets inside a sentence are no placeholder: experience names arguments that way.
    """
    normal = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return (
        normal.strip(" .。\"'\u2018\u2019\u201c\u201d") in _PLACEHOLDER_WORDS
        or _PLACEHOLDER_FORM.fullmatch(normal) is not None
    )


_PLACEHOLDER_WORDS = frozenset(
    (
        *("todo", "tbd", "fixme", "n/a", "na", "none", "null", "nil", "nothing", "placeholder", "xxx"),
        *("string", "text", "scenario", "experience", "lorem ipsum"),
        *("无", "暂无", "没有", "待定", "待补充", "占位符", "场景", "经验"),
    )
)
_PLACEHOLDER_FORM = re.compile(r"<[^<>]*>|\[[^\[\]]*\]|\{+[^{}]*\}+|(?:todo|tbd|fixme)\s*:.*")
