"""Reading the arguments of a model's tool call: one JSON object, or a reason in words the model can act on (A2).

Besides JSON text two spellings are accepted because they are unambiguous: an object that arrives already
decoded, and a Python literal (``{'city': 'Paris', 'n': None}``). Nothing is repaired or guessed: two objects, a
missing brace, a list or a key given twice are errors. Half a character in a value becomes U+FFFD, as in any text.
"""

from __future__ import annotations

import ast
import json
import math
import warnings
from typing import NamedTuple

from chime_dist.core.episode import Json
from chime_dist.core.text import whole_characters

_LITERAL_LIMIT = 100_000
"""Characters. Python's parser is given nothing longer: deep or huge input can exhaust its stack."""

_DEPTH_LIMIT = 64
"""Levels. Deeper values parse, and then exhaust the stack of whoever writes them back."""


_TOO_DEEP = "the arguments are nested too deeply"


class Arguments(NamedTuple):
    """``value`` or ``error``, never both. ``raw`` is the text as received."""

    value: dict[str, Json] | None
    raw: str
    error: str | None


class _UnusableError(Exception):
    """Why the arguments cannot be used; the message is meant for the model."""


def read_arguments(received: Json) -> Arguments:
    """Read what a server sent as ``function.arguments``; never raises."""
    raw = whole_characters(received) if isinstance(received, str) else _spelling(received)
    try:
        value = _parse(received) if isinstance(received, str) else received
        if not isinstance(value, dict):
            raise _UnusableError(f"the arguments must be one JSON object, got {_kind(value)}")
        return Arguments({_named(key): _writable(item) for key, item in value.items()}, raw, None)
    except _UnusableError as error:
        return Arguments(None, raw, str(error))
    except RecursionError:
        return Arguments(None, raw, _TOO_DEEP)


def _parse(text: str) -> Json:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        literal = _python_literal(text)
        if literal is not None:
            return _plain(literal)
        raise _UnusableError(_syntax_message(text, error)) from None
    except ValueError:
        raise _UnusableError("the arguments hold a number with too many digits") from None


def _syntax_message(text: str, error: json.JSONDecodeError) -> str:
    if not text.strip():
        return "the arguments are empty; send {} for none"
    if error.msg == "Extra data":
        return f"the arguments must be one JSON object, but something follows it at character {error.pos}"
    return f"the arguments are not valid JSON: {error.msg} at character {error.pos}"


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _UnusableError(f"the arguments give the key {twice!r} more than once")
    return value


def _python_literal(text: str) -> ast.expr | None:
    if len(text) > _LITERAL_LIMIT or not text.lstrip().startswith("{"):
        return None
    try:
        with warnings.catch_warnings():
            # A model's odd backslash is no concern of the process's warning filters.
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError):
        return None


def _plain(node: ast.expr) -> Json:
    """The JSON value of a Python literal; only what JSON can hold is read, nothing is evaluated."""
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_plain(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return _object([(_key(key), _plain(value)) for key, value in zip(keys, values, strict=True)])
    raise _UnusableError("the arguments are not valid JSON")


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _UnusableError("the arguments are not valid JSON: every key must be a string")


def _writable(value: Json, depth: int = 1) -> Json:
    """The value with whole characters; raises where it could not be written back as UTF-8 JSON."""
    if depth > _DEPTH_LIMIT:
        raise _UnusableError(_TOO_DEEP)
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise _UnusableError("the arguments hold a number that is not finite")
    if isinstance(value, list):
        return [_writable(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_named(key): _writable(item, depth + 1) for key, item in value.items()}
    return value


def _named(key: str) -> str:
    # A key names a parameter: a replaced one would name another, or be given twice.
    if whole_characters(key) != key:
        raise _UnusableError("a key of the arguments holds half a character (a lone surrogate)")
    return key


def _kind(value: Json) -> str:
    names = {type(None): "null", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")


def _spelling(value: Json) -> str:
    try:
        return whole_characters(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        return "(nested too deeply to be shown)"
