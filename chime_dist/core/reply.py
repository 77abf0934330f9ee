"""Reading a verdict out of a model's reply: one written rule per way in which replies go wrong.

The rules hold for the gate and for every judge. A reply gives a decision or none: nothing is mended into a
decision, nothing defaults to one, and free text is never searched for one. B1 to B8 name the failures that
each rule answers.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from chime_dist.core.episode import Json

EXCERPT_CHARS = 200
"""Longest excerpt of a reply that may reach a log or a report, in characters."""

Meaning = TypeVar("Meaning")


class Fault(StrEnum):
    """Why a reply holds no usable object."""

    TRUNCATED = "truncated"
    """The output limit cut it: 0.9 may be a cut 0.95 (B8)."""
    REFUSED = "refused"
    """The server's content filter ended it (B8)."""
    EMPTY = "empty"
    """Nothing but white space (B8)."""
    NOT_JSON = "not_json"
    """No complete JSON object, or one that is cut or an element of a list (B1, B8)."""
    CONFLICTING = "conflicting"
    """Objects or doubled keys that disagree (B1, B7)."""
    BAD_TEXT = "bad_text"
    """A string that is not Unicode text: half of a surrogate pair."""


class _DoubledKey(Exception):
    """One object gives one key two values."""


def sole_object(text: str | None, finish_reason: str) -> dict[str, Json] | Fault:
    """The one JSON object that ``text`` holds, or why there is none.

    - B8: a reply that was cut (``length``), filtered, null or blank holds none, whatever it looks like.
    - B1: the text is read as it is first, so that backticks inside a string stay what they are. Only where
      that fails, objects are taken out of what surrounds them (prose, code fences). A brace that opens no
      complete object, or an object inside a list, then means that something was cut or wrapped: none.
    - B7: several objects, and doubled keys in one, must be identical.

    Line breaks inside strings need not be escaped; that changes no verdict.
    """
    if finish_reason == "length":
        return Fault.TRUNCATED
    if finish_reason == "content_filter":
        return Fault.REFUSED
    stripped = (text or "").strip(_SPACE)
    if not stripped:
        return Fault.EMPTY
    try:
        found = _objects(stripped)
        spellings = {_spelling(value).encode() for value in found}
    except _DoubledKey:
        return Fault.CONFLICTING
    except UnicodeEncodeError:
        return Fault.BAD_TEXT
    except (ValueError, RecursionError):
        return Fault.NOT_JSON
    return found[0] if len(spellings) == 1 else Fault.CONFLICTING


def word(value: Json, synonyms: Mapping[str, Meaning]) -> Meaning | None:
    """The meaning of a one-word verdict, or None (B5).

    Exact match, after normalisation (compatibility forms, case, white space, and quotes, brackets, emphasis or
    a full stop around it), against the closed list ``synonyms``, which is written in normal form. A negation,
    a list and an unknown word are None.
    """
    if not isinstance(value, str):
        return None
    normal = unicodedata.normalize("NFKC", value).casefold().strip(_AROUND_A_WORD)
    return synonyms.get(" ".join(normal.split()))


def flag(value: Json) -> bool | None:
    """Yes or no: a JSON boolean or a word of a closed list, else None. The text "false" is false (B5)."""
    return value if isinstance(value, bool) else word(value, _FLAGS)


def confidence(value: Json) -> float | None:
    """A confidence in [0, 1], or None for no decision; never clamped (B3, B4, R21).

    - A number from 0 to 1 means itself, one from 2 to 100 a percentage. Between 1 and 2 an overshoot of the
      unit scale and a percentage cannot be told apart: None, like everything outside.
    - With a percent sign, ASCII or full-width, it is a percentage from 0 to 100: "1%" is 0.01.
    - Text must be a plain decimal number. Words, signs, exponents, booleans and non-finite numbers are None.
    """
    if isinstance(value, str):
        match = _DECIMAL.fullmatch(unicodedata.normalize("NFKC", value).strip(_SPACE))
        if match is None:
            return None
        number = float(match["number"])
        return _scaled(number, percent_from=0.0 if match["percent"] else 2.0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _scaled(value, percent_from=2.0)


def excerpt(text: str | None) -> str:
    """The start of a reply for people: white space collapsed, at most EXCERPT_CHARS characters (B8)."""
    return " ".join((text or "").split())[:EXCERPT_CHARS].encode("utf-8", "replace").decode()


_SPACE = " \t\r\n\f\v\u00a0\u3000\u200b\u200c\u200d\u2060\ufeff"
_AROUND_A_WORD = _SPACE + "\"'`*_()[]{}<>\u2018\u2019\u201c\u201d「」『』【】《》.。,、;:"
_DECIMAL = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*(?P<percent>%?)")
_FLAGS = {
    **dict.fromkeys(("true", "yes", "是", "真"), True),
    **dict.fromkeys(("false", "no", "否", "假"), False),
}


def _scaled(number: float, percent_from: float) -> float | None:
    if 0 <= number <= 1 and percent_from > 1:
        return float(number) + 0.0
    return number / 100 if percent_from <= number <= 100 else None


def _spelling(value: Json) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _agreeing(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    built: dict[str, Json] = {}
    for key, value in pairs:
        if key in built and _spelling(built[key]) != _spelling(value):
            raise _DoubledKey
        built[key] = value
    return built


_DECODER = json.JSONDecoder(object_pairs_hook=_agreeing, strict=False)


def _objects(text: str) -> list[dict[str, Json]]:
    """The objects in ``text``, at least one; raises ValueError where there is none or anything is left open."""
    try:
        whole = _DECODER.decode(text)
    except ValueError:
        return _embedded(text)
    if not isinstance(whole, dict):
        raise ValueError("the reply is JSON, but no object")
    return [whole]


def _embedded(text: str) -> list[dict[str, Json]]:
    found: list[dict[str, Json]] = []
    around = ""
    end = 0
    while (start := text.find("{", end)) >= 0:
        around += text[end:start]
        value, end = _DECODER.raw_decode(text, start)
        found.append(value)
        around += "\0"
    around += text[end:]
    if not found or "}" in around or _LISTED.search(around):
        raise ValueError("the reply holds no object of its own")
    return found


_LISTED = re.compile(r"\[\s*\0|\0\s*\]")
"""An object (written NUL) at the edge of a list."""
