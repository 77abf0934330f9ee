"""What an episode costs when models cost nothing, beside the same calls in a bare loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from chime_dist.adapters.embedding.hashing import HashingEmbedder
from chime_dist.adapters.models.credit_world_agent import CreditWorldAgent
from chime_dist.adapters.models.scripted import ScriptedBackbone
from chime_dist.core.model_call import ChatRequest
from tests.bench.measurement import Mark, Measurement, alone, scratch
from tests.bench.rig import Adapters, Rig, spied

_SLOTS = 16
_FLOOR = "the same model and embedder calls in a bare loop"

_Asked = ChatRequest | tuple[str, ...]


async def measure(quick: bool) -> list[Measurement]:
    """Wall and CPU milliseconds per train and per eval episode, for both sets of adapters."""
    train, evaluated = (20, 12) if quick else (400, 400)
    found: list[Measurement] = []
    for adapters in get_args(Adapters):
        found += alone(_measure, adapters, train, evaluated)
    return found


async def _measure(adapters: Adapters, train: int, evaluated: int) -> list[Measurement]:
    asked: list[_Asked] = []
    in_training = 0

    def note(opened: int) -> None:
        nonlocal in_training
        if opened == train:
            in_training = len(asked)

    def note_request(request: ChatRequest, budget_s: float) -> None:
        asked.append(request)

    def note_texts(texts: Sequence[str], kind: Literal["query", "document"]) -> None:
        asked.append(tuple(texts))

    with scratch() as folder:
        rig = Rig(folder, train, evaluated, _SLOTS, adapters=adapters, on_open=note)
        with (
            spied(ScriptedBackbone, "complete", note_request),
            spied(HashingEmbedder, "embed", note_texts),
        ):
            await rig.run()
    phases = {
        "train": (train, rig.trained.since(rig.started), await _bare(asked[:in_training])),
        "eval": (evaluated, rig.ended.since(rig.trained), await _bare(asked[in_training:])),
    }
    return [
        Measurement(
            bench="overhead",
            case=f"{adapters}, {phase}",
            metric=f"{metric} per episode",
            unit="ms",
            value=getattr(spent, of) / episodes * 1000,
            floor=getattr(bare, of) / episodes * 1000,
            floor_of=_FLOOR,
        )
        for phase, (episodes, spent, bare) in phases.items()
        for metric, of in (("wall", "wall_s"), ("CPU", "cpu_s"))
    ]


async def _bare(asked: Sequence[_Asked]) -> Mark:
    """What asking the same once more takes, one after the other."""
    backbone, embedder = ScriptedBackbone(script=CreditWorldAgent()), HashingEmbedder(256)
    began = Mark.now()
    for one in asked:
        if isinstance(one, ChatRequest):
            await backbone.complete(one, 60.0)
        else:
            await embedder.embed(one, "document")
    return Mark.now().since(began)
