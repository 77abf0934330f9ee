"""From pydantic's errors to problems with a place, a value, what was expected, and the likely spelling."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from chime_dist.config.document import Document, Tree, described
from chime_dist.config.problems import KeyPath, Problem, combined, conceals, suggestion

Model = TypeVar("Model", bound=BaseModel)

_LONGEST_SHOWN = 60

_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "float_type": "a number",
    "int_type": "a whole number",
    "model_type": "a mapping",
    "string_type": "text",
    "tuple_type": "a list",
}


def validated(model: type[Model], tree: Tree, place: str, path: KeyPath = ()) -> Model:
    """``tree`` as ``model``, e.g. a component's options as the component's own model.

    ``place`` and ``path`` say where the tree was written. Raises ConfigError with every problem: unknown keys
    with the likely spelling, wrong types with place, value and what was expected; never a secret's value (H6).
    """
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        problems = problems_of(error, model, Document(place, tree), {})
    raise combined([Problem(p.place, (*path, *p.path), p.message) for p in problems])


def problems_of(
    error: ValidationError, model: type[BaseModel], document: Document, templates: Mapping[KeyPath, str]
) -> list[Problem]:
    """Every problem in ``error``, which came from validating the document's root as ``model``.

    ``templates`` holds what was written at paths that were interpolated; it is shown in place of the value.
    """
    found = []
    for details in error.errors(include_url=False):
        if details["type"] == "too_short" and len(details["input"]) >= details["ctx"]["min_length"]:
            continue  # Entries are there; each that is not valid has a problem of its own.
        path = _path_in(document.root, details["loc"], missing=details["type"] == "missing")
        found.append(document.problem(path, _message(details, path, model, templates)))
    return found


def _message(
    details: ErrorDetails, path: KeyPath, model: type[BaseModel], templates: Mapping[KeyPath, str]
) -> str:
    kind, text = details["type"], details["msg"]
    if kind == "extra_forbidden":
        return f"unknown key; {suggestion(path[-1], _keys_around(model, details['loc']))}"
    if kind == "too_short":
        return f"is empty; list at least {details['ctx']['min_length']}"
    if kind == "missing":
        return "is missing; it has no default"
    if kind == "union_tag_invalid":
        return f"unknown kind; expected one of {details['ctx']['expected_tags']}"
    if kind == "value_error":
        return text.removeprefix("Value error, ")
    if kind.startswith("secret_"):
        return f"{templates[path]} {text}" if path in templates else text
    expected = f"expected {_EXPECTED[kind]}" if kind in _EXPECTED else text.replace("Input should be", "expected")
    # What stands in a whole mapping's or list's place may be one of its secrets.
    whole = _EXPECTED.get(kind) in ("a mapping", "a list")
    shown = described(details["input"]) if whole else _shown(details["input"], path, templates)
    return f"{shown}: {expected}{_quote_hint(kind, details['input'])}"


def _shown(value: object, path: KeyPath, templates: Mapping[KeyPath, str]) -> str:
    if path in templates:
        return templates[path]
    if conceals(path) or not isinstance(value, str | int | float | bool | None):
        return described(value)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _quote_hint(kind: str, value: object) -> str:
    wants_text = kind in ("string_type", "literal_error", "enum")
    return "; quote it" if wants_text and isinstance(value, int | float | bool) else ""


def _path_in(root: Tree, loc: tuple[int | str, ...], missing: bool) -> KeyPath:
    """``loc`` without what pydantic adds to it: union tags, and marks for keys and functions.

    ``missing``: its last part is a key that ought to be there.
    """
    path: list[str | int] = []
    tree = root
    for index, part in enumerate(loc):
        if _holds(tree, part):
            tree = tree[part]
        elif not (missing and index == len(loc) - 1 and isinstance(tree, dict)):
            continue
        path.append(part)
    return tuple(path)


def _holds(tree: Tree, part: int | str) -> bool:
    if isinstance(tree, dict):
        return part in tree
    return isinstance(tree, list | tuple) and isinstance(part, int) and part < len(tree)


def _keys_around(model: type[BaseModel], loc: tuple[int | str, ...]) -> set[str]:
    """Keys that the mapping which holds ``loc`` may have; a union's tag in ``loc`` picks its member."""
    models = [model]
    for part in loc[:-1]:
        fields = [m.model_fields[part] for m in models if isinstance(part, str) and part in m.model_fields]
        if fields:
            models = [inner for field in fields for inner in _models_in(field.annotation)]
        else:
            models = [m for m in models if part in _kinds(m)] or models
    return {name for m in models for name in m.model_fields}


def _kinds(model: type[BaseModel]) -> tuple[object, ...]:
    kind = model.model_fields.get("kind")
    return get_args(kind.annotation) if kind is not None else ()


def _models_in(annotation: Any) -> Iterable[type[BaseModel]]:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for argument in get_args(annotation) for model in _models_in(argument)]
