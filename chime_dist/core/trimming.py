"""Prompts that are too long (R36): the oldest observations go first, never the task, the plan or the memories.

Whatever a turn sends is rendered from its variables and its history, so that is where something can be left out:
what tools answered, then what else the environment said, each oldest first, in the history or among the ``steps``
of a trajectory that is looked back at. A message stays where it stands with ``LEFT_OUT`` for its content, because
servers refuse a tool call without its answer. Pure: what is left out is a function of the turn and of numbers.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from chime_dist.core.model_call import Message, Turn

LEFT_OUT = "[left out to fit the context]"
"""Stands for an observation that was left out."""

_STEPS = "steps"
_ASCII_PER_TOKEN = 4


class Trimmed(NamedTuple):
    """A turn that became shorter."""

    turn: Turn
    left_out: int
    """How many observations were left out now."""


def estimated_tokens(*parts: object) -> int:
    """[U] Tokens of texts or JSON values without a tokenizer: a quarter of the ASCII characters and all others.

    Real tokenizers need about as many for prose, fewer for Chinese; so a limit tested with it holds roughly, and
    the server's own count has the last word.
    """
    ascii_characters = others = 0
    for part in parts:
        text = part if isinstance(part, str) else json.dumps(part, ensure_ascii=False, default=str)
        plain = len(text.encode("ascii", "ignore"))
        ascii_characters += plain
        others += len(text) - plain
    return math.ceil(ascii_characters / _ASCII_PER_TOKEN) + others


def first_tokens(text: str, most: int) -> str:
    """The longest beginning of ``text`` of at most ``most`` tokens by ``estimated_tokens``."""
    if estimated_tokens(text) <= most:
        return text
    return text[: bisect_right(range(len(text)), most, key=lambda end: estimated_tokens(text[:end])) - 1]


def without(turn: Turn, tokens: int) -> Trimmed | None:
    """The turn without as many observations as save ``tokens`` by estimate, at least one; None without any."""
    return _left_out(turn, tokens, _observations(turn))


def without_half(turn: Turn) -> Trimmed | None:
    """The turn without the older half of its observations by size, at least one; None without any."""
    found = _observations(turn)
    return _left_out(turn, sum(observation.saves for observation in found) // 2, found)


class _Observation(NamedTuple):
    place: str
    """Of the history, or of the steps."""
    row: int
    saves: int
    """Tokens, by estimate."""


def _observations(turn: Turn) -> list[_Observation]:
    said = list(enumerate(turn.history))
    answers = ((row, message) for row, message in said if message.get("role") == "tool")
    words = ((row, message) for row, message in said if message.get("role") == "user")
    steps = ((row, step) for row, step in enumerate(_steps(turn)) if step.get("kind") == "observation")
    return [
        *_still_there("history", answers),
        *_still_there("history", words),
        *_still_there(_STEPS, steps),
    ]


def _still_there(place: str, messages: Iterable[tuple[int, Message]]) -> Iterable[_Observation]:
    for row, message in messages:
        saves = estimated_tokens(message.get("content") or "") - estimated_tokens(LEFT_OUT)
        if saves > 0:
            yield _Observation(place, row, saves)


def _left_out(turn: Turn, tokens: int, observations: Sequence[_Observation]) -> Trimmed | None:
    history, steps, saved, left_out = list(turn.history), _steps(turn), 0, 0
    for place, row, saves in observations:
        messages = history if place == "history" else steps
        messages[row] = {**messages[row], "content": LEFT_OUT}
        saved, left_out = saved + saves, left_out + 1
        if saved >= tokens:
            break
    if not left_out:
        return None
    variables = {**turn.variables, _STEPS: steps} if steps else turn.variables
    return Trimmed(turn.model_copy(update={"history": tuple(history), "variables": variables}), left_out)


def _steps(turn: Turn) -> list[dict[str, Any]]:
    steps = turn.variables.get(_STEPS)
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        return []
    return list(steps)
