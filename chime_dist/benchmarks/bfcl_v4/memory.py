"""One private copy of a scenario's memory, and the episode that asks about it.

Tool calls go to an instance of the package's own key-value store that nobody else has, by an allow-list of names.
Whatever is wrong with a call is an answer that the executor can act on, never an exception: the store is code of
others, called with arguments that a model made up.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from chime_dist.benchmarks.bfcl_v4.package import Entry, shared_package
from chime_dist.core.episode import EndReason, Json
from chime_dist.core.model_call import Message, ToolCall
from chime_dist.core.text import is_visible, whole_characters
from chime_dist.errors import BenchmarkError
from chime_dist.ports import Action, Observation, TaskView

MAX_RESULT = 8_000
"""Longest answer of a tool in characters. Values are bounded by the store, keys are not."""

_SHOWN = 80
_PARTS = ("core_memory", "archival_memory")


class PrivateMemory:
    """The store, with the content of a snapshot or empty. Not for several threads at once."""

    def __init__(self, tools: Sequence[dict[str, Json]], snapshot: Json | None = None) -> None:
        """``tools``: the OpenAI definitions; what they name may be called, and nothing else."""
        self.api: Any = shared_package().memory()
        self._allowed = frozenset(tool["function"]["name"] for tool in tools)
        if snapshot is not None:
            for part in _PARTS:
                setattr(self.api, part, dict(snapshot[part]))

    @property
    def snapshot(self) -> dict[str, dict[str, str]]:
        """A copy of all it holds, ``{"core_memory": {key: value}, "archival_memory": {key: value}}``."""
        return {
            part: {
                whole_characters(key): whole_characters(value) for key, value in getattr(self.api, part).items()
            }
            for part in _PARTS
        }

    def results(self, calls: Sequence[ToolCall], native: bool) -> tuple[Message, ...]:
        """Make the calls in their order; the answers as messages that continue the history.

        ``native``: one message of the tool's for each call; else one of the user's for all of them.
        """
        answers = [(call, self.call(call)) for call in calls]
        if native:
            return tuple({"role": "tool", "tool_call_id": call.id, "content": text} for call, text in answers)
        return ({"role": "user", "content": "\n".join(f"{call.name[:_SHOWN]}: {text}" for call, text in answers)},)

    def call(self, call: ToolCall) -> str:
        """What the tool answers, as JSON of at most ``MAX_RESULT`` characters and a remark on what was cut."""
        if call.error is not None or call.arguments is None:
            return _error(call.error or "the arguments are not one JSON object")
        if call.name not in self._allowed:
            return _error(f"there is no tool {call.name[:_SHOWN]!r}")
        try:
            text = json.dumps(getattr(self.api, call.name)(**call.arguments), allow_nan=False)
        except Exception as error:  # noqa: BLE001 - code of others with arguments that a model made up
            return _error(f"{call.name} failed with {type(error).__name__}: {error}")
        return text if len(text) <= MAX_RESULT else f"{text[:MAX_RESULT]}... ({len(text)} characters in all)"


def _error(what: str) -> str:
    return json.dumps({"error": what[:MAX_RESULT]})


class MemoryEnvironment:
    """One open memory question. Calls are answered; the first reply without a call ends it."""

    def __init__(self, entry: Entry, view: TaskView, memory: PrivateMemory, native: bool) -> None:
        self._entry = entry
        self._view = view
        self._memory = memory
        self._native = native
        self._answer = ""
        self._end: EndReason | None = None

    @property
    def view(self) -> TaskView:
        """The question, the package's instruction with the core memory as policy, and the memory's tools."""
        return self._view

    async def act(self, action: Action) -> Observation:
        """Make the calls, or take the answer. Raises BenchmarkError once there was one."""
        if self._end is not None:
            raise BenchmarkError(f"task {self._entry.id} is over: it was answered")
        if action.malformed is None and action.tool_calls:
            return Observation(done=False, messages=self._memory.results(action.tool_calls, self._native))
        if action.malformed is not None:
            self._end = EndReason.MALFORMED_OUTPUT
        else:
            self._end = EndReason.SCORED if is_visible(action.text) else EndReason.EMPTY_OUTPUT
        self._answer = action.text
        return Observation(done=True, end_reason=self._end)

    async def score(self) -> bool:
        """Success of the last words; False without any. Raises BenchmarkError when the checker fails."""
        if self._end is not EndReason.SCORED:
            return False
        return await asyncio.to_thread(shared_package().answers, self._entry, self._answer)

    async def close(self) -> None:
        """Nothing to free: the memory goes with the environment."""
