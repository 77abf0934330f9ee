"""The durable work queue of one launch: a Redis Stream, one consumer group, and fenced completion.

The server's pending entries list is the lease. Its owner is the consumer and the delivery count, its age the
entry's idle time on the server's clock; renewing resets the age, taking over raises the count. The ready stream
is never trimmed by length (D6): an entry leaves it with its completion, or with the driver's turn. The change
feed is trimmed by length, because a change is a hint: who reads it looks at ``outstanding`` and ``head`` anyway.

Runs on Redis 6.2 and later; Redis Cluster is not supported.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import Any, cast

from chime_dist.adapters.lease_token import LeaseToken, check_consumer, check_proposal
from chime_dist.adapters.redis.connection import MAX_BLOCK_S, RedisConnection
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.scripts import Delivered, QueueScripts
from chime_dist.core.episode import Proposal, Unit
from chime_dist.ports import Change, Completed, Lease

_MOST_AT_ONCE = 1000
"""Units in one claim, changes in one read: a script's arguments and a reply stay small."""


class RedisQueue:
    """Implements ``ports.Queue``. Safe for many coroutines; claims of one consumer take turns.

    A consumer name belongs to one process at a time. What the name has pending and this object did not hand out
    is handed out again by the next claim: a reply that was lost (D4), or what the name's earlier process held
    (D11). Every method raises ServiceError when Redis stays unreachable or has lost the launch's keys (D7).

    The launch's driver calls ``reset`` before anybody else calls anything, and tells the others its turn. Once
    another driver has reset the queue, those of the older turn get TurnOverError and change nothing.
    """

    def __init__(self, connection: RedisConnection, keys: RedisKeys, lease_s: float, turn: DriverTurn) -> None:
        """``lease_s``: seconds without renewal after which a unit is handed to the next consumer. ``turn`` is the
        process's, and ``reset`` begins another one in it."""
        self._connection = connection
        self._keys = keys
        self._lease_ms = max(1, round(lease_s * 1000))
        self._look_again_s = min(MAX_BLOCK_S, lease_s)
        self._turn = turn
        self._scripts = QueueScripts(connection.commands, keys, turn)
        self._held: dict[str, dict[str, LeaseToken]] = {}
        """By consumer and entry: deliveries handed to the caller and not given back."""
        self._claims: dict[str, asyncio.Lock] = {}

    async def reset(self) -> str:
        """See ``ports.Queue``."""
        name = uuid.uuid4().hex
        await self._connection.run("resetting the queue", lambda: self._scripts.reset(name))
        self._turn.name = name
        self._held.clear()
        return name

    async def admit(self, unit: Unit) -> bool:
        """See ``ports.Queue``. A command that is re-sent after a lost reply adds nothing (D4)."""
        payload, nonce = unit.model_dump_json(), uuid.uuid4().hex
        return await self._connection.run(
            f"admitting {unit.key}", lambda: self._scripts.admit(unit.key, payload, nonce)
        )

    async def outstanding(self) -> set[str]:
        """See ``ports.Queue``."""
        return await self._connection.run("listing open units", self._scripts.outstanding)

    async def claim(self, consumer: str, count: int, wait_s: float) -> list[Lease]:
        """See ``ports.Queue``. Raises ValueError for an empty name or one that starts with ``~``.

        A unit that is given back, or whose lease runs out, while a claim waits is seen within a second.
        """
        check_consumer(consumer)
        count = min(count, _MOST_AT_ONCE)
        if count < 1:
            return []
        deadline = time.monotonic() + wait_s
        # Two claims of one consumer would sweep each other's deliveries out of the pending list.
        async with self._claims.setdefault(consumer, asyncio.Lock()):
            while True:
                held = list(self._held.get(consumer, ()))
                delivered = await self._connection.run(
                    f"claiming for {consumer}",
                    lambda: self._scripts.claim(consumer, count, self._lease_ms, held),  # noqa: B023
                )
                left = deadline - time.monotonic()
                if not delivered and left > 0:
                    delivered = await self._wait_for_new(consumer, count, min(left, self._look_again_s))
                if delivered or time.monotonic() >= deadline:
                    return [self._hand_out(d, consumer) for d in delivered]

    async def _wait_for_new(self, consumer: str, count: int, seconds: float) -> list[Delivered]:
        """Block for new entries. Asked once: what a lost reply delivered is swept by the next claim."""
        turn = self._turn.name
        reply = await self._connection.wait(
            f"waiting for work as {consumer}",
            lambda: self._connection.blocking.xreadgroup(
                turn, consumer, {self._keys.ready: ">"}, count=count, block=_milliseconds(seconds)
            ),
        )
        return [
            Delivered(entry, 1, turn, fields["unit"])
            for _, entries in cast("list[Any]", reply or [])
            for entry, fields in entries
        ]

    def _hand_out(self, delivered: Delivered, consumer: str) -> Lease:
        token = LeaseToken(delivered.turn, delivered.entry, delivered.delivery, consumer)
        self._held.setdefault(consumer, {})[token.entry] = token
        unit = Unit.model_validate_json(delivered.unit)
        return Lease(unit=unit, token=str(token), delivery=token.delivery)

    def _drop(self, token: LeaseToken) -> None:
        held = self._held.get(token.consumer, {})
        if held.get(token.entry) == token:
            del held[token.entry]

    async def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """See ``ports.Queue``."""
        if not leases:
            return []
        tokens = [LeaseToken.parse(lease.token) for lease in leases]
        lost = await self._connection.run("renewing leases", lambda: self._scripts.renew(tokens))
        for index in lost:
            self._drop(tokens[index])
        return [leases[index] for index in lost]

    async def complete(self, lease: Lease, proposal: Proposal | None) -> Completed:
        """See ``ports.Queue``. Raises ValueError for a proposal of another unit.

        A lease that ran out but was not handed on may still complete: nobody else works on the unit.
        """
        check_proposal(lease.unit, proposal)
        unit, token = lease.unit, LeaseToken.parse(lease.token)
        payload = "" if proposal is None else proposal.model_dump_json()
        answer = await self._connection.run(
            f"completing {unit.key}",
            lambda: self._scripts.complete(token, unit.key, unit.run_id, unit.position, payload),
        )
        self._drop(token)
        return Completed(answer)

    async def release(self, lease: Lease) -> bool:
        """See ``ports.Queue``."""
        token = LeaseToken.parse(lease.token)
        released = await self._connection.run(
            f"giving back {lease.unit.key}", lambda: self._scripts.release(token)
        )
        self._drop(token)
        return released

    async def submit(self, proposal: Proposal) -> None:
        """See ``ports.Queue``."""
        run_id, position, payload = proposal.run_id, proposal.position, proposal.model_dump_json()
        await self._connection.run(
            f"submitting position {position} of {run_id}", lambda: self._scripts.submit(run_id, position, payload)
        )

    async def proposal(self, run_id: str, position: int) -> Proposal | None:
        """See ``ports.Queue``."""
        name = self._keys.proposals(run_id)
        stored = await self._connection.run(
            f"reading the proposal of position {position} of {run_id}",
            lambda: self._connection.commands.hget(name, str(position)),
        )
        return None if stored is None else Proposal.model_validate_json(stored)

    async def forget(self, run_id: str, position: int) -> None:
        """See ``ports.Queue``."""
        await self._connection.run(
            f"dropping the proposal of position {position} of {run_id}",
            lambda: self._scripts.forget(run_id, position),
        )

    async def changes(self, since: str, timeout_s: float) -> tuple[str, list[Change]]:
        """See ``ports.Queue``. A reader that falls 10,000 changes behind misses the oldest."""
        deadline = time.monotonic() + timeout_s
        cursor = since
        while True:
            # The read is a command, so it is retried and notices that the keys are gone; waiting is only waiting.
            cursor, told = await self._connection.run(
                "reading changes",
                lambda: self._scripts.changes(cursor, _MOST_AT_ONCE),  # noqa: B023
            )
            left = deadline - time.monotonic()
            if told or left <= 0:
                return cursor, [Change(kind=t.kind, run_id=t.run_id, unit=t.unit, head=t.head) for t in told]
            await self._connection.wait(
                "waiting for changes",
                lambda: self._connection.blocking.xread(
                    {self._keys.changes: cursor},  # noqa: B023
                    count=1,
                    block=_milliseconds(min(left, MAX_BLOCK_S)),  # noqa: B023
                ),
            )

    async def close(self) -> None:
        """See ``ports.Queue``. Closes the connection, which the launch's journal may share."""
        await self._connection.close()


def _milliseconds(seconds: float) -> int:
    # 0 would block for ever.
    return max(1, round(seconds * 1000))
