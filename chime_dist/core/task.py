"""A task: who it is in the stream, and what an agent may see of it once it is open."""

from __future__ import annotations

from typing import Any

from chime_dist.core.frozen import Frozen


class Task(Frozen):
    """One entry of a benchmark's task stream."""

    id: str
    """Unique inside the benchmark."""
    domain: str
    """The benchmark's own name of the subset; splits and truncation work per domain (R3)."""


class TaskView(Frozen):
    """What an agent may see of an open task. Never anything about the expected answer (R8)."""

    request: str
    """The task in words: planner's input, gate's input and the plan query (R11)."""
    messages: tuple[dict[str, Any], ...]
    """The conversation so far, as chat messages without a system prompt of ours."""
    policy: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    """OpenAI tool definitions; may be empty."""
