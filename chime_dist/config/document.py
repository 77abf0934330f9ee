"""A config as a tree of plain values that remembers where each was written."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chime_dist.config.problems import KeyPath, Problem

Tree = Any
"""None, bool, int, float, str, Template, list of trees, or dict from str to tree."""


@dataclass(frozen=True, slots=True)
class Template:
    """Text with ``${NAME}`` in it, not filled yet."""

    text: str
    quoted: bool
    """Unquoted, and nothing but one reference, it may become a number or a boolean."""


@dataclass(frozen=True, slots=True)
class Document:
    """A tree and its places."""

    name: str
    """The file's path, or what else a message should call it."""
    root: Tree
    places: dict[KeyPath, str] = field(default_factory=dict)
    """Where a key path's value was written; absent paths are in their nearest ancestor's place."""

    def place(self, path: KeyPath) -> str:
        """Where the value at ``path``, or the nearest thing around it, was written."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        return self.name

    def problem(self, path: KeyPath, message: str) -> Problem:
        """A problem at a key path of this document."""
        return Problem(self.place(path), path, message)


def stored_document(stored: Mapping[str, Any], name: str) -> Document:
    """A dumped config as a document: only what may hold secrets, ``cluster``, is templates again.

    Everything else was stored resolved, and a ``${`` in it is text.
    """
    root: dict[str, Tree] = copy.deepcopy(dict(stored))
    if "cluster" in root:
        root["cluster"] = _templated(root["cluster"])
    return Document(name, root)


def _templated(tree: Tree) -> Tree:
    match tree:
        case str() if "${" in tree:
            return Template(tree, quoted=True)
        case dict():
            return {key: _templated(value) for key, value in tree.items()}
        case list() | tuple():
            return [_templated(value) for value in tree]
        case _:
            return tree


def described(value: object) -> str:
    """The kind of a value in words, without the value."""
    match value:
        case None:
            return "nothing"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case _:
            return "text"
