"""The atomic steps of queue and journal as functions; the Lua behind each lies in ``lua/`` under its name.

Signatures are the contract: everything a step reads or writes is one of its keys, every answer is plain data. A
step may be sent twice (see ``RedisConnection``). A step raises redis-py's errors; one whose keys are gone fails
with CHIMELOST or NOGROUP in the error, one that is asked for in a turn that is over with CHIMETURN, and
``RedisConnection`` translates both.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from chime_dist.adapters.lease_token import LeaseToken
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.keys import CHANGES_KEPT, NOBODY, RedisKeys
from chime_dist.core import pacing
from chime_dist.core.pacing import PaceLimits, Pauses


class Delivered(NamedTuple):
    """One entry of the ready stream as a consumer gets it."""

    entry: str
    """The stream id, time-sequence."""
    delivery: int
    """1-based, by the server's counter."""
    turn: str
    """Name of the one in which it was asked for."""
    unit: str
    """The unit as JSON."""


class Told(NamedTuple):
    """One entry of the change feed; see ``ports.Change``."""

    kind: Literal["completed", "committed"]
    run_id: str
    unit: str
    head: int


class QueueScripts:
    """Atomic steps of one launch's queue, in the turn that ``turn`` names at each."""

    def __init__(self, client: Redis, keys: RedisKeys, turn: DriverTurn) -> None:
        self._keys = keys
        self._turn = turn
        self._reset = _script(client, "reset")
        self._admit = _script(client, "admit")
        self._claim = _script(client, "claim")
        self._renew = _script(client, "renew")
        self._complete = _script(client, "complete")
        self._release = _script(client, "release")
        self._submit = _script(client, "submit")
        self._forget = _script(client, "forget")
        self._outstanding = _script(client, "outstanding")
        self._changes = _script(client, "changes")

    async def reset(self, name: str) -> None:
        """Begin the turn of this name with no unit in it, once for a name."""
        k = self._keys
        await self._reset([k.turn, k.ready, k.units, k.open], [name])

    async def admit(self, key: str, unit: str, nonce: str) -> bool:
        """Add the unit unless its key was admitted this turn; True for the one nonce that added it."""
        k = self._keys
        return bool(await self._admit([k.turn, k.ready, k.units, k.open], [self._turn.name, key, unit, nonce]))

    async def claim(self, consumer: str, count: int, lease_ms: int, held: Sequence[str]) -> list[Delivered]:
        """Own pending entries that are not ``held``, then expired ones, then new ones; at most ``count``."""
        turn = self._turn.name
        reply = await self._claim([self._keys.turn, self._keys.ready], [turn, consumer, count, lease_ms, *held])
        return [Delivered(entry, int(delivery), turn, unit) for entry, delivery, unit in reply]

    async def renew(self, tokens: Sequence[LeaseToken]) -> list[int]:
        """Restart the leases' clocks; returns the 0-based indexes of those that are lost."""
        leases = [part for t in tokens for part in (t.turn, t.entry, t.delivery, t.consumer)]
        lost = await self._renew([self._keys.turn, self._keys.ready], [self._turn.name, *leases])
        return [int(number) - 1 for number in lost]

    async def complete(self, token: LeaseToken, key: str, run_id: str, position: int, proposal: str) -> str:
        """Finish the unit of a valid lease: ``stored``, ``already_same`` or ``lost``."""
        k = self._keys
        keys = [k.turn, k.ready, k.units, k.open, k.proposals(run_id), k.changes]
        lease = (str(token), token.turn, token.entry, token.delivery, token.consumer)
        args = (self._turn.name, *lease, key, run_id, position, proposal, CHANGES_KEPT)
        return str(await self._complete(keys, args))

    async def release(self, token: LeaseToken) -> bool:
        """Make the entry claimable at once, its delivery count kept; False for a lost lease."""
        args = (self._turn.name, NOBODY, token.turn, token.entry, token.delivery, token.consumer)
        return bool(await self._release([self._keys.turn, self._keys.ready], args))

    async def submit(self, run_id: str, position: int, proposal: str) -> bool:
        """Store the proposal where there is none; True when it was stored."""
        k = self._keys
        args = (self._turn.name, run_id, position, proposal, CHANGES_KEPT)
        return bool(await self._submit([k.turn, k.proposals(run_id), k.changes], args))

    async def forget(self, run_id: str, position: int) -> bool:
        """Drop the proposal; False where there is none."""
        k = self._keys
        return bool(await self._forget([k.turn, k.proposals(run_id)], [self._turn.name, position]))

    async def outstanding(self) -> set[str]:
        """Keys of units that are admitted and not completed."""
        return set(await self._outstanding([self._keys.turn, self._keys.open], [self._turn.name]))

    async def changes(self, since: str, count: int) -> tuple[str, list[Told]]:
        """Changes after the id ``since`` and the id of the last one; an empty ``since`` gives the newest id."""
        keys = [self._keys.turn, self._keys.changes]
        last, told = await self._changes(keys, [self._turn.name, since, count])
        return str(last), [Told(kind, run, unit, int(head)) for kind, run, unit, head in told]


