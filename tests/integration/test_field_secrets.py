"""H6: an exception's text may hold a secret; the rows that keep it must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from chime_dist.benchmarks.credit_world.benchmark import CreditWorld
from chime_dist.benchmarks.credit_world.environment import CreditEnvironment
from tests.integration.test_real_services import contents_below
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
    await launched(tmp_path, text, environ={"CHIME_FIELD_KEY": CANARY})
    contents = contents_below(tmp_path)
    assert [name for name, data in contents.items() if CANARY.encode() in data] == []
    kept = b"".join(data for name, data in contents.items() if name.endswith("failures.jsonl"))
    assert b"refused the key ***" in kept
