"""What a model call of training costs while the bank grows to thousands of memories, beside the run's start."""

from __future__ import annotations

import json
from typing import get_args
from unittest.mock import patch

from chime_dist.adapters.models.scripted import ScriptedBackbone
from chime_dist.core.chat_reply import read_completion
from chime_dist.core.model_call import ChatReply, ChatRequest
from tests.bench.banks import DIM
from tests.bench.canned import CALLS, canned_completion
from tests.bench.measurement import Mark, Measurement, alone, scratch
from tests.bench.rig import Adapters, Rig

_SLOTS = 16
_ITEMS_PER_POSITION = 2
_CPU_AIM_MS = 2.0


async def measure(quick: bool) -> list[Measurement]:
    """CPU per model call, hashing embedder included, where the bank has come to 1,000 and to 4,000 memories."""
    span, sizes = (4, (16, 24)) if quick else (100, (1000, 4000))
    found: list[Measurement] = []
    for adapters in get_args(Adapters):
        found += alone(_measure, adapters, sizes, span)
    return found


async def _measure(adapters: Adapters, sizes: tuple[int, ...], span: int) -> list[Measurement]:
    ends = [span, *(size // _ITEMS_PER_POSITION for size in sizes)]
    looks = {position: Mark(0.0, 0.0) for end in ends for position in (end - span, end)}

    def note(opened: int) -> None:
        if opened in looks:
            looks[opened] = Mark.now()

    with scratch() as folder, patch.object(ScriptedBackbone, "complete", _complete):
        await Rig(folder, ends[-1] + 1, 0, _SLOTS, adapters=adapters, dim=DIM, on_open=note).run()
    first, *spent = (1000 * looks[end].since(looks[end - span]).cpu_s / (span * CALLS["train"]) for end in ends)
    return [
        Measurement(
            bench="growth",
            case=f"{adapters}, {size:,} memories of {DIM:,} dimensions",
            metric="CPU per model call",
            unit="ms",
            value=value,
            floor=first,
            floor_of=f"the first {span} positions of the run, with little to recall",
            aim=_CPU_AIM_MS,
        )
        for size, value in zip(sizes, spent, strict=True)
    ]


async def _complete(backbone: ScriptedBackbone, request: ChatRequest, budget_s: float) -> ChatReply:
    """Every episode inserts two memories, and the model takes next to no time."""
    asked = {"messages": request.messages, "tools": request.tools}
    schema = {"response_format": {"json_schema": {"name": request.schema_name}}}
    return read_completion(json.dumps(canned_completion(asked | schema)).encode())
