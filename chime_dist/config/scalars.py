"""Unquoted YAML scalars, read so that nobody is surprised: YAML 1.2, minus everything that 1.1 reads otherwise.

``1e-3`` is a number. ``no``, ``010``, ``2024-05-01`` and ``12:30`` are refused wherever they stand, because half
of the YAML world reads a boolean, an octal number, a date and a count of minutes there; quoted they are text.
"""

from __future__ import annotations

import math
import re

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_SWITCH_WORDS = frozenset({"y", "yes", "on", "n", "no", "off"})

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_NON_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF|nan|NaN|NAN)")

_AMBIGUOUS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?"), "a date"),
    (re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9_]*)?"), "a number in base 60"),
    (re.compile(r"[-+]?0[0-9_]+"), "an octal number"),
    (re.compile(r"[-+]?0[xob][0-9a-fA-F_]+"), "a number in another base"),
    (re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?"), "a number with separators"),
)

Scalar = str | int | float | bool | None


def read_plain(text: str) -> Scalar:
    """The value of an unquoted scalar; raises ValueError with the fix where YAML's versions disagree on it."""
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if text.lower() in _SWITCH_WORDS:
        raise ValueError(
            f"{text} is a boolean to some YAML readers and text to others: quote it, or write true or false"
        )
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and not text.lstrip("+-").startswith("00"):
        return _finite(text)
    if _NON_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number: write a number, or quote it if it is text")
    for pattern, meaning in _AMBIGUOUS:
        if pattern.fullmatch(text):
            raise ValueError(f"{text} is {meaning} to some YAML readers and not to others: quote it")
    return text


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large for a number: quote it if it is text")
    return number
