"""YAML as a ``Document``, read by its events, so that nothing is decided before we see it.

Duplicate keys, tags, merge keys and scalars that YAML's versions read differently are errors with a line.
``${NAME}`` stays a ``Template``, which ``interpolation`` fills.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentEndEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
)

from chime_dist.config.document import Document, Template, Tree, described
from chime_dist.config.problems import KeyPath, Problem, conceals, read_text, refuse
from chime_dist.config.scalars import read_plain
from chime_dist.errors import ConfigError


def read_document(path: Path) -> Document:
    """Read a YAML file. Raises ConfigError with every problem found, each with file and line."""
    return parse_document(read_text(path), str(path))


def parse_document(text: str, name: str) -> Document:
    """Read YAML text whose root is a mapping. Raises ConfigError; ``name`` is what messages call the text."""
    reader = _Reader(text, name)
    root = reader.read()
    if root is None and not reader.problems:
        raise ConfigError(f"{name}: is empty; a sweep needs at least name, benchmarks, methods and backbones")
    if not isinstance(root, dict) and not reader.problems:
        raise ConfigError(f"{name}: a config is a mapping of keys to values, not {described(root)}")
    refuse(reader.problems)
    return Document(name, root, reader.places)


def parse_value(text: str, name: str, path: KeyPath) -> Tree:
    """Read one YAML value, as an override for ``path``. Raises ConfigError."""
    reader = _Reader(text, name, path, numbered=False)
    value = reader.read()
    refuse(reader.problems)
    return value


class _Reader:
    """One pass over a text's events; collects problems and goes on where that is possible."""

    def __init__(self, text: str, name: str, root: KeyPath = (), numbered: bool = True) -> None:
        self._text = text
        self._name = name
        self._root = root
        self._numbered = numbered
        self._anchors: dict[str, tuple[Tree, KeyPath]] = {}
        self.problems: list[Problem] = []
        self.places: dict[KeyPath, str] = {}

    def read(self) -> Tree:
        """The root's value, None where there is none."""
        events: Iterator[Event] = iter(YAML(typ="safe", pure=True).parse(self._text))
        root: Tree = None
        documents = 0
        try:
            for event in events:
                if isinstance(event, NodeEvent):
                    root = self._value(event, events, self._root)
                elif isinstance(event, DocumentEndEvent):
                    documents += 1
        except YAMLError as error:
            self.problems.append(self._unreadable(error))
            return None
        if documents > 1:
            self.problems.append(Problem(self._name, (), f"holds {documents} YAML documents; keep one"))
        return root

    def _value(self, event: Event, events: Iterator[Event], path: KeyPath) -> Tree:
        self.places[path] = self._place(event)
        if isinstance(event, AliasEvent):
            return self._aliased(event, path)
        if isinstance(event, ScalarEvent):
            value = self._scalar(event, path)
        elif isinstance(event, MappingStartEvent):
            value = self._mapping(events, path)
        else:
            value = self._sequence(events, path)
        if isinstance(event, ScalarEvent | CollectionStartEvent):
            if event.tag is not None:
                message = f"the YAML tag {event.tag} is not supported; quote text, leave numbers bare"
                self._problem(event, path, message)
            if event.anchor is not None:
                self._anchors[event.anchor] = (value, path)
        return value

    def _scalar(self, event: ScalarEvent, path: KeyPath) -> Tree:
        text: str = event.value
        quoted = event.style is not None
        if "${" in text:
            return Template(text, quoted)
        if quoted:
            return text
        try:
            return read_plain(text)
        except ValueError as error:
            self._problem(event, path, "quote this value" if conceals(path) else str(error))
            return text

    def _sequence(self, events: Iterator[Event], path: KeyPath) -> list[Tree]:
        values: list[Tree] = []
        for event in events:
            if isinstance(event, SequenceEndEvent):
                break
            values.append(self._value(event, events, (*path, len(values))))
        return values

    def _mapping(self, events: Iterator[Event], path: KeyPath) -> dict[str, Tree]:
        values: dict[str, Tree] = {}
        lines: dict[str, str] = {}
        for event in events:
            if isinstance(event, MappingEndEvent):
                break
            key = self._key(event, events, path)
            if key in lines:
                self._problem(event, (*path, key), f"is written twice, first at {lines[key]}; keep one")
            lines[key] = self._place(event)
            value = self._value(next(events), events, (*path, key))
            # A value on the lines after its key is looked for where the key is.
            self.places[*path, key] = lines[key]
            values[key] = value
        return values

    def _key(self, event: Event, events: Iterator[Event], path: KeyPath) -> str:
        if not isinstance(event, ScalarEvent):
            self._problem(event, path, "a key is text, not a list, a mapping or an alias")
            return str(self._value(event, events, path))
        text: str = event.value
        if event.style is None:
            if text == "<<":
                self._problem(event, path, "merge keys (<<) are not supported; use an anchor for the whole value")
            else:
                self._refuse_odd_key(event, text, path)
        return text

    def _refuse_odd_key(self, event: Event, text: str, path: KeyPath) -> None:
        try:
            value = read_plain(text)
        except ValueError as error:
            self._problem(event, (*path, text), f"as a key: {error}")
            return
        if not isinstance(value, str):
            self._problem(event, (*path, text), f"a key is text, and {text} is {described(value)}: quote it")

    def _aliased(self, event: AliasEvent, path: KeyPath) -> Tree:
        if event.anchor not in self._anchors:
            self._problem(event, path, f"*{event.anchor} refers to no anchor written before it")
            return None
        value, source = self._anchors[event.anchor]
        for known, place in list(self.places.items()):
            if known[: len(source)] == source and known != source:
                self.places[path + known[len(source) :]] = place
        return copy.deepcopy(value)

    def _place(self, event: Event) -> str:
        return f"{self._name}:{event.start_mark.line + 1}" if self._numbered else self._name

    def _problem(self, event: Event, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self._place(event), path, message))

    def _unreadable(self, error: YAMLError) -> Problem:
        # ruamel's own text holds a snippet of the file, which may be a secret.
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        reason = error.problem if isinstance(error, MarkedYAMLError) else "it holds characters YAML does not allow"
        place, hint = self._name, ""
        if mark is not None:
            lines = self._text.splitlines()
            if self._numbered:
                place = f"{self._name}:{mark.line + 1}"
            if mark.line < len(lines) and "${" in lines[mark.line]:
                hint = '; inside {...} or [...] write a reference in quotes: "${NAME}"'
        return Problem(place, (), f"is not YAML: {reason}{hint}")
