"""[U] What a sweep will about cost, before anything ran: averages per model call and per episode.

Measured where it could be: ``bfcl_v4`` (60 Live and 20 memory tasks) and ``credit_world`` (720 episodes) ran with
the shipped double under chime, no_plan, webanchor, todoevolve and a_mapreduce, and prompts were counted as
``core.trimming.estimated_tokens`` counts them. Means by role were 750 to 940 tokens for Live tasks, 2,450 to 2,720
for memory tasks, and 320 to 560 for credit_world; BFCL's are rounded up, because a model's plans and memories are
longer than the double's. Completions of BFCL, and everything about ``tau2``, ``vitabench`` and ``browsecomp_zh``,
are guesses from how long their policies, tools and pages are: good to a factor of three, no better. The 37 memory
sessions have 323 turns of the user; with one note and one reply to each, a prompt had 3,780 tokens on average.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from chime_dist.core.episode import Role

_FLOAT_BYTES = 4
_BASE64 = 4 / 3


class CallSize(NamedTuple):
    """Tokens of an average model call."""

    prompt: int
    """Tools and policy included, cached or not."""
    completion: int


class EpisodeSize(NamedTuple):
    """An average episode of a benchmark."""

    calls: Mapping[Role, CallSize]
    """By role; every method's calls of a role are taken to be alike."""
    other: CallSize
    """Of a role that ``calls`` leaves out."""
    trajectory_bytes: int
    """Compressed. 1,000 to 3,400 were measured for credit_world, 1,400 to 2,500 for bfcl_v4."""


class PrerequisiteSize(NamedTuple):
    """An average prerequisite, a conversation with the executor."""

    turns: int
    """What is said to it."""
    usual_steps: int
    """Model calls until a turn is answered."""
    call: CallSize


class Tokens(NamedTuple):
    """Sums over model calls."""

    prompt: int = 0
    completion: int = 0


RECORD_BYTES = 850
"""Of a row of episodes.jsonl; 540 to 850 were measured."""
ENTRY_BYTES = 450
"""Of a journal entry without events."""
EVENTS_BYTES = 6_000
"""Of an entry's events without their vectors, of a method with memory; 400 to 5,800 were measured."""

_SIZES: Mapping[str, EpisodeSize] = MappingProxyType(
    {
        "credit_world": EpisodeSize(
            calls={Role.PLANNER: CallSize(550, 20), Role.GATE: CallSize(600, 60)},
            other=CallSize(500, 10),
            trajectory_bytes=3_400,
        ),
        "bfcl_v4": EpisodeSize(
            calls={Role.PLANNER: CallSize(1_100, 250), Role.GATE: CallSize(1_500, 350)},
            other=CallSize(1_000, 80),
            trajectory_bytes=2_500,
        ),
        "tau2": EpisodeSize(
            calls={
                Role.PLANNER: CallSize(6_000, 400),
                Role.GATE: CallSize(10_000, 400),
                Role.USER_SIMULATOR: CallSize(2_500, 60),
            },
            other=CallSize(9_000, 120),
            trajectory_bytes=20_000,
        ),
        "vitabench": EpisodeSize(
            calls={
                Role.PLANNER: CallSize(9_000, 500),
                Role.GATE: CallSize(18_000, 400),
                Role.USER_SIMULATOR: CallSize(3_000, 80),
                Role.JUDGE: CallSize(15_000, 600),
            },
            other=CallSize(15_000, 150),
            trajectory_bytes=40_000,
        ),
        "browsecomp_zh": EpisodeSize(
            calls={Role.PLANNER: CallSize(1_500, 400), Role.GATE: CallSize(40_000, 400)},
            other=CallSize(30_000, 250),
            trajectory_bytes=100_000,
        ),
    }
)
_UNKNOWN = EpisodeSize(calls={}, other=CallSize(4_000, 200), trajectory_bytes=20_000)

_PREREQUISITES: Mapping[str, PrerequisiteSize] = MappingProxyType(
    {"bfcl_v4": PrerequisiteSize(turns=9, usual_steps=2, call=CallSize(3_800, 80))}
)
_UNKNOWN_PREREQUISITE = PrerequisiteSize(turns=1, usual_steps=10, call=_UNKNOWN.other)

USUAL_STEPS: Mapping[str, int] = MappingProxyType({"tau2": 20, "vitabench": 30, "browsecomp_zh": 8})
"""Executor turns of a usual episode, where no benchmark is there to say it."""

_OTHERS_TURNS: Mapping[str, Mapping[Role, int]] = MappingProxyType(
    {"tau2": {Role.USER_SIMULATOR: 2}, "vitabench": {Role.USER_SIMULATOR: 4}}
)
"""Executor turns to one turn of a role that the benchmark asks on the way."""

_JUDGED = frozenset({"vitabench"})
"""Benchmarks whose evaluator asks a model, counted as once per episode."""


def tokens(benchmark: str, calls: Mapping[Role, int]) -> dict[Role, Tokens]:
    """Tokens of so many model calls, by role; a benchmark that is not known here gets one guess for all roles."""
    size = _SIZES.get(benchmark, _UNKNOWN)
    sizes = {role: size.calls.get(role, size.other) for role in calls}
    return {
        role: Tokens(count * sizes[role].prompt, count * sizes[role].completion) for role, count in calls.items()
    }


def asked_by_benchmark(benchmark: str, steps: int) -> dict[Role, int]:
    """Model calls of the benchmark's own roles in an episode of so many executor steps, rounded up."""
    judge = {Role.JUDGE: 1} if benchmark in _JUDGED else {}
    return {role: -(-steps // turns) for role, turns in _OTHERS_TURNS.get(benchmark, {}).items()} | judge


def prerequisite_calls(benchmark: str, count: int, steps: int | None = None) -> tuple[int, Tokens]:
    """Model calls of so many prerequisites and their tokens, at ``steps`` calls a turn; None takes usual ones."""
    size = _PREREQUISITES.get(benchmark, _UNKNOWN_PREREQUISITE)
    calls = count * size.turns * (size.usual_steps if steps is None else steps)
    return calls, Tokens(calls * size.call.prompt, calls * size.call.completion)


def disk_bytes(benchmark: str, train: int, evaluated: int, vectors: int, dim: int) -> int:
    """Bytes of one run's folder after so many train and eval episodes.

    ``vectors`` is how many vectors of ``dim`` components a train position writes: 0 without memory, and with it
    those of one new record per collection; of chime's 4 so many, 2.6 were measured.
    """
    entry = ENTRY_BYTES + (EVENTS_BYTES + vectors * math.ceil(dim * _FLOAT_BYTES * _BASE64) if vectors else 0)
    size = _SIZES.get(benchmark, _UNKNOWN)
    return (train + evaluated) * (RECORD_BYTES + size.trajectory_bytes) + train * entry
