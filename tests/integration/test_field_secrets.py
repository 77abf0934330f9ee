"""Reproduction (H6): an exception's text with a known secret reaches episodes.jsonl and failures.jsonl unmasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from chime_dist.benchmarks.credit_world.benchmark import CreditWorld
from chime_dist.benchmarks.credit_world.environment import CreditEnvironment
from tests.spec.sweeps import SWEEP, launched

CANARY = "canary-9e21c7d04b"


async def test_a_secret_in_an_exceptions_text_reaches_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H6: a benchmark that raises with a key in its words; rows and failures keep the words without the key."""
    opened, raised = CreditWorld.open, 0

    async def once(world: CreditWorld, task: str) -> CreditEnvironment:
        nonlocal raised
        raised += 1
        if raised == 1:
            raise RuntimeError(f"the search service refused the key {CANARY}")
        return await opened(world, task)

    monkeypatch.setattr(CreditWorld, "open", once)
    text = SWEEP.replace("cluster:\n", "cluster:\n  secrets: {search: '${CHIME_FIELD_KEY}'}\n")
    launch = await launched(tmp_path, text, environ={"CHIME_FIELD_KEY": CANARY})
    held = [str(p) for p in tmp_path.rglob("*") if p.is_file() and CANARY.encode() in p.read_bytes()]
    assert held == []
    assert "refused the key ***" in "".join(p.read_text() for p in launch.path.rglob("failures.jsonl"))
