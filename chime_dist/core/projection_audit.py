"""What a searchable projection must hold, replayed from the journal, for comparing it with what it does hold.

The replay goes through ``core.projection`` itself, version by version as the projection's cursor tells, so the
points come out as its owner wrote them, gaps included. A compaction may have removed points that no version sees,
or may have been cut short: such points are right with and without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from chime_dist.core.bank import BankState, Entry, apply
from chime_dist.core.frozen import Frozen
from chime_dist.core.projection import OPEN_END, PointKey, Projection, Versions


class PointFault(Frozen):
    """One point of a projection that is not what the journal says."""

    kind: Literal["altered", "missing", "extra"]
    collection: str | None = None
    """None, like the next three, for a point that does not say whose it is."""
    item: str | None = None
    vector: str | None = None
    """The vector's name."""
    version: int | None = None
    """The bank version that set the vector."""
    what: str
    """What is wrong, in words."""

    def __str__(self) -> str:
        if self.item is None:
            return f"{self.kind} point: {self.what}"
        return (
            f"{self.kind} point of {self.collection} {self.item}, vector {self.vector!r}, set at version "
            f"{self.version}: {self.what}"
        )


class ProjectionAudit(Frozen):
    """A projection compared with its journal."""

    fence: int
    """The number of the owner that wrote it."""
    head: int
    """The newest version it answers for; the journal may be ahead of it."""
    points: int
    """Points found, the cursor left out."""
    faults: tuple[PointFault, ...]


@dataclass(frozen=True, slots=True)
class ExpectedPoint:
    """One point that the journal calls for."""

    unit: npt.NDArray[np.float32]
    """Shape ``(dim,)``, length 1."""
    valid_to: frozenset[int]
    """What its end may be: two values while the version that ends it is half written."""
    certain: bool = True
    """False where it may be missing: the version that opens it is half written, or a compaction let go of every
    version that sees it."""


def expected_points(
    entries: Iterable[Entry], versions: Versions, half_written: int | None, dim: int, where: str
) -> dict[PointKey, ExpectedPoint]:
    """The points of a projection that its owner brought to ``versions``, one after the other.

    ``half_written`` is a version beyond their head that the owner may have been writing when it ended: any part of
    its writes may be there. Raises what ``Projection.plan`` raises.
    """
    projection = Projection(dim, where)
    points: dict[PointKey, ExpectedPoint] = {}
    last = versions.head if half_written is None else half_written
    state = projected = BankState()
    for entry in entries:
        if state.version >= last:
            break
        state = apply(state, entry)
        whole = versions.reached(state.version)
        if not whole and state.version != half_written:
            continue
        step = projection.plan(state.version, projected, state)
        assert step is not None, "versions ascend"
        for key, unit in step.opened:
            points[key] = ExpectedPoint(unit, frozenset({OPEN_END}), certain=whole)
        for key in step.closed:
            ends = {step.version} if whole else {step.version, OPEN_END}
            points[key] = ExpectedPoint(points[key].unit, frozenset(ends))
        if whole:
            projection.advance(step)
            projected = state
    for key, point in points.items():
        if not versions.read(key.valid_from, max(point.valid_to)):
            points[key] = replace(point, certain=False)
    return points
