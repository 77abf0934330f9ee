"""The installed ``bfcl_eval`` package: everything about finding, importing, loading and calling it.

No code of that package is copied here. It is used as a library, with four precautions:

- Its ``constants.model_config`` imports every vendor's SDK for one boolean. A small stand-in takes that name
  before the first import, but never the place of a real one that is already there.
- It creates folders under ``BFCL_PROJECT_ROOT`` when imported, and lock files there when it reads. It gets a
  private temporary one that exists only meanwhile, because a Ray worker is killed without any exit hook; the
  variable itself is put back at once, so no child process inherits it.
- Version and data are pinned, because both decide results. It opens files in the locale's encoding, so a locale
  that would garble the questions is refused.
- Its executor of tool calls is never used: that one evaluates text from the model, and its instances live in
  module globals. Whoever wants to call tools gets a private instance here.

Reference answers are read on the first check of a category, stay inside this module, and are never part of an
exception: what the evaluator raises may quote them, so only the type's name leaves (R8).
"""

from __future__ import annotations

import codecs
import copy
import importlib
import importlib.metadata
import importlib.util
import locale
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from chime_dist.benchmarks.bfcl_v4.pins import INSTALL, MEMORY, VERSION, verified
from chime_dist.core.canonical import canonical_json, sha256_hex
from chime_dist.core.episode import Json
from chime_dist.core.model_call import Message
from chime_dist.errors import BenchmarkError, MissingExtraError

_ROOT_VARIABLE = "BFCL_PROJECT_ROOT"
_MODEL_CONFIG = "bfcl_eval.constants.model_config"
_ROOT_PREFIX = "chime-dist-bfcl-"


@dataclass(frozen=True, slots=True)
class Entry:
    """One question of the dataset, shared by everything in the process: never change it in place."""

    id: str
    category: str
    messages: tuple[Message, ...]
    """System, user and assistant messages, oldest first."""
    functions: tuple[dict[str, Json], ...]
    """Function documents as the checker wants them: original names and types, no language hint."""
    scenario: str = ""
    """Of a memory question: whose conversations it asks about."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a scenario's user says in one session, before the questions; shared, never changed in place."""

    id: str
    scenario: str
    turns: tuple[tuple[Message, ...], ...]
    """What is said at once, oldest first."""


def require_installed() -> Path:
    """The package's data folder; imports nothing.

    Raises MissingExtraError, with the install commands, when the package is absent or of another version.
    """
    spec = importlib.util.find_spec("bfcl_eval")
    if spec is None or spec.origin is None:
        raise MissingExtraError(f"benchmark bfcl_v4 needs the package bfcl-eval (Python 3.11 or 3.12): {INSTALL}")
    try:
        found = importlib.metadata.version("bfcl-eval")
    except importlib.metadata.PackageNotFoundError:
        found = "a copy without version"
    if found != VERSION:
        raise MissingExtraError(f"benchmark bfcl_v4 needs bfcl-eval {VERSION}, found {found}: {INSTALL}")
    return Path(spec.origin).parent / "data"


