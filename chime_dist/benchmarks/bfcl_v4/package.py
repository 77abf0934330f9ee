"""The installed ``bfcl_eval`` package: everything about finding, importing, loading and calling it.

No code of that package is copied here. It is used as a library, with three precautions:

- Its ``constants.model_config`` imports every vendor's SDK for one boolean. A small stand-in takes that name
  before the first import, but never the place of a real one that is already there.
- It creates folders under ``BFCL_PROJECT_ROOT`` when imported, and lock files there when it reads. It gets a
  private temporary one that exists only meanwhile, because a Ray worker is killed without any exit hook; the
  variable itself is put back at once, so no child process inherits it.
- Version and data are pinned, because both decide results. It opens files in the locale's encoding, so a locale
  that would garble the questions is refused.

Reference answers are read on the first check of a category, stay inside this module, and are never part of an
exception: what the evaluator raises may quote them, so only the type's name leaves (R8).
"""

from __future__ import annotations

import codecs
import copy
import hashlib
import importlib
import importlib.metadata
import importlib.util
import locale
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from chime_dist.core.canonical import canonical_json, sha256_hex
from chime_dist.core.episode import Json
from chime_dist.core.model_call import Message
from chime_dist.errors import BenchmarkError, MissingExtraError

VERSION = "2026.3.23"
"""The only version of ``bfcl-eval`` whose data and checker this module knows."""

_INSTALL = f"pip install 'chime-dist[bfcl]' && pip install --no-deps bfcl-eval=={VERSION}"
_ROOT_VARIABLE = "BFCL_PROJECT_ROOT"
_MODEL_CONFIG = "bfcl_eval.constants.model_config"
_ROOT_PREFIX = "chime-dist-bfcl-"


class _Pin(NamedTuple):
    """Hex SHA-256 of a category's files; ``answers`` is None where the package has no reference answers."""

    questions: str
    answers: str | None = None


_PINS = {
    "live_simple": _Pin(
        questions="1af2ac87dca47556db7b7e37e51e28b459a38b594e3c7b3c792b4903598ca0c4",
        answers="fec9cfa9744a936f9126981e85a2023da1e63e273eafebc81923a1162fad70ce",
    ),
    "live_multiple": _Pin(
        questions="fd8ccfad4d911420d0e3341dbe2fff77d1d341da934248b9bb2bda24ab3a10c8",
        answers="97e90d59c5bd76c55a2920ce93e5566e9046307d3f558578f085f9d3a56c3084",
    ),
    "live_parallel": _Pin(
        questions="6c26e9fdc3350cf596e6d1ea9c179cbff834761bccf562f4141ed29a839ca421",
        answers="8a9f189ff0e832ebbbbdade1fd95a7dbcc67406e9177df3f0aad76f59ab00350",
    ),
    "live_parallel_multiple": _Pin(
        questions="21d4b9319c1faac431e22757b367ea28917fe467364c3a4b17f16ec06d4f6e79",
        answers="f5b5f360556c5feb51db46fb9f56ee4b304f4b45b161599bbb14161c98a2873f",
    ),
    "live_irrelevance": _Pin("6559fda2beaceb609a2cd2e504c65b4a56cb448e1ef88fddfd199e163d163349"),
    "live_relevance": _Pin("e03f9e241657a137cba48a89ee12f47bf3fcb7e4f6274263e9c699a0c974203a"),
}

CATEGORIES = tuple(_PINS)
"""The Live categories in the package's own order, which is the order of the task stream (R3)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One question of the dataset, shared by everything in the process: never change it in place."""

    id: str
    category: str
    messages: tuple[Message, ...]
    """System, user and assistant messages, oldest first."""
    functions: tuple[dict[str, Json], ...]
    """Function documents as the checker wants them: original names and types, no language hint."""


def require_installed() -> Path:
    """The package's data folder; imports nothing.

    Raises MissingExtraError, with the install commands, when the package is absent or of another version.
    """
    spec = importlib.util.find_spec("bfcl_eval")
    if spec is None or spec.origin is None:
        raise MissingExtraError(f"benchmark bfcl_v4 needs the package bfcl-eval (Python 3.11 or 3.12): {_INSTALL}")
    try:
        found = importlib.metadata.version("bfcl-eval")
    except importlib.metadata.PackageNotFoundError:
        found = "a copy without version"
    if found != VERSION:
        raise MissingExtraError(f"benchmark bfcl_v4 needs bfcl-eval {VERSION}, found {found}: {_INSTALL}")
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
        self._answers: dict[str, dict[str, Any]] = {}
        _stand_in_for_model_config()
        with _private_root():
            self._utils = _import("bfcl_eval.utils")
            self._model_utils = _import("bfcl_eval.model_handler.utils")
            self._checker = _import("bfcl_eval.eval_checker.ast_eval.ast_checker")
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
                self._verified(category)
                with self._reading():
                    rows = self._utils.load_dataset_entry(
                        category, include_prereq=False, include_language_specific_hint=False
                    )
                self._entries[category] = {row["id"]: _entry(category, row) for row in rows}
            return self._entries[category]

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
        try:
            return self._judge(entry, list(calls))
        except Exception as error:  # noqa: BLE001 - third-party evaluator; the error itself may quote the answer
            failure = type(error).__name__
        # Raised out here so that not even the context of the error leads to the answer.
        raise BenchmarkError(f"the AST checker of bfcl-eval failed on task {entry.id} with {failure}")

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

    def _reference(self, entry: Entry) -> Any:
        with self._lock:
            if entry.category not in self._answers:
                with self._reading():
                    rows = self._utils.load_ground_truth_entry(entry.category)
                self._answers[entry.category] = {row["id"]: row["ground_truth"] for row in rows}
            return self._answers[entry.category][entry.id]

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
                name, pin = f"BFCL_v4_{category}.json", _PINS[category]
                digests = [_check_file(self._data / name, pin.questions)]
                if pin.answers is not None:
                    digests.append(_check_file(self._data / "possible_answer" / name, pin.answers))
                self._digests[category] = ":".join(digests)
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
    return Entry(id=row["id"], category=category, messages=messages, functions=tuple(row["function"]))


def _check_file(path: Path, pinned: str) -> str:
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise BenchmarkError(
            f"cannot read {path.name} of bfcl-eval: {error.strerror}; reinstall: {_INSTALL}"
        ) from None
    if found != pinned:
        raise BenchmarkError(
            f"{path.parent.name}/{path.name} of bfcl-eval {VERSION} has SHA-256 {found}, expected {pinned}: "
            f"the installed data was changed; reinstall with `pip install --force-reinstall --no-deps "
            f"bfcl-eval=={VERSION}`"
        )
    return found


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"bfcl-eval {VERSION} cannot be imported, {error.name or error} is missing "
            f"(Python 3.11 or 3.12): {_INSTALL}"
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
