"""BFCL-v4, the six Live categories: one answer and a check; the tools cannot be executed.

Success is the verdict of the official AST checker. Relevance wants some well-formed call, irrelevance wants a
well-formed reply in words without any call: a malformed or empty reply, or none at all, passes nothing.
Four tasks of the dataset cannot be won by any reply; they stay in, like in the published numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from chime_dist.benchmarks.bfcl_v4.package import CATEGORIES, VERSION, Entry, require_installed, shared_package
from chime_dist.core.canonical import canonical_json
from chime_dist.core.episode import EndReason
from chime_dist.core.frozen import Frozen
from chime_dist.core.task import Task
from chime_dist.core.text import is_visible
from chime_dist.errors import BenchmarkError, ConfigError
from chime_dist.ports import Action, Observation, TaskView


class BfclV4Options(Frozen):
    """What a config may say about this benchmark."""

    categories: tuple[str, ...] = CATEGORIES
    """Domains of the stream, each at most once. Their order here means nothing: the package's order holds."""
    action_mode: Literal["tools", "json_schema"] = "tools"
    """``json_schema`` is for backbones without tool calling; a deviation from R42."""
    max_steps: int = Field(default=10, ge=1)
    """Most tool or search steps (R42). A Live task takes one."""
    task_ids: tuple[str, ...] | None = None
    """Keep only these tasks, in the package's order; a deviation from R3."""
    max_request_chars: int | None = Field(default=None, ge=1)
    """Keep only tasks whose policy, request and tools (compact JSON) have at most this many characters together,
    for backbones with a small context; a deviation from R3."""
    checker: Literal["official"] = "official"
    """The AST checker of the package. The paper prints an LLM checker, so this is a deviation from R42."""

    @field_validator("categories")
    @classmethod
    def _known_categories(cls, categories: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(categories) - set(CATEGORIES))
        if unknown or not categories:
            what = f"unknown BFCL-v4 categories {unknown}" if unknown else "no BFCL-v4 category given"
            raise ValueError(f"{what}; valid are: {', '.join(CATEGORIES)}")
        return _distinct(categories)

    @field_validator("task_ids")
    @classmethod
    def _distinct_task_ids(cls, task_ids: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if task_ids is None else _distinct(task_ids)


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    repeated = sorted({v for v in values if values.count(v) > 1})
    if repeated:
        raise ValueError(f"given more than once: {repeated}")
    return values


class BfclV4:
    """The benchmark (R3, R42). Raises MissingExtraError at once where ``bfcl-eval`` is not installed as pinned.

    The package is imported, and its data read and checked, on first use, once per process.
    """

    Options: ClassVar[type[BfclV4Options]] = BfclV4Options

    def __init__(self, options: BfclV4Options) -> None:
        require_installed()
        self.name = "bfcl_v4"
        self.action_mode: Literal["tools", "json_schema"] = options.action_mode
        self.max_steps = options.max_steps
        self.usual_steps = 1
        self._options = options
        self._categories = tuple(c for c in CATEGORIES if c in options.categories)

    def tasks(self) -> Sequence[Task]:
        """All selected tasks in the package's order, the category as domain.

        Raises BenchmarkError for damaged data, ConfigError for unknown ``task_ids`` or an empty selection.
        """
        return tuple(Task(id=entry.id, domain=entry.category) for entry in self._selected.values())

    def fingerprint(self) -> dict[str, str]:
        """Package version, hash of the data files in use, checker and categories."""
        return {
            "package": f"bfcl-eval {VERSION}",
            "data_sha256": shared_package().data_sha256(self._categories),
            "checker": self._options.checker,
            "categories": ",".join(self._categories),
        }

    async def open(self, task_id: str) -> BfclEnvironment:
        """Open a selected task; raises BenchmarkError for any other id."""
        return await asyncio.to_thread(self._open, task_id)

    def _open(self, task_id: str) -> BfclEnvironment:
        entry = self._selected.get(task_id)
        if entry is None:
            raise BenchmarkError(f"BFCL-v4 has no selected task {task_id!r}; categories: {self._categories}")
        return BfclEnvironment(entry, _view(entry))

    @cached_property
    def _selected(self) -> dict[str, Entry]:
        package, options = shared_package(), self._options
        entries = {i: entry for c in self._categories for i, entry in package.entries(c).items()}
        if options.task_ids is not None:
            unknown = sorted(set(options.task_ids) - entries.keys())
            if unknown:
                raise ConfigError(f"task_ids {unknown} are not in the BFCL-v4 categories {self._categories}")
            wanted = set(options.task_ids)
            entries = {i: entry for i, entry in entries.items() if i in wanted}
        if options.max_request_chars is not None:
            limit = options.max_request_chars
            entries = {i: entry for i, entry in entries.items() if _characters(_view(entry)) <= limit}
        if not entries:
            raise ConfigError("the BFCL-v4 options select no task: raise max_request_chars or extend task_ids")
        return entries


class BfclEnvironment:
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


def _view(entry: Entry) -> TaskView:
    talk = tuple(dict(m) for m in entry.messages if m["role"] != "system")
    # One user message speaks for itself; a longer conversation needs to show who said what.
    request = talk[0]["content"] if len(talk) == 1 else "\n\n".join(f"{m['role']}: {m['content']}" for m in talk)
    return TaskView(
        request=request,
        messages=talk,
        policy="\n\n".join(m["content"] for m in entry.messages if m["role"] == "system"),
        tools=shared_package().tools(entry),
    )


def _characters(view: TaskView) -> int:
    return len(view.policy) + len(view.request) + len(canonical_json(list(view.tools)))
