"""What is wrong with a config, collected so that one error names every problem at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from chime_dist.errors import ConfigError

KeyPath = tuple[str | int, ...]
"""Keys and 0-based list indexes from the document's root."""

_SECRET_KEY = re.compile(
    r"^token$|(^|[_-])((api|access|auth|bearer)[_-]?(key|token)|secret|password|passwd|authorization|credentials?)$",
    re.IGNORECASE,
)
_SECRET_ROOMS = frozenset({"headers", "secrets"})


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: where it was written, under which key, and what to do about it."""

    place: str
    """``FILE:LINE`` (1-based), ``--set PATH`` or the name of a stored config."""
    path: KeyPath
    message: str

    def __str__(self) -> str:
        # An override's place is the key already.
        told = not self.path or self.place == f"--set {dotted(self.path)}"
        key = "" if told else f" {dotted(self.path)}:"
        return f"{self.place}:{key} {self.message}"


def dotted(path: Sequence[str | int]) -> str:
    """``methods.0.options.k``: how a key path is written in messages and overrides."""
    return ".".join(f'"{part}"' if "." in str(part) else str(part) for part in path)


def combined(problems: Sequence[Problem]) -> ConfigError:
    """One error that lists every problem, of which there is at least one."""
    lines = [str(problem) for problem in problems]
    if len(lines) == 1:
        return ConfigError(lines[0])
    return ConfigError("\n  ".join([f"{len(lines)} problems in the config:", *lines]))


def refuse(problems: Sequence[Problem]) -> None:
    """Raise ``combined`` of the problems; does nothing without any."""
    if problems:
        raise combined(problems)


def suggestion(name: object, known: Collection[str]) -> str:
    """``did you mean 'x'?``, or the known names where none is close."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known here: {', '.join(sorted(known))}" if known else "nothing is known here"


def looks_secret(name: object) -> bool:
    """Whether a key's name says that its value must never be shown or stored (H6)."""
    return isinstance(name, str) and _SECRET_KEY.search(name) is not None


def conceals(path: Sequence[str | int]) -> bool:
    """Whether the value at a key path may be a secret, so that no message may repeat it (H6)."""
    return any(looks_secret(part) or part in _SECRET_ROOMS for part in path)


def read_text(path: Path) -> str:
    """The file's UTF-8 text; raises ConfigError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}; save the file as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from None
