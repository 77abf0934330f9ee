"""What is solved: task streams, open tasks, evaluators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from chime_dist.core.episode import EndReason
from chime_dist.core.frozen import Frozen
from chime_dist.core.model_call import Message, ToolCall
from chime_dist.core.task import Task, TaskView


class Action(Frozen):
    """What the executor did in one turn."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    malformed: str | None = None
    """Why the reply could not be read as an action; None for a well-formed reply."""


class Observation(Frozen):
    """What came back. ``messages`` continue the chat history (tool results, the user's next words)."""

    done: bool
    messages: tuple[Message, ...] = ()
    end_reason: EndReason | None = None
    """Set with ``done``."""
    flags: tuple[str, ...] = ()
    """What is worth knowing about this step and changes nothing: one word each, e.g. ``premature_user_stop`` where
    a simulated user confirmed and ended the conversation before the agent could act (G6). Kept with the trajectory
    and the record; no gate sees them."""


class Environment(Protocol):
    """One open task."""

    @property
    def view(self) -> TaskView:
        """What the agent may see."""
        ...

    async def act(self, action: Action) -> Observation:
        """Take one step. Raises BenchmarkError where the benchmark itself fails."""
        ...

    async def score(self) -> bool:
        """Success by the benchmark's own evaluator. Raises BenchmarkError."""
        ...

    async def close(self) -> None:
        """Free the slot's resources; idempotent."""
        ...


class Benchmark(Protocol):
    """A task stream and its evaluator."""

    name: str
    action_mode: Literal["tools", "json_schema"]
    """How the executor answers: native tool calls, or one JSON object (R42 deviation, named in reports)."""
    max_steps: int
    """Most executor turns of an episode."""
    usual_steps: int
    """Executor turns that a usual episode takes; at most ``max_steps``. Only cost estimates read it."""

    def tasks(self) -> Sequence[Task]:
        """All tasks in the benchmark's own order; no reference answers in them."""
        ...

    def fingerprint(self) -> dict[str, str]:
        """Upstream version and data hash, recorded with every run."""
        ...

    async def open(self, task_id: str) -> Environment:
        """Raises BenchmarkError for an unknown id or broken data."""
        ...
