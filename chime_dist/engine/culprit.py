"""Whose fault an unexpected exception is, in words that help who wrote the method or the benchmark.

Methods and benchmarks come from anywhere. A traceback through the engine tells their authors little: what they
need is the name of their part, and the line of theirs.
"""

from __future__ import annotations

import traceback
from pathlib import Path

from chime_dist.ports import Benchmark, Method


def told(error: BaseException, method: Method, benchmark: Benchmark | None = None) -> str:
    """Type and text of ``error``, and where its innermost line in one of the two parts is: only its package tells
    them apart, so both are named where they share a module. Neither is named where neither was there."""
    what = f"{type(error).__name__}: {error}"
    modules = {f"method {method.name!r}": type(method).__module__}
    if benchmark is not None:
        modules[f"benchmark {benchmark.name!r}"] = type(benchmark).__module__
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        here = str(frame.f_globals.get("__name__", ""))
        names = [part for part, module in modules.items() if module == here] or [
            part for part, module in modules.items() if _package(module) == _package(here) != ""
        ]
        if names:
            return f"{' or '.join(names)}: {what} ({Path(frame.f_code.co_filename).name}, line {line})"
    return what


def _package(module: str) -> str:
    return module.rpartition(".")[0]
