"""BFCL-v4: the six Live categories, and the memory category on its key-value backend.

A Live task is one answer and a check (``live``). A memory question is answered with tools, from what the evaluated
backbone wrote down in earlier sessions with the same user (``conversation``, ``memory``): those sessions are this
benchmark's prerequisites, held once for each backbone, and every episode gets a private copy of their outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from typing import ClassVar, Literal

import structlog
from pydantic import Field, field_validator

from chime_dist.benchmarks.bfcl_v4 import conversation
from chime_dist.benchmarks.bfcl_v4.live import LiveEnvironment
from chime_dist.benchmarks.bfcl_v4.memory import MemoryEnvironment, PrivateMemory
from chime_dist.benchmarks.bfcl_v4.package import Conversation, Entry, require_installed, shared_package
from chime_dist.benchmarks.bfcl_v4.pins import CATEGORIES, LIVE, MEMORY, VERSION
from chime_dist.core.canonical import canonical_json
from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.core.model_call import Message
from chime_dist.core.task import Task
from chime_dist.engine.prompting import PromptLibrary
from chime_dist.errors import BenchmarkError, ConfigError
from chime_dist.ports import Ask, Environment, Prerequisite, TaskView

NAME = "bfcl_v4"

_MEMORY_STEPS = 3
"""Usual turns of a memory question: look for the key, read the value, answer."""

log = structlog.get_logger()


class BfclV4Options(Frozen):
    """What a config may say about this benchmark."""

    categories: tuple[str, ...] = LIVE
    """Domains of the stream, each at most once. Their order here means nothing: the paper's order holds.
    ``memory_kv`` is not among the default ones, because its sessions cost model calls before the first episode."""
    action_mode: Literal["tools", "json_schema"] = "tools"
    """``json_schema`` is for backbones without tool calling; a deviation from R42."""
    max_steps: int = Field(default=10, ge=1)
    """Most tool or search steps (R42), in a session for each turn of the user. A Live task takes one."""
    task_ids: tuple[str, ...] | None = None
    """Keep only these tasks, in the package's order; a deviation from R3."""
    max_request_chars: int | None = Field(default=None, ge=1)
    """Keep only tasks whose policy, request and tools (compact JSON) have at most this many characters together,
    for backbones with a small context; a deviation from R3. The core memory, which is part of the policy of a
    memory question, counts as empty."""
    checker: Literal["official"] = "official"
    """The checkers of the package. The paper prints an LLM checker, so this is a deviation from R42."""

    @field_validator("categories")
    @classmethod
    def _known_categories(cls, categories: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(categories) - set(CATEGORIES))
        if unknown or not categories:
            what = f"unknown BFCL-v4 categories {unknown}" if unknown else "no BFCL-v4 category given"
            missing = "; web_search is not available yet" if any("web_search" in name for name in unknown) else ""
            raise ValueError(f"{what}; valid are: {', '.join(CATEGORIES)}{missing}")
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
        self.name = NAME
        self.action_mode: Literal["tools", "json_schema"] = options.action_mode
        self.max_steps = options.max_steps
        self._options = options
        self._categories = tuple(c for c in CATEGORIES if c in options.categories)
        self.usual_steps = min(_MEMORY_STEPS, self.max_steps) if self._categories == (MEMORY,) else 1
        self._native = options.action_mode == "tools"
        self._memories: dict[str, Json] = {}

    def tasks(self) -> Sequence[Task]:
        """All selected tasks in the package's order, the category as domain.

        Raises BenchmarkError for damaged data, ConfigError for unknown ``task_ids`` or an empty selection.
        """
        return tuple(Task(id=entry.id, domain=entry.category) for entry in self._selected.values())

    def fingerprint(self) -> dict[str, str]:
        """Package version, hash of the data files in use, checker and categories; with memory questions also the
        hash of the prompt of their sessions."""
        found = {
            "package": f"bfcl-eval {VERSION}",
            "data_sha256": shared_package().data_sha256(self._categories),
            "checker": self._options.checker,
            "categories": ",".join(self._categories),
        }
        if MEMORY in self._categories:
            folder = files(__package__ or "") / "prompts"
            found["prompts"] = PromptLibrary({NAME: folder}).fingerprint(NAME)
        return found

    def prerequisites(self, task_ids: Collection[str]) -> Sequence[Prerequisite]:
        """The sessions of every scenario that these tasks ask about, each scenario's in the dataset's order."""
        scenarios = {self._entry(task_id).scenario for task_id in task_ids} - {""}
        found = []
        for scenario in sorted(scenarios):
            before = None
            for talk in shared_package().conversations()[scenario]:
                found.append(Prerequisite(name=talk.id, after=before))
                before = talk.id
        return found

    async def build(self, name: str, before: Json | None, ask: Ask) -> Json:
        """Hold the session ``name``: the memory after it, and why it ended. See ``ports.PreparedBenchmark``."""
        talk, tools = await asyncio.to_thread(_session, name)
        memory = PrivateMemory(tools, before)
        ended = await conversation.hold(talk, memory, tools, ask, native=self._native, max_steps=self.max_steps)
        log.info("bfcl_v4.session_ended", session=name, reason=ended)
        return {**memory.snapshot, "ended": ended}

    def provide(self, artifacts: Mapping[str, Json]) -> None:
        """Take the memory after each scenario's last session."""
        last = {talks[-1].id: scenario for scenario, talks in shared_package().conversations().items()}
        self._memories = {last[name]: artifact for name, artifact in artifacts.items()}

    async def open(self, task_id: str) -> Environment:
        """Open a selected task; raises BenchmarkError for any other id, and for a memory question before the
        memory of its scenario was provided."""
        return await asyncio.to_thread(self._open, task_id)

    def _open(self, task_id: str) -> Environment:
        entry = self._entry(task_id)
        if entry.category != MEMORY:
            return LiveEnvironment(entry, _live_view(entry))
        if entry.scenario not in self._memories:
            raise BenchmarkError(
                f"BFCL-v4 cannot open {task_id}: nobody provided what the sessions of scenario {entry.scenario!r} "
                "left in the memory"
            )
        tools = shared_package().tools(entry)
        memory = PrivateMemory(tools, self._memories[entry.scenario])
        return MemoryEnvironment(entry, _memory_view(entry, memory, tools), memory, self._native)

    def _entry(self, task_id: str) -> Entry:
        entry = self._selected.get(task_id)
        if entry is None:
            raise BenchmarkError(f"BFCL-v4 has no selected task {task_id!r}; categories: {self._categories}")
        return entry

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
            entries = {i: entry for i, entry in entries.items() if _characters(entry) <= limit}
        if not entries:
            raise ConfigError("the BFCL-v4 options select no task: raise max_request_chars or extend task_ids")
        return entries