class BfclPackage:
    """The package, imported and checked, with its data cached by category. Safe to use from many threads.

    Raises MissingExtraError like ``require_installed``, and when something the package imports is absent;
    BenchmarkError where files are not opened as UTF-8.
    """

    def __init__(self) -> None:
        self._data = require_installed()
        encoding = locale.getpreferredencoding(False)
        if codecs.lookup(encoding).name != "utf-8":
            raise BenchmarkError(f"bfcl-eval would read its UTF-8 data as {encoding}: set PYTHONUTF8=1")
        self._lock = threading.RLock()
        self._digests: dict[str, str] = {}
        self._entries: dict[str, dict[str, Entry]] = {}
        self._conversations: dict[str, tuple[Conversation, ...]] = {}
        self._answers: dict[str, dict[str, Any]] = {}
        _stand_in_for_model_config()
        with _private_root():
            self._utils = _import("bfcl_eval.utils")
            self._model_utils = _import("bfcl_eval.model_handler.utils")
            self._checker = _import("bfcl_eval.eval_checker.ast_eval.ast_checker")
            self._agentic = _import("bfcl_eval.eval_checker.agentic_eval.agentic_checker")
            self._memory = _import("bfcl_eval.eval_checker.multi_turn_eval.func_source_code.memory_kv")
            self._enums = _import("bfcl_eval.constants.enums")
            self._types = _import("bfcl_eval.constants.type_mappings")
        # The checker looks up one thing by model name: whether "." in a function's name became "_", which is
        # what ``tools`` does. It reads "_" in the model's own name as "/", hence no such name.
        models = self._checker.MODEL_CONFIG_MAPPING
        self._model = next(name for name, config in models.items() if config.underscore_to_dot and "_" not in name)

    def data_sha256(self, categories: Iterable[str]) -> str:
        """Hex digest over the question and answer files of these categories, whatever order they come in.

        Raises BenchmarkError for a file that is absent or differs from the pinned one.
        """
        return sha256_hex(canonical_json({c: self._verified(c) for c in categories}))

    def entries(self, category: str) -> dict[str, Entry]:
        """Questions of a category by id, in the package's order. Raises BenchmarkError for damaged data."""
        with self._lock:
            if category not in self._entries:
                self._entries[category] = {row["id"]: _entry(category, row) for row in self._rows(category)}
            return self._entries[category]

    def conversations(self) -> dict[str, tuple[Conversation, ...]]:
        """By scenario, what was said before the memory questions, oldest session first. Raises BenchmarkError."""
        with self._lock:
            if not self._conversations:
                found: dict[str, list[Conversation]] = {}
                for row in self._rows(MEMORY, include_prereq=True):
                    if self._utils.is_memory_prereq(row["id"]):
                        turns = tuple(tuple(turn) for turn in row["question"])
                        found.setdefault(row["scenario"], []).append(
                            Conversation(row["id"], row["scenario"], turns)
                        )
                self._conversations = {scenario: tuple(talks) for scenario, talks in found.items()}
            return self._conversations

    def memory(self) -> Any:
        """A new, empty ``MemoryAPI_kv`` that nobody else has. It knows no folder: it cannot write files."""
        return self._memory.MemoryAPI_kv()

    def instructed(self, messages: Sequence[Message], scenario: str, memory: Any) -> list[Message]:
        """A copy of the messages that begins with the package's instruction: setting and core memory."""
        turns = [copy.deepcopy(list(messages))]
        (told,) = self._model_utils.add_memory_instruction_system_prompt(turns, MEMORY, scenario, memory)
        return list(told)

    def tools(self, entry: Entry) -> tuple[dict[str, Json], ...]:
        """Fresh OpenAI tool definitions: "." in names is "_", types are JSON schema's; may be empty."""
        row = {"id": entry.id, "function": copy.deepcopy(list(entry.functions))}
        (hinted,) = self._utils.add_language_specific_hint_to_function_doc([row])
        converted = self._model_utils.convert_to_tool(
            hinted["function"], self._types.GORILLA_TO_OPENAPI, self._enums.ModelStyle.OPENAI_COMPLETIONS
        )
        return tuple(converted)

    def accepts(self, entry: Entry, calls: Sequence[dict[str, dict[str, Json]]]) -> bool:
        """Whether the official AST checker takes ``calls``, each ``{name: arguments}`` with names as in ``tools``.

        Raises BenchmarkError when the checker fails or the category has no reference answers; the message says
        nothing about them.
        """
        return _verdict("AST", entry, partial(self._judge, entry, list(calls)))

    def answers(self, entry: Entry, text: str) -> bool:
        """Whether the official agentic checker finds an accepted answer in ``text``, as a word of its own.

        It looks for the words alone: "not called Michael" passes where Michael does. Raises BenchmarkError like
        ``accepts``.
        """
        return _verdict("agentic", entry, partial(self._mentions, entry, text))

    def _judge(self, entry: Entry, calls: list[dict[str, dict[str, Json]]]) -> bool:
        if not self._utils.is_function_calling_format_output(calls):
            return False
        verdict = self._checker.ast_checker(
            list(entry.functions),
            calls,
            self._reference(entry),
            self._enums.Language.PYTHON,
            entry.category,
            self._model,
        )
        return bool(verdict["valid"])

    def _mentions(self, entry: Entry, text: str) -> bool:
        return bool(self._agentic.agentic_checker(text, self._reference(entry))["valid"])

    def _reference(self, entry: Entry) -> Any:
        with self._lock:
            if entry.category not in self._answers:
                with self._reading():
                    rows = self._utils.load_ground_truth_entry(entry.category)
                # Memory questions have other ids than their answers; what they share is the place in the file.
                ids = self.entries(MEMORY) if entry.category == MEMORY else [row["id"] for row in rows]
                self._answers[entry.category] = {
                    key: row["ground_truth"] for key, row in zip(ids, rows, strict=True)
                }
            return self._answers[entry.category][entry.id]

    def _rows(self, category: str, *, include_prereq: bool = False) -> list[dict[str, Any]]:
        self._verified(category)
        with self._reading():
            rows: list[dict[str, Any]] = self._utils.load_dataset_entry(
                category, include_prereq=include_prereq, include_language_specific_hint=False
            )
        return rows

    @contextmanager
    def _reading(self) -> Iterator[None]:
        root: Path = self._utils.PROJECT_ROOT
        if not root.name.startswith(_ROOT_PREFIX):  # someone imported the package before us: their folder, kept
            yield
            return
        self._utils.LOCK_DIR.mkdir(parents=True, exist_ok=True)
        try:
            yield
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def _verified(self, category: str) -> str:
        with self._lock:
            if category not in self._digests:
                self._digests[category] = verified(self._data, category)
            return self._digests[category]


