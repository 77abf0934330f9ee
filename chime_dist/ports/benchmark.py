"""What is solved: task streams, open tasks, evaluators, and what must be there before a task can be opened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

from chime_dist.core.episode import EndReason, Json
from chime_dist.core.frozen import Frozen
from chime_dist.core.model_call import ChatReply, Message, ToolCall, Turn
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
    """Whether the task is over: then ``score`` is asked, and the agent no more."""
    messages: tuple[Message, ...] = ()
    end_reason: EndReason | None = None
    """Set with ``done``: SCORED where the agent came to an end by itself. Without one the episode is infra."""
    flags: tuple[str, ...] = ()
    """What is worth knowing about this step and changes nothing: one word each, e.g. ``premature_user_stop`` where
    a simulated user confirmed and ended the conversation before the agent could act (G6). Kept with the trajectory
    and the record; no gate sees them."""


class Environment(Protocol):
    """One open task of one episode; it is not shared, and need not be picklable.

    An exception other than BenchmarkError makes the episode infra too, and names the benchmark.
    """

    @property
    def view(self) -> TaskView:
        """What the agent may see."""
        ...

    async def act(self, action: Action) -> Observation:
        """Take one step. Raises BenchmarkError where the benchmark itself fails."""
        ...

    async def score(self) -> bool:
        """Success by the benchmark's own evaluator, also of an unfinished task. Raises BenchmarkError."""
        ...

    async def close(self) -> None:
        """Free the slot's resources; idempotent."""
        ...


class Benchmark(Protocol):
    """A task stream and its evaluator. One object serves many episodes side by side."""

    name: str
    """What sweeps call it: the name of its entry point."""
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
        """Upstream version and data hash; part of a run's identity, so it changes whenever the tasks do."""
        ...

    async def open(self, task_id: str) -> Environment:
        """Raises BenchmarkError for an unknown id or broken data."""
        ...


Ask = Callable[[Turn], Awaitable[ChatReply]]
"""One turn of the executor's backbone within the time there is. Raises BackboneError."""


class Prerequisite(Frozen):
    """Something that an executor must have done before tasks that depend on it can be opened."""

    name: str
    """Unique inside the benchmark; a file's name: letters, digits and ``_.-``."""
    after: str | None = None
    """The prerequisite that this one goes on from."""


@runtime_checkable
class PreparedBenchmark(Benchmark, Protocol):
    """A benchmark whose tasks start from what the evaluated backbone did earlier, e.g. memories that it wrote.

    What a prerequisite leaves behind is its artifact: plain JSON, built once for each backbone that executes, kept
    with the launch, never changed. Templates of its turns are named ``BENCHMARK/NAME`` and lie in a folder
    ``prompts`` beside the benchmark's module; the benchmark puts their hash into its fingerprint.
    """

    def prerequisites(self, task_ids: Collection[str]) -> Sequence[Prerequisite]:
        """All that these tasks need, each after what it goes on from. Raises BenchmarkError."""
        ...

    async def build(self, name: str, before: Json | None, ask: Ask) -> Json:
        """The artifact of one prerequisite; ``before`` is that of ``Prerequisite.after`` and is not changed.

        What the model does wrong ends up in the artifact. Raises BenchmarkError, and BackboneError for whatever is
        no fault of the model: such an attempt leaves nothing, and may be made again.
        """
        ...

    def provide(self, artifacts: Mapping[str, Json]) -> None:
        """Take the artifacts that no other prerequisite goes on from, by name, before any ``open``."""
        ...
