"""``--set a.b=c``: changes to a config before it is filled and validated."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass

from chime_dist.config.document import Document, Tree, described
from chime_dist.config.problems import KeyPath, dotted, suggestion
from chime_dist.config.yaml_reader import parse_value
from chime_dist.errors import ConfigError

_PART = re.compile(r'"([^"]*)"|([^."=]+)')


@dataclass(frozen=True, slots=True)
class _Assignment:
    parts: tuple[str, ...]
    """As written between dots."""
    value: str

    @property
    def place(self) -> str:
        """What messages call it: the path alone, because the value may be a secret."""
        return f"--set {dotted(self.parts)}"


def apply_overrides(document: Document, assignments: Sequence[str]) -> Document:
    """The document with every ``PATH=VALUE`` put in, in order; the value is YAML.

    A path names keys, 0-based list indexes, or the name of a list's entry (``methods.chime.retrieval.k``). A key
    with dots in it is found where it exists, or written in double quotes. Raises ConfigError for a malformed
    assignment and for a list entry that does not exist; unknown keys are found when the result is validated.
    """
    tree = copy.deepcopy(document.root)
    places = dict(document.places)
    for text in assignments:
        assignment = _parse(text)
        written = _put(tree, assignment)
        for known in [known for known in places if known[: len(written[-1])] == written[-1]]:
            del places[known]
        places |= dict.fromkeys(written, assignment.place)
    return Document(document.name, tree, places)


def _parse(text: str) -> _Assignment:
    parts: list[str] = []
    at = 0
    while found := _PART.match(text, at):
        parts.append((found[1] if found[1] is not None else found[2]).strip())
        at = found.end()
        if text[at : at + 1] == "=":
            return _Assignment(tuple(parts), text[at + 1 :])
        if text[at : at + 1] != ".":
            break
        at += 1
    path, equals, _ = text.partition("=")
    # Without an equals sign nobody knows where the path ends and a value, perhaps a secret, begins.
    place = f"--set {path}" if equals else "a --set without '='"
    raise ConfigError(f"{place}: an override is PATH=VALUE with dots between keys, e.g. protocol.limit=12")


def _put(tree: Tree, assignment: _Assignment) -> list[KeyPath]:
    """Change ``tree``; returns the key paths that did not exist before, and the assigned one last."""
    node: Tree = tree
    parts = assignment.parts
    path: KeyPath = ()
    created: list[KeyPath] = []
    while True:
        key, taken = _step(node, parts, path, assignment)
        parts, path = parts[taken:], (*path, key)
        if not parts:
            node[key] = parse_value(assignment.value, assignment.place, path)
            return [*created, path]
        in_list = isinstance(node, list)
        child: Tree = node[key] if in_list else node.get(key)
        if child is None:
            child = {}
            created.append(path)
        elif in_list and isinstance(child, str):
            child = {"name": child}
        elif not isinstance(child, dict | list):
            raise ConfigError(
                f"{assignment.place}: {dotted(path)} holds {described(child)}, not a mapping; set it as a whole,"
                f" e.g. --set '{dotted(path)}={{KEY: VALUE}}'"
            )
        node[key] = child
        node = child
        if in_list and isinstance(node, dict) and isinstance(node.get("options"), dict) and parts[0] not in node:
            # A component in its long form, as a stored config holds it.
            node, path = node["options"], (*path, "options")


def _step(node: Tree, parts: tuple[str, ...], path: KeyPath, assignment: _Assignment) -> tuple[str | int, int]:
    """The key or index that the first parts name in ``node``, and how many parts that took."""
    if isinstance(node, list):
        return _entry(node, parts, path, assignment)
    for taken in range(len(parts), 0, -1):
        if (key := ".".join(parts[:taken])) in node:
            return key, taken
    return parts[0], 1


def _entry(node: list[Tree], parts: tuple[str, ...], path: KeyPath, assignment: _Assignment) -> tuple[int, int]:
    where = f"{assignment.place}: {dotted(path)}"
    if parts[0].isdecimal():
        index = int(parts[0])
        if index >= len(node):
            raise ConfigError(f"{where} has {len(node)} entries, 0 to {len(node) - 1}; there is no {index}")
        return index, 1
    names = [_name_of(entry) for entry in node]
    for taken in range(len(parts), 0, -1):
        name = ".".join(parts[:taken])
        if names.count(name) > 1:
            raise ConfigError(f"{where} has {names.count(name)} entries named {name!r}; use an index, e.g. 0")
        if name in names:
            return names.index(name), taken
    known = [name for name in names if name is not None]
    raise ConfigError(f"{where} has no entry {parts[0]!r}; {suggestion(parts[0], known)}")


def _name_of(entry: Tree) -> str | None:
    name = entry.get("name") if isinstance(entry, dict) else entry
    return name if isinstance(name, str) else None
