"""An instance of a JSON schema, chosen by a stream of hashed draws: same schema, words and draws, same value.

Understands what schemas of model turns and tool definitions use: types, ``enum`` and ``const``, bounds of numbers,
strings and arrays, ``prefixItems``, ``uniqueItems``, nested objects, ``$ref`` inside the schema, ``allOf`` of
parts that do not contradict each other, ``anyOf`` and ``oneOf`` (one branch is taken; that exactly one matches is
the schema's own promise). ``format`` is an annotation. Keywords that would need a search (``pattern``, ``not``,
``if`` and more) are refused by name, as a server with guided decoding would.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from chime_dist.core.canonical import canonical_json
from chime_dist.core.episode import Json

_REFUSED = frozenset(
    {
        "contains",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "else",
        "if",
        "maxProperties",
        "minProperties",
        "not",
        "pattern",
        "patternProperties",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_ANNOTATIONS = frozenset({"$comment", "$defs", "default", "description", "examples", "format", "title"})
_SPREAD = 9
"""Width of a number's range where the schema leaves one end open."""
_MORE_ITEMS = 2
"""Items beyond ``minItems`` where ``maxItems`` is open."""
_WORDS = (3, 8)
"""Fewest and most words of a string."""
_SHALLOW = 4
"""Beyond this depth only what is required is built, so recursive schemas end."""
_DEEPEST = 32


class SchemaError(ValueError):
    """The schema uses a keyword that is not understood, or nothing satisfies it."""


