"""One Live task: one answer and a check; the tools cannot be executed.

Success is the verdict of the official AST checker. Relevance wants some well-formed call, irrelevance wants a
well-formed reply in words without any call: a malformed or empty reply, or none at all, passes nothing.
Four tasks of the dataset cannot be won by any reply; they stay in, like in the published numbers.
"""

from __future__ import annotations

import asyncio

from chime_dist.benchmarks.bfcl_v4.package import Entry, shared_package
from chime_dist.core.episode import EndReason
from chime_dist.core.text import is_visible
from chime_dist.errors import BenchmarkError
from chime_dist.ports import Action, Observation, TaskView


class LiveEnvironment:
    """One open Live task. The first action ends it."""

    def __init__(self, entry: Entry, view: TaskView) -> None:
        self._entry = entry
        self._view = view
        self._answer: Action | None = None
        self._end: EndReason | None = None

    @property
    def view(self) -> TaskView:
        """The conversation so far, the dataset's system messages as policy, and the tools."""
        return self._view

    async def act(self, action: Action) -> Observation:
        """Take the answer. Raises BenchmarkError for a second one."""
        if self._answer is not None:
            raise BenchmarkError(f"task {self._entry.id} is over: a Live task takes one answer")
        self._answer = action
        self._end = _end_reason(action)
        return Observation(done=True, end_reason=self._end)

    async def score(self) -> bool:
        """Success of the answer; False without a well-formed one. Raises BenchmarkError when the checker fails."""
        if self._answer is None or self._end is not EndReason.SCORED:
            return False
        calls = [{call.name: call.arguments or {}} for call in self._answer.tool_calls]
        if self._entry.category == "live_irrelevance":
            return not calls
        if self._entry.category == "live_relevance":
            return bool(calls)
        return await asyncio.to_thread(shared_package().accepts, self._entry, calls)

    async def close(self) -> None:
        """Nothing to free: an open task is memory only."""


def _end_reason(action: Action) -> EndReason:
    unusable = any(c.error is not None or c.arguments is None or not c.name.strip() for c in action.tool_calls)
    if action.malformed is not None or unusable:
        return EndReason.MALFORMED_OUTPUT
    if not action.tool_calls and not is_visible(action.text):
        return EndReason.EMPTY_OUTPUT
    return EndReason.SCORED
