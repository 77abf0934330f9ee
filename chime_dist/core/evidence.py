"""What one commit of CHIME depends on beside the bank: reads, vectors, merges (R24 to R34).

All of it is JSON and back, because a worker makes it and the bank's owner uses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Self

from pydantic import Field, field_validator

from chime_dist.core.episode import Json, Outcome, Proposal, Recall
from chime_dist.core.frozen import Frozen
from chime_dist.core.memory import Stage
from chime_dist.core.vector import Vector
from chime_dist.core.verdict import Diagnosis, NewExperience


class Read(Frozen):
    """A retrieved memory: it stood in a prompt of the episode."""

    id: str
    stage: Stage
    """For which it was retrieved."""
    item_version: int
    """The record's chain version that was read."""


class ExperienceVectors(Frozen):
    """Document vectors of one stage's new experience."""

    c: Vector
    """Of the scenario."""
    e: Vector
    """Of the experience text."""


class Merged(Frozen):
    """One merge, done: the text that replaces the target's experience."""

    stage: Stage
    target: str
    text_sha256: str
    """Of the target's texts it was made from."""
    experience: str = Field(min_length=1)
    e: Vector
    by: Literal["llm", "append"]
    """Who made it; ``append`` under ``merge: llm`` is the fallback for a failed call (R31)."""
    scenario: str | None = None
    """Set with ``c`` where ``rewrite_scenario`` is on."""
    c: Vector | None = None


class MergeRequest(Frozen):
    """One merge to be done: ``new`` goes into the memory ``target``."""

    stage: Stage
    target: str
    text_sha256: str
    scenario: str
    """The target's, like ``experience``."""
    experience: str
    new: NewExperience

    @property
    def joined(self) -> str:
        """Both experiences one after the other: ``merge: append``, and the fallback for a failed call (R31).

        Experience that the target holds word for word is not repeated.
        """
        if f"\n{self.new.experience}\n" in f"\n{self.experience}\n":
            return self.experience
        return f"{self.experience}\n{self.new.experience}"

    def answered(
        self,
        experience: str,
        e: Vector,
        by: Literal["llm", "append"],
        scenario: str | None = None,
        c: Vector | None = None,
    ) -> Merged:
        """The merge with its text and vectors; scenario and its vector c where that is rewritten."""
        return Merged(
            stage=self.stage,
            target=self.target,
            text_sha256=self.text_sha256,
            experience=experience,
            e=e,
            by=by,
            scenario=scenario,
            c=c,
        )


class EvolutionContent(Frozen):
    """What CHIME puts into ``Proposal.content`` beside the diagnosis."""

    reads: tuple[Read, ...] = ()
    """Every memory that stood in a prompt; an id counts once."""
    vectors: dict[Stage, ExperienceVectors] = {}
    """For every stage of ``credit.accepted``."""
    merges: tuple[Merged, ...] = ()
    """Done ahead, against the version that was read."""


class EvolutionInput(EvolutionContent):
    """All that one commit of CHIME depends on, beside the bank."""

    position: int = Field(ge=0)
    outcome: Outcome
    diagnosis: Diagnosis

    @field_validator("outcome")
    @classmethod
    def _scored(cls, outcome: Outcome) -> Outcome:
        if outcome is Outcome.INFRA:
            raise ValueError("nothing may be learnt from an infra outcome; its position commits an empty entry")
        return outcome

    @classmethod
    def from_proposal(cls, proposal: Proposal) -> Self:
        """Read a proposal back; raises ValueError without a diagnosis, for infra, and for other content."""
        return cls.model_validate(
            {
                **proposal.content,
                "position": proposal.position,
                "outcome": proposal.outcome,
                "diagnosis": proposal.diagnosis,
            }
        )

    def content(self) -> dict[str, Json]:
        """The part that travels as ``Proposal.content``, as JSON."""
        return self.model_dump(mode="json", include=set(EvolutionContent.model_fields))


def reads_of(recalls: Iterable[Recall]) -> tuple[Read, ...]:
    """The memories that recalls put into prompts; raises ValueError for one that was retrieved for no stage."""
    return tuple(
        Read(id=candidate.id, stage=Stage(stages[candidate.id]), item_version=candidate.item_version)
        for recall in recalls
        for stages in [{memory.id: memory.stage for memory in recall.selected}]
        for candidate in recall.candidates
        if candidate.id in stages
    )
