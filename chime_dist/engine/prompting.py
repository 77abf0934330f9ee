"""Prompts are Jinja files beside their method; this renders them into chat messages.

A prompt is one file with two blocks. ``system`` is the same for every role of an episode, so that planner,
executor and gate share one prefix in the server's cache; ``user`` is the stage's own part and comes last.
``shared/episode.j2`` holds the system block; a method's prompt extends it and fills ``user``. What extends nothing
is the user's words from start to end, unless it puts ``{{ boundary }}`` between the two.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from jinja2 import BaseLoader, Environment, StrictUndefined, TemplateNotFound, UndefinedError

from chime_dist.core.model_call import Message, Turn
from chime_dist.errors import ConfigError

_SHARED = "shared"


class PromptLibrary:
    """All prompts of the methods in use. ``folders`` maps a method's name to its prompt folder."""

    def __init__(self, folders: Mapping[str, Traversable | Path]) -> None:
        self._folders: dict[str, Traversable | Path] = {_SHARED: files("chime_dist.engine") / "prompts", **folders}
        self._environment = Environment(
            loader=_FolderLoader(self._folders),
            undefined=StrictUndefined,
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=False,
        )

    def render(self, turn: Turn) -> tuple[Message, ...]:
        """Messages of a turn: system block, the task's conversation, user block, then the history with its notes.

        Raises ConfigError for an unknown template or a variable the template needs and the turn lacks.
        """
        system, user = self._blocks(turn)
        messages: list[Message] = [{"role": "system", "content": system}] if system else []
        messages += [dict(m) for m in turn.conversation]
        if user:
            _say(messages, user)
        placed = 0
        for note in turn.notes:
            messages += turn.history[placed : note.after]
            placed = note.after
            _say(messages, note.text)
        return (*messages, *turn.history[placed:])

    def fingerprint(self, method: str) -> str:
        """Hex SHA-256 over the method's prompt files and the shared ones; part of a run's identity."""
        hasher = hashlib.sha256()
        for folder in sorted({_SHARED, method} & self._folders.keys()):
            for name, text in sorted(_texts(self._folders[folder])):
                hasher.update(f"{folder}/{name}\0{text}\0".encode())
        return hasher.hexdigest()

    def _blocks(self, turn: Turn) -> tuple[str, str]:
        # The boundary is unguessable: text from a task can never move the line between system and user.
        boundary = secrets.token_hex(16)
        try:
            text = self._environment.get_template(turn.template).render(turn.variables, boundary=boundary)
        except TemplateNotFound as error:
            raise ConfigError(f"prompt {turn.template!r} does not exist: no file {error.name!r}") from None
        except UndefinedError as error:
            raise ConfigError(f"prompt {turn.template!r} needs a variable it was not given: {error}") from None
        system, marked, user = text.partition(boundary)
        return (system.strip(), user.strip()) if marked else ("", text.strip())


def _say(messages: list[Message], text: str) -> None:
    """Add the user's words. Not every chat template takes two messages of one side in a row."""
    last: Message = messages[-1] if messages else {}
    if last.get("role") == "user" and isinstance(last.get("content"), str):
        messages[-1] = {**last, "content": f"{last['content']}\n\n{text}"}
    else:
        messages.append({"role": "user", "content": text})


class _FolderLoader(BaseLoader):
    """``METHOD/NAME`` is the file NAME.j2 in the method's folder."""

    def __init__(self, folders: Mapping[str, Traversable | Path]) -> None:
        self._folders = folders

    def get_source(self, environment: Environment, template: str) -> tuple[str, str | None, None]:
        method, _, name = template.partition("/")
        folder = self._folders.get(method)
        if folder is None or "/" in name or ".." in name:
            raise TemplateNotFound(template)
        path = folder / f"{name}.j2"
        if not path.is_file():
            raise TemplateNotFound(template)
        return path.read_text(encoding="utf-8"), None, None


def _texts(folder: Traversable | Path) -> Iterable[tuple[str, str]]:
    for path in folder.iterdir():
        if path.name.endswith(".j2"):
            yield path.name, path.read_text(encoding="utf-8")
