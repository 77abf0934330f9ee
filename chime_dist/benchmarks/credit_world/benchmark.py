"""A simulation benchmark: outcomes follow from known causes, so the right attribution is known.

It needs no data, no network and no model: with the agent double of the endpoint kind ``scripted`` (script
``credit_world``) whole sweeps run in seconds, deterministically. What it measures is the machinery (order,
retrieval, gate, evolution), never a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from chime_dist.benchmarks.credit_world.environment import CreditEnvironment
from chime_dist.core.canonical import canonical_json, sha256_hex
from chime_dist.core.credit_world import FAMILIES, RULES, Case, domain
from chime_dist.core.frozen import Frozen
from chime_dist.core.task import Task
from chime_dist.errors import BenchmarkError

_VERSION = 1
"""Goes up whenever a case's words, rule or chance change."""


class CreditWorldOptions(Frozen):
    """The size of the world and how hard it is."""

    families: int = Field(default=len(FAMILIES), ge=1, le=len(FAMILIES))
    """Kinds of cases, one domain each (R3)."""
    tasks_per_family: int = Field(default=20, ge=1)
    noise: float = Field(default=0.05, ge=0.0, le=1.0)
    """Share of cases whose outcome is turned into its opposite from outside, chosen by hash of seed and case."""
    steps: int = Field(default=2, ge=1)
    """Calls of the tool that a case takes."""
    seed: int = Field(default=0, ge=0)
    """Which world: hidden rules, wording of the cases, and noise follow from it."""
    action_mode: Literal["tools", "json_schema"] = "tools"
    max_steps: int = Field(default=10, ge=1)
    """Most executor turns per episode."""

    @model_validator(mode="after")
    def _steps_can_be_taken(self) -> Self:
        if self.max_steps < self.steps:
            raise ValueError(
                f"max_steps is {self.max_steps}, but a case takes {self.steps} steps: raise max_steps"
            )
        return self


class CreditWorld:
    """The benchmark. Success is both hidden rules of the case's family kept in every step, or noise."""

    Options: ClassVar[type[CreditWorldOptions]] = CreditWorldOptions

    def __init__(self, options: CreditWorldOptions) -> None:
        self.name = "credit_world"
        self.action_mode: Literal["tools", "json_schema"] = options.action_mode
        self.max_steps = options.max_steps
        self.usual_steps = options.steps
        self._options = options
        self._cases = {
            case.id: case
            for family in range(options.families)
            for number in range(options.tasks_per_family)
            for case in [Case(options.seed, family, number)]
        }

    def tasks(self) -> Sequence[Task]:
        """Family by family, cases by number; the family is the domain."""
        return tuple(Task(id=case.id, domain=domain(case.family)) for case in self._cases.values())

    def fingerprint(self) -> dict[str, str]:
        """Version and hash of what worlds are made of."""
        stories = [[family.title, family.story, family.things, family.places] for family in FAMILIES]
        return {
            "package": f"chime-dist credit_world {_VERSION}",
            "data_sha256": sha256_hex(canonical_json([stories, RULES])),
        }

    async def open(self, task_id: str) -> CreditEnvironment:
        """Open a case; raises BenchmarkError for any other id."""
        case = self._cases.get(task_id)
        if case is None:
            raise BenchmarkError(
                f"credit_world has no task {task_id!r}; this world has {self._options.families} families of "
                f"{self._options.tasks_per_family} cases"
            )
        return CreditEnvironment(case, self._options.steps, self._options.noise, self.action_mode)