class DriverScripts:
    """Atomic steps of the launch's driver token."""

    def __init__(self, client: Redis, keys: RedisKeys) -> None:
        self._keys = [keys.driver]
        self._hold = _script(client, "hold")
        self._leave = _script(client, "leave")

    async def hold(self, ours: str, lasts_ms: int, dead: str = "") -> tuple[str, int]:
        """Take or renew the token; returns whose it is now and for how many milliseconds more.

        A token equal to ``dead`` is taken from its holder.
        """
        holder, left_ms = await self._hold(self._keys, [ours, lasts_ms, dead])
        return str(holder), int(left_ms)

    async def leave(self, ours: str) -> bool:
        """Give the token back; False where it is not ours."""
        return bool(await self._leave(self._keys, [ours]))


class JournalScripts:
    """Atomic steps of one launch's journals, in the turn that ``turn`` names at each."""

    def __init__(self, client: Redis, keys: RedisKeys, turn: DriverTurn) -> None:
        self._keys = keys
        self._turn = turn
        self._take_fence = _script(client, "take_fence")
        self._append = _script(client, "append")

    async def take_fence(self, run_id: str) -> int:
        """One more than the newest."""
        return int(await self._take_fence([self._keys.turn, self._keys.fence(run_id)], [self._turn.name]))

    async def append(self, run_id: str, fence: int, position: int, line: str) -> str:
        """``appended``, ``already_same``, ``fenced`` or ``conflict``; a line that is there is told first."""
        k = self._keys
        keys = [k.turn, k.fence(run_id), k.journal(run_id), k.changes]
        return str(await self._append(keys, [self._turn.name, run_id, fence, position, line, CHANGES_KEPT]))


class PaceScripts:
    """Atomic steps of one backbone's pace, as one of its callers; see ``core.pacing``."""

    def __init__(
        self,
        client: Redis,
        keys: RedisKeys,
        backbone: str,
        limits: PaceLimits,
        pausing: Pauses,
        caller: str,
        others: Sequence[str],
    ) -> None:
        self._client = client
        self._flights = keys.flights(backbone, caller)
        self._keys = [keys.pace(backbone), self._flights, *(keys.flights(backbone, other) for other in others)]
        self._limits = limits
        self._pausing = pausing
        self._enter = _script(client, "pace_enter")
        self._leave = _script(client, "pace_leave")

    async def begin(self) -> None:
        """Nothing of this caller's is in flight."""
        await self._client.delete(self._flights)

    async def enter(self, call: str, tokens: int, lasts_s: float, now: float | None = None) -> float:
        """Seconds to wait, 0 for a call that is in. ``now`` None is the server's clock."""
        limits, rules = self._limits, pacing
        args = (
            *("" if now is None else now, call, tokens, lasts_s),
            *(limits.max_in_flight or 0, limits.requests_per_minute or 0, limits.tokens_per_minute or 0),
            *(rules.MINUTE_S, rules.BURST_SHARE, rules.RAMP_S, rules.RAMP_GAP_S, rules.ROOM_POLL_S),
            *(rules.SHORTEST_WAIT_S, self._pausing.most_s),
        )
        return float(await self._enter(self._keys, args))

    async def leave(
        self,
        call: str,
        tokens_beyond: int,
        slow_down: float | None,
        *,
        answered: bool,
        now: float | None = None,
    ) -> None:
        """The call ended; see ``core.pacing.Pace.leave``. ``now`` None is the server's clock."""
        asked = "" if slow_down is None else slow_down
        args = (
            *("" if now is None else now, call, tokens_beyond, asked, int(answered)),
            *(self._limits.tokens_per_minute or 0, pacing.BURST_SHARE),
            *(self._pausing.first_s, self._pausing.longest_s, self._pausing.most_s),
        )
        await self._leave(self._keys, args)


class _Script:
    def __init__(self, script: AsyncScript) -> None:
        self._script = script

    async def __call__(self, keys: Sequence[str], args: Sequence[str | int | float]) -> Any:
        return await self._script(keys, args)


def _script(client: Redis, name: str) -> _Script:
    source = files("chime_dist.adapters.redis").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")
    return _Script(client.register_script(source))