class HashDraws:
    """An endless stream of uniform draws that depends only on ``key`` (any bytes)."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.sha256(key).digest()
        self._drawn = 0

    def below(self, bound: int) -> int:
        """A uniform integer in [0, ``bound``); ``bound`` is at least 1."""
        self._drawn += 1
        size = max(16, bound.bit_length() // 8 + 9)
        digest = hashlib.shake_256(self._key + self._drawn.to_bytes(8, "big")).digest(size)
        return int.from_bytes(digest, "big") % bound

    def unit(self) -> float:
        """A uniform float in [0, 1)."""
        return self.below(2**53) / 2**53


class InstanceBuilder:
    """Builds instances of one schema document; strings are runs of consecutive ``words``."""

    def __init__(self, document: Mapping[str, Json], draws: HashDraws, words: Sequence[str]) -> None:
        self._document = document
        self._draws = draws
        self._words = tuple(words) or ("ok",)

    def build(self) -> Json:
        """One instance of the whole document. Raises SchemaError."""
        return self._value(self._document, "#", 0)

    def text(self) -> str:
        """A run of consecutive words."""
        count = min(_WORDS[0] + self._draws.below(_WORDS[1] - _WORDS[0] + 1), len(self._words))
        start = self._draws.below(len(self._words) - count + 1)
        return " ".join(self._words[start : start + count])

    def _value(self, schema: Json, at: str, depth: int) -> Json:
        if schema is True:
            return self.text()
        if not isinstance(schema, Mapping):
            raise SchemaError(f"{at}: nothing satisfies {schema!r}")
        if depth > _DEEPEST:
            raise SchemaError(f"{at}: the schema requires itself without end")
        refused = sorted(_REFUSED & schema.keys())
        if refused:
            raise SchemaError(f"{at}: the keyword {refused[0]!r} is not understood")
        if "$ref" in schema:
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            return self._value(_combined(self._target(schema["$ref"], at), rest, at), at, depth + 1)
        if "allOf" in schema:
            whole: dict[str, Json] = {key: value for key, value in schema.items() if key != "allOf"}
            for part in schema["allOf"]:
                whole = _combined(whole, self._target(part["$ref"], at) if "$ref" in part else part, at)
            return self._value(whole, at, depth + 1)
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                rest = {key: value for key, value in schema.items() if key != choice}
                branch = self._branch(schema[choice], depth)
                return self._value(_combined(rest, branch, at), at, depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._pick(schema["enum"], at)
        return self._typed(schema, at, depth)

    def _typed(self, schema: Mapping[str, Json], at: str, depth: int) -> Json:
        kind = schema.get("type") or _implied_type(schema)
        if isinstance(kind, list):
            kind = "null" if depth > _SHALLOW and "null" in kind else self._pick(kind, at)
        match kind:
            case "object":
                return self._object(schema, at, depth)
            case "array":
                return self._array(schema, at, depth)
            case "string":
                return self._string(schema, at)
            case "integer" | "number":
                return self._number(schema, at, whole=kind == "integer")
            case "boolean":
                return self._draws.below(2) == 1
            case "null":
                return None
        raise SchemaError(f"{at}: the type {kind!r} is not understood")

    def _object(self, schema: Mapping[str, Json], at: str, depth: int) -> dict[str, Json]:
        known = schema.get("properties", {})
        required = schema.get("required", [])
        others = schema.get("additionalProperties", True)
        built: dict[str, Json] = {}
        for name, part in known.items():
            if name in required or (depth <= _SHALLOW and self._draws.below(2)):
                built[name] = self._value(part, f"{at}/{name}", depth + 1)
        for name in required:
            if name not in known:
                built[name] = self._value(others, f"{at}/{name}", depth + 1)
        return built

    def _array(self, schema: Mapping[str, Json], at: str, depth: int) -> list[Json]:
        first = schema.get("prefixItems", [])
        rest = schema.get("items", True)
        fewest = schema.get("minItems", 0)
        most = schema.get("maxItems", max(fewest + _MORE_ITEMS, len(first)))
        if rest is False:
            most = min(most, len(first))
        count = fewest if depth > _SHALLOW else self._between(fewest, most, at)
        built: list[Json] = []
        for index in range(count):
            part = first[index] if index < len(first) else rest
            item = self._value(part, f"{at}/{index}", depth + 1)
            if schema.get("uniqueItems"):
                item = self._unlike(built, item, part, f"{at}/{index}", depth + 1)
                if item is _NOTHING and index >= fewest:
                    break
                if item is _NOTHING:
                    raise SchemaError(f"{at}: cannot find {fewest} different items")
            built.append(item)
        return built

    def _unlike(self, taken: Sequence[Json], item: Json, part: Json, at: str, depth: int) -> Json:
        """``item``, or another instance of ``part``, that is not in ``taken``."""
        seen = {canonical_json(other) for other in taken}
        for _ in range(64):
            if canonical_json(item) not in seen:
                return item
            item = self._value(part, at, depth)
        return _NOTHING

    def _string(self, schema: Mapping[str, Json], at: str) -> str:
        fewest, most = schema.get("minLength", 0), schema.get("maxLength")
        if most is not None and most < fewest:
            raise SchemaError(f"{at}: nothing is between {fewest} and {most} characters long")
        text = self.text()
        while len(text) < fewest:
            text += f" {self.text()}"
        return text if most is None else text[:most]

    def _number(self, schema: Mapping[str, Json], at: str, *, whole: bool) -> float:
        low, high = _bounds(schema)
        step = Fraction(str(schema["multipleOf"])) if "multipleOf" in schema else None
        if step is not None and step.denominator != 1:
            raise SchemaError(f"{at}: a multipleOf that is not a whole number is not understood")
        if whole or step is not None:
            unit = step or Fraction(1)
            return int(unit * self._between(math.ceil(low / unit), math.floor(high / unit), at))
        if low > high:
            raise SchemaError(f"{at}: no number is at least {float(low)} and at most {float(high)}")
        # Interior points of a grid, so that exclusive bounds hold as well; rounding may not leave the range.
        value = low + (high - low) * (1 + self._draws.below(999)) / 1000
        rounded = round(float(value), 3)
        return rounded if low < rounded < high else float(value)

    def _between(self, low: int, high: int, at: str) -> int:
        if low > high:
            raise SchemaError(f"{at}: nothing is at least {low} and at most {high}")
        return low + self._draws.below(high - low + 1)

    def _pick(self, options: Sequence[Json], at: str) -> Json:
        if not options:
            raise SchemaError(f"{at}: there is nothing to choose from")
        return options[self._draws.below(len(options))]

    def _branch(self, branches: Sequence[Json], depth: int) -> Mapping[str, Json]:
        plain = [b for b in branches if isinstance(b, Mapping) and not {"$ref", "properties", "items"} & b.keys()]
        options = plain if plain and depth > _SHALLOW else branches
        branch = options[self._draws.below(len(options))]
        return branch if isinstance(branch, Mapping) else {}

    def _target(self, reference: str, at: str) -> Mapping[str, Json]:
        target: Json = self._document
        for name in reference.removeprefix("#").split("/")[1:]:
            target = (
                target.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
            )
        if not reference.startswith("#") or not isinstance(target, Mapping):
            raise SchemaError(f"{at}: the reference {reference!r} leads nowhere in this schema")
        return target


_NOTHING = object()


def _combined(first: Mapping[str, Json], second: Mapping[str, Json], at: str) -> dict[str, Json]:
    """One schema that asks for both: properties and required names are united, equal keywords are one.

    Raises SchemaError where both set a keyword differently: meeting two bounds would need a search.
    """
    combined = {**first, **second}
    for key in first.keys() & second.keys() - _ANNOTATIONS:
        ours, theirs = first[key], second[key]
        if key == "properties":
            shared = {n: _combined(ours[n], theirs[n], f"{at}/{n}") for n in ours.keys() & theirs.keys()}
            combined[key] = {**ours, **theirs, **shared}
        elif key == "required":
            combined[key] = [*ours, *theirs]
        elif ours != theirs:
            raise SchemaError(f"{at}: the keyword {key!r} given twice is not understood")
    return combined


def _implied_type(schema: Mapping[str, Json]) -> str:
    if {"properties", "required", "additionalProperties"} & schema.keys():
        return "object"
    if {"items", "prefixItems", "minItems", "maxItems"} & schema.keys():
        return "array"
    if {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"} & schema.keys():
        return "number"
    return "string"


def _bounds(schema: Mapping[str, Json]) -> tuple[Fraction, Fraction]:
    """Inclusive bounds on the numbers to draw from; an exclusive bound is moved inwards for whole numbers.

    For other numbers the caller draws from the interior, so the exclusive bound itself can stand.
    """
    whole = schema.get("type") == "integer" or "multipleOf" in schema
    lows: list[Fraction] = []
    highs: list[Fraction] = []
    for key, ends, sign in (("minimum", lows, 1), ("maximum", highs, -1)):
        if key in schema:
            ends.append(Fraction(str(schema[key])))
        exclusive = schema.get(f"exclusive{key.capitalize()}")
        if exclusive is not None:
            end = Fraction(str(exclusive))
            nearest = Fraction(math.floor(end) + 1 if sign > 0 else math.ceil(end) - 1)
            ends.append(nearest if whole else end)
    step = Fraction(str(schema.get("multipleOf", 1)))
    low = max(lows) if lows else None
    high = min(highs) if highs else None
    if low is None:
        low = Fraction(0) if high is None else high - _SPREAD * step
    return low, high if high is not None else low + _SPREAD * step
