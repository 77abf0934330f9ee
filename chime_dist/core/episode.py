"""The artifacts of one episode, from what it read to what it wants committed."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from chime_dist.core.frozen import Frozen
from chime_dist.core.task import TaskView

Json = Any
"""A value that canonical JSON can hold: None, bool, int, finite float, str, list, dict with str keys."""


class Role(StrEnum):
    """Who asks a model (R38). Roles point to backbones independently."""

    PLANNER = "planner"
    EXECUTOR = "executor"
    GATE = "gate"
    USER_SIMULATOR = "user_simulator"
    JUDGE = "judge"
    EMBEDDER = "embedder"
    MEMORY_JUDGE = "memory_judge"


class Outcome(StrEnum):
    """The binary outcome of R1, or infra: our machinery failed and nothing may be learnt from it."""

    SUCCESS = "success"
    FAILURE = "failure"
    INFRA = "infra"


class EndReason(StrEnum):
    """Why an episode ended. The first group is scored, the second is infra (design "Outcomes")."""

    SCORED = "scored"
    STEP_CAP = "step_cap"
    ERROR_CAP = "error_cap"
    MALFORMED_OUTPUT = "malformed_output"
    EMPTY_OUTPUT = "empty_output"
    CONTEXT_OVERFLOW = "context_overflow"
    AGENT_DEADLINE = "agent_deadline"

    BACKBONE = "backbone"
    OUTAGE = "outage"
    """The deadline passed while a model was down: known to be over, so the attempt is made again at once."""
    EMBEDDER = "embedder"
    BENCHMARK = "benchmark"
    WORKER_LOST = "worker_lost"
    OOM = "oom"
    """Memory ran out: the attempt said so, or the worker was killed for it on the unit's last delivery."""
    UNKNOWN = "unknown"


INFRA_REASONS = frozenset(
    {
        EndReason.BACKBONE,
        EndReason.OUTAGE,
        EndReason.EMBEDDER,
        EndReason.BENCHMARK,
        EndReason.WORKER_LOST,
        EndReason.OOM,
        EndReason.UNKNOWN,
    }
)


class Usage(Frozen):
    """What model calls cost. Counts of one role in one episode, or sums of such."""

    calls: int = 0
    """Model turns asked for."""
    requests: int = 0
    """HTTP requests sent, retries included."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens the server took from its prefix cache, where it says so."""
    left_out: int = 0
    """Observations that were left out of prompts, because they were too long (R36)."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            calls=self.calls + other.calls,
            requests=self.requests + other.requests,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            left_out=self.left_out + other.left_out,
        )


def unit_key(run_id: str, phase: str, read_version: int, position: int) -> str:
    """See ``Unit.key``."""
    place = f"train:{position}" if phase == "train" else f"eval:v{read_version}:{position}"
    return f"{run_id}:{place}"


class Unit(Frozen):
    """One piece of work on the queue: a train position or an eval index of one run. Pure data."""

    run_id: str
    phase: Literal["train", "eval"]
    epoch: int
    """0-based pass over the train stream; for eval the number of finished epochs."""
    position: int
    """Train: 0-based place in the stream, counted across epochs. Eval: 0-based index in the eval split."""
    task: str
    read_version: int
    """The bank version this unit reads: a pure function of its position (R7)."""

    @property
    def key(self) -> str:
        """Unique inside a launch, e.g. ``RUN:train:12`` or ``RUN:eval:v40:3``."""
        return unit_key(self.run_id, self.phase, self.read_version, self.position)


class Candidate(Frozen):
    """One memory as retrieval saw it (R17). Ranks are 0-based."""

    id: str
    item_version: int
    """The record's chain version that was read."""
    sim: float
    adjusted_value: float
    """v~ of R14."""
    score: float
    """Eq. 5 of S0."""
    rank_before: int
    """By similarity alone."""
    rank_after: int
    """After Eq. 5 and the near-tie pass."""
    selected: bool


