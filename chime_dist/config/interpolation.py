"""``${NAME}`` and ``${NAME:-default}`` in a config's values, filled from the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from chime_dist.config.document import Document, Template, Tree
from chime_dist.config.problems import KeyPath, Problem, looks_secret
from chime_dist.config.scalars import read_plain
from chime_dist.config.secrets import Interpolated

# An escape, a reference, or a "${" that is neither.
_PART = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<tail>:-(?P<default>[^}]*))?\}|\$\{")
_SECRET_VARIABLE = re.compile(r"(^|_)(KEY|APIKEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)

SECRET_ROOM = "cluster"
"""The only top-level key whose values may be secrets: everything else is stored with the results."""


@dataclass(slots=True)
class Filled:
    """A document's tree with every template filled."""

    root: Tree
    templates: dict[KeyPath, str] = field(default_factory=dict)
    """What was written at the paths that were filled; messages show this, never the value."""
    problems: list[Problem] = field(default_factory=list)


def fill(document: Document, environ: Mapping[str, str]) -> Filled:
    """Fill every template of ``document``.

    An unquoted value that is one reference and nothing else becomes a number or a boolean where its text is
    exactly one; everything else is text. ``$${`` is a literal ``${``. Problems: a variable that is not set, a
    malformed reference, and a secret outside ``cluster``.
    """
    filled = Filled(None)
    filled.root = _walk(document.root, (), document, environ, filled)
    return filled


def _walk(tree: Tree, path: KeyPath, document: Document, environ: Mapping[str, str], filled: Filled) -> Tree:
    match tree:
        case Template():
            return _fill_one(tree, path, document, environ, filled)
        case dict():
            for key in tree:
                if path[:1] != (SECRET_ROOM,) and looks_secret(key):
                    filled.problems.append(document.problem((*path, key), _misplaced("a key with this name")))
            return {key: _walk(value, (*path, key), document, environ, filled) for key, value in tree.items()}
        case list():
            return [_walk(value, (*path, i), document, environ, filled) for i, value in enumerate(tree)]
        case _:
            return tree


def _fill_one(
    template: Template, path: KeyPath, document: Document, environ: Mapping[str, str], filled: Filled
) -> Tree:
    filled.templates[path] = template.text
    in_secret_room = path[:1] == (SECRET_ROOM,)
    unset: dict[str, None] = {}

    def part(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        name = found["name"]
        if name is None:
            message = "holds a malformed reference; write ${NAME} or ${NAME:-default}, and $${ for a literal ${"
            filled.problems.append(document.problem(path, message))
            return ""
        if not in_secret_room and _SECRET_VARIABLE.search(name):
            filled.problems.append(document.problem(path, _misplaced(f"the variable {name}")))
            return ""
        value = environ.get(name, "")
        if value or (name in environ and found["tail"] is None):
            return value
        if found["tail"] is not None:
            default: str = found["default"]
            return default
        unset.setdefault(name)
        return ""

    text = _PART.sub(part, template.text)
    for name in unset:
        message = f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
        filled.problems.append(document.problem(path, message))
    whole = _PART.fullmatch(template.text)
    if not template.quoted and whole is not None and whole["name"] is not None:
        typed = _typed(text)
        if not isinstance(typed, str):
            return typed
    return Interpolated(text, template.text) if in_secret_room else text


def _typed(text: str) -> int | float | bool | str:
    try:
        value = read_plain(text)
    except ValueError:
        return text
    return text if value is None else value


def _misplaced(what: str) -> str:
    return (
        f"{what} looks like a secret, and everything outside 'cluster' is stored with the results;"
        " put it under cluster.secrets or an endpoint's api_key"
    )
