"""How close a launch comes to the ideal, calls x latency / slots, where every call takes the same time."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tests.bench.canned import CALLS
from tests.bench.endpoint import bare_calls, endpoint
from tests.bench.measurement import Mark, Measurement, alone, scratch
from tests.bench.rig import Rig

_FLOOR = "as many equal requests in a bare aiohttp loop"
_CPU_AIM_MS = 2.0


class _Case(NamedTuple):
    phase: Literal["train", "eval"]
    in_flight: int
    aim: float
    """Percent of the ideal."""
    waves: int
    """Episodes per slot."""


_FULL = (_Case("train", 16, 95.0, 3), _Case("eval", 128, 90.0, 3), _Case("eval", 1000, 50.0, 3))
_QUICK = (_Case("train", 2, 95.0, 2), _Case("eval", 4, 90.0, 2))
_LATENCY_S = 1.0
_QUICK_LATENCY_S = 0.01


async def measure(quick: bool) -> list[Measurement]:
    """Efficiency in percent, and CPU per model call, by episodes in flight."""
    found: list[Measurement] = []
    for case in _QUICK if quick else _FULL:
        found += alone(_measure, case, _QUICK_LATENCY_S if quick else _LATENCY_S)
    return found


async def _measure(case: _Case, latency_s: float) -> list[Measurement]:
    episodes = case.in_flight * case.waves
    window = min(case.in_flight, 16)
    train, evaluated = (episodes, 0) if case.phase == "train" else (window, episodes)
    calls = episodes * CALLS[case.phase]
    with scratch() as folder:
        async with endpoint(latency_s) as served:
            rig = Rig(
                folder,
                train,
                evaluated,
                case.in_flight,
                window=window,
                endpoint={"kind": "http", "url": served.url},
            )
            await rig.run()
            # Before the first episode a launch asks for a token, a tool call and a diagnosis.
            expected = 3 + train * CALLS["train"] + evaluated * CALLS["eval"]
            seen = await served.seen()
            assert seen.calls == expected, f"{seen.calls} model calls instead of {expected}"
            began = Mark.now()
            await bare_calls(served.url, seen.largest.encode(), calls, case.in_flight)
            bare = Mark.now().since(began)
    spent = rig.trained.since(rig.started) if case.phase == "train" else rig.ended.since(rig.trained)
    ideal_s = calls * latency_s / case.in_flight
    name = f"{case.phase}, {case.in_flight} in flight, {latency_s:g} s per call"
    return [
        Measurement(
            bench="efficiency",
            case=name,
            metric="of the ideal time",
            unit="%",
            value=100 * ideal_s / spent.wall_s,
            floor=100 * ideal_s / bare.wall_s,
            floor_of=_FLOOR,
            aim=case.aim,
            better="higher",
        ),
        Measurement(
            bench="efficiency",
            case=name,
            metric="CPU per model call",
            unit="ms",
            value=1000 * spent.cpu_s / calls,
            floor=1000 * bare.cpu_s / calls,
            floor_of=_FLOOR,
            aim=_CPU_AIM_MS,
        ),
    ]