class Recalled(Frozen):
    """One selected memory with the text that entered a prompt."""

    id: str
    stage: str
    scenario: str
    experience: str


class Recall(Frozen):
    """One retrieval: query in, candidates and selected memories out. ``selected`` is in prompt order."""

    collection: str
    query: str
    version: int
    candidates: tuple[Candidate, ...] = ()
    selected: tuple[Recalled, ...] = ()

    def candidate(self, item_id: str) -> Candidate | None:
        """The candidate with this id, or None."""
        return next((c for c in self.candidates if c.id == item_id), None)


class Step(Frozen):
    """One step of a trajectory. ``index`` is 0-based and stable: later analyses cite it."""

    index: int
    kind: Literal["plan", "action", "observation", "event"]
    content: str = ""
    data: dict[str, Json] = {}


class Trajectory(Frozen):
    """What happened in an episode, enough to run the gate again without the benchmark."""

    view: TaskView
    """The task as the planner saw it."""
    plan: str | None = None
    recalls: tuple[Recall, ...] = ()
    steps: tuple[Step, ...] = ()

    @property
    def flags(self) -> tuple[str, ...]:
        """What the benchmark remarked on the way (see ``ports.Observation``), each once, in order."""
        told = (step.data.get("flags", ()) for step in self.steps if step.kind in ("action", "observation"))
        return tuple(dict.fromkeys(str(flag) for flags in told for flag in flags))


class Proposal(Frozen):
    """What an episode wants committed at its position.

    ``outcome`` infra, or ``diagnosis`` None where the method has a gate, commits an empty entry.
    ``content`` is the method's own business (CHIME: new experience per stage with vectors, reads, a
    pre-computed merge); it is not in the content chain, only the events made of it are.
    """

    run_id: str
    position: int
    task: str
    attempt: str
    """The attempt that produced it; equals ``EpisodeRecord.attempt`` of the final row."""
    read_version: int
    outcome: Outcome
    diagnosis: dict[str, Json] | None = None
    content: dict[str, Json] = {}
    empty_reason: str | None = None
    """Why nothing is learnt: ``infra:<end>`` or ``gate_error``; None where events may follow."""


class EpisodeRecord(Frozen):
    """One row of episodes.jsonl: one finished attempt. Times are UTC with offset, durations monotonic."""

    unit: Unit
    attempt: str
    """Unique id of the attempt."""
    delivery: int
    """1-based count of times the queue handed the unit out."""
    final: bool
    """False for infra: such a unit may be tried again, a train position until it is committed empty. A unit has at
    most one final row."""
    outcome: Outcome
    end_reason: EndReason
    detail: str = ""
    """Error text for infra ends; never reference answers."""
    gate_status: Literal["off", "decided", "gate_error"] = "off"
    label: str | None = None
    started_at: str
    duration_s: float
    steps: int
    usage: dict[str, Usage] = {}
    """By role."""
    worker: str = ""
    flags: tuple[str, ...] = ()
    """See ``Trajectory.flags``."""

    @property
    def unreported(self) -> bool:
        """Whether nobody lived to tell of it: it closes a unit's deliveries and is no attempt itself."""
        return self.end_reason in (EndReason.WORKER_LOST, EndReason.OOM) and self.duration_s == 0.0


class EpisodeTrace(Frozen):
    """The trajectory file of one final attempt: everything ``show`` and a later gate need."""

    record: EpisodeRecord
    trajectory: Trajectory
    proposal: Proposal | None = None
    """Train only. Enough to commit the position without running the episode again."""
    gate: dict[str, Json] = {}
    """The gate's raw replies and what was dropped from them."""
    calls: tuple[dict[str, Json], ...] = ()
    """Where prompts are captured, a ``core.captured.CapturedCall`` per model turn. Kept in a file of its own, so
    that a trace that was read from disk has none."""