_shared_lock = threading.Lock()
_shared: BfclPackage | None = None


def shared_package() -> BfclPackage:
    """The process's one instance, created on first use; see BfclPackage for what it raises."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = BfclPackage()
        return _shared


def _entry(category: str, row: dict[str, Any]) -> Entry:
    messages = tuple(message for turn in row["question"] for message in turn)
    functions = row["function"]
    if category == MEMORY:
        # What a function returns is no part of a tool's definition.
        functions = [{key: value for key, value in f.items() if key != "response"} for f in functions]
    return Entry(row["id"], category, messages, tuple(functions), row.get("scenario", ""))


def _verdict(checker: str, entry: Entry, judge: Callable[[], bool]) -> bool:
    try:
        return judge()
    except Exception as error:  # noqa: BLE001 - third-party evaluator; the error itself may quote the answer
        failure = type(error).__name__
    # Raised out here so that not even the context of the error leads to the answer.
    raise BenchmarkError(f"the {checker} checker of bfcl-eval failed on task {entry.id} with {failure}")


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"bfcl-eval {VERSION} cannot be imported, {error.name or error} is missing "
            f"(Python 3.11 or 3.12): {INSTALL}"
        ) from error


@contextmanager
def _private_root() -> Iterator[None]:
    before = os.environ.get(_ROOT_VARIABLE)
    with tempfile.TemporaryDirectory(prefix=_ROOT_PREFIX) as root:
        os.environ[_ROOT_VARIABLE] = root
        try:
            yield
        finally:
            if before is None:
                del os.environ[_ROOT_VARIABLE]
            else:
                os.environ[_ROOT_VARIABLE] = before


def _stand_in_for_model_config() -> None:
    if _MODEL_CONFIG not in sys.modules:
        stand_in = ModuleType(_MODEL_CONFIG, "Stands in for a module that imports every vendor's SDK.")
        stand_in.__dict__["MODEL_CONFIG_MAPPING"] = {"chime-dist": SimpleNamespace(underscore_to_dot=True)}
        sys.modules[_MODEL_CONFIG] = stand_in
