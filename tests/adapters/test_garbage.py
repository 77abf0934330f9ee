"""The collector's pace belongs to the process: it is lent, and given back."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress

import pytest

from chime_dist.adapters.garbage import YOUNG, rare_collections


@pytest.fixture(autouse=True)
def own_pace() -> Iterator[None]:
    """The process's own pace, whatever a test does."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_collections_are_rare_while_the_context_is_open_and_as_before_afterwards() -> None:
    gc.set_threshold(700, 10, 9)
    with suppress(RuntimeError), rare_collections():
        assert gc.get_threshold()[:2] == (YOUNG, 10)
        raise RuntimeError
    assert gc.get_threshold()[0] == 700


@pytest.mark.parametrize("chosen", [0, 2 * YOUNG])
def test_a_process_that_collects_more_rarely_or_never_is_left_alone(chosen: int) -> None:
    gc.set_threshold(chosen, 10, 9)
    with rare_collections():
        assert gc.get_threshold()[0] == chosen
    assert gc.get_threshold()[0] == chosen
