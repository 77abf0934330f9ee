"""Lengths of time as people write them: ``90``, ``45s``, ``2h30m``, ``1d12h``."""

from __future__ import annotations

import re

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_FORM = re.compile("".join(rf"(?:(?P<{unit}>\d+(?:\.\d+)?){unit})?" for unit in _UNITS))
_SECONDS = re.compile(r"\d+(?:\.\d+)?")


def seconds_in(text: str) -> float:
    """The seconds that ``text`` says; a number alone is seconds. Raises ValueError that shows the form."""
    found = _FORM.fullmatch(text)
    if text and found is not None:
        return sum(float(found[unit] or 0) * seconds for unit, seconds in _UNITS.items())
    if _SECONDS.fullmatch(text):
        return float(text)
    raise ValueError("expected a length of time such as 45m, 2h30m or 1d12h, or a number of seconds")


def spelled(seconds: float) -> str:
    """A length of time in the same form, in whole seconds, cut to two units: ``0s``, ``2h30m``, ``1d12h``."""
    left = round(seconds)
    parts = []
    for unit, size in _UNITS.items():
        number, left = divmod(left, size)
        parts.append((number, unit))
    first = next((index for index, (number, _) in enumerate(parts) if number), len(parts) - 1)
    return f"{parts[first][0]}{parts[first][1]}" + "".join(
        f"{number}{unit}" for number, unit in parts[first + 1 : first + 2] if number
    )
