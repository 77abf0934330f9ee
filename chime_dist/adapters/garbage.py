"""How often this process looks for unreachable cycles of objects.

Episodes in flight hold tens of thousands of small objects that live for minutes and are freed by their reference
counts. CPython looks through them after every few hundred new ones, which at 1,000 episodes in flight takes a
third of the CPU and finds next to nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 50_000
"""New objects after which the collector looks at the youngest; a cycle is garbage for a few MB longer."""


def collect_rarely() -> None:
    """Collect after every ``YOUNG`` new objects and not every 700; a rarer pace of the process itself is kept."""
    young, *older = gc.get_threshold()
    # A first threshold of 0 means that collections are switched off.
    if 0 < young < YOUNG:
        gc.set_threshold(YOUNG, *older)


@contextmanager
def rare_collections() -> Iterator[None]:
    """``collect_rarely``, and afterwards as before."""
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