def _session(name: str) -> tuple[Conversation, tuple[dict[str, Json], ...]]:
    package = shared_package()
    talks = {talk.id: talk for scenario in package.conversations().values() for talk in scenario}
    if name not in talks:
        raise BenchmarkError(f"BFCL-v4 has no session {name!r} before its memory questions")
    # Every entry of the category has the same tools.
    return talks[name], package.tools(next(iter(package.entries(MEMORY).values())))


def _live_view(entry: Entry) -> TaskView:
    return _view(entry.messages, shared_package().tools(entry))


def _memory_view(entry: Entry, memory: PrivateMemory, tools: tuple[dict[str, Json], ...]) -> TaskView:
    return _view(shared_package().instructed(entry.messages, entry.scenario, memory.api), tools)


def _view(messages: Sequence[Message], tools: tuple[dict[str, Json], ...]) -> TaskView:
    talk = tuple(dict(m) for m in messages if m["role"] != "system")
    # One user message speaks for itself; a longer conversation needs to show who said what.
    request = talk[0]["content"] if len(talk) == 1 else "\n\n".join(f"{m['role']}: {m['content']}" for m in talk)
    policy = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
    return TaskView(request=request, messages=talk, policy=policy, tools=tools)


def _characters(entry: Entry) -> int:
    tools = shared_package().tools(entry)
    view = _memory_view(entry, PrivateMemory(tools), tools) if entry.category == MEMORY else _live_view(entry)
    return len(view.policy) + len(view.request) + len(canonical_json(list(view.tools)))
