"""Queue and journal in Redis against an oracle, with crashes between and around any two commands.

Whatever is asked may meet a server that is down, a connection that breaks before the command arrives, or a
reply that is lost after the work was done; the server is killed by kill -9 and comes back from its append-only
file, and workers and drivers forget what they held. Every answer is predicted, and what was acknowledged is there
afterwards.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import islice
from typing import Literal, TypeVar, get_args

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from redis.asyncio import Redis

from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.journal import RedisJournal
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.queue import RedisQueue
from chime_dist.adapters.redis.server import EmbeddedRedis
from chime_dist.core.episode import Unit
from chime_dist.errors import TurnOverError
from chime_dist.ports import Appended, Completed, Lease
from tests.adapters.lossy_proxy import LossyProxy
from tests.contract.folders import quick_folder
from tests.contract.labs import LEASE_S, RedisLab, proposal_of, train_unit

T = TypeVar("T")
Fault = Literal["none", "lost_reply", "cut", "down"]
FAULTS: tuple[Fault, ...] = get_args(Fault)

NOBODY = ""
POSITIONS = range(6)
WORKERS = ("a", "b")
SCRIPTS = {
    path.name.removesuffix(".lua"): path.read_bytes()
    for path in files("chime_dist.adapters.redis").joinpath("lua").iterdir()
    if path.name.endswith(".lua")
}
ASKS = (
    *("admit", "claim", "renew", "complete", "release", "submit", "forget", "take_fence", "append"),
    *("outstanding", "changes"),
)
"""What tells a process of an older turn that it is over."""
# A server that was killed takes ten times as long to answer as any other fault.
faults = st.sampled_from(("none", "lost_reply", "none", "cut", "lost_reply", "none", "cut", "lost_reply", "down"))
positions = st.sampled_from(POSITIONS)
workers = st.sampled_from(WORKERS)
picks = st.integers(0, 1000)


@dataclass
class Modelled:
    """What is true of one admitted unit."""

    unit: Unit
    delivery: int = 0
    owner: str = NOBODY
    """Whose lease it is; meaningful once it was delivered."""
    expired: bool = False
    """Whether anybody may take it over."""
    token: str = ""
    """Of the newest lease that reached its worker; "" where its reply was lost."""
    completed: str | None = None
    """The token it was completed with."""


@dataclass
class Oracle:
    """The contract, in memory."""

    units: dict[str, Modelled] = field(default_factory=dict)
    """Of this turn, in the order of their admission."""
    held: dict[str, set[str]] = field(default_factory=lambda: {worker: set() for worker in WORKERS})
    """By worker: keys of the units that its living process was handed and did not give back."""
    proposals: dict[int, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    fences: list[int] = field(default_factory=list)

    def claim(self, worker: str, count: int) -> list[Modelled]:
        """Own ones that the process does not know of, expired ones, new ones; as delivered once."""
        open_units = [unit for unit in self.units.values() if unit.completed is None]
        pending = [unit for unit in open_units if unit.delivery]
        own = [u for u in pending if u.owner == worker and u.unit.key not in self.held[worker]][:count]
        expired = islice((u for u in pending if u.expired), count)
        taken = [*own, *(u for u in expired if u not in own)][:count]
        new = [unit for unit in open_units if not unit.delivery]
        delivered = [*taken, *new[: count - len(taken)]]
        for unit in delivered:
            unit.delivery, unit.owner, unit.expired, unit.token = unit.delivery + 1, worker, False, ""
        return delivered

    def current(self, lease: Lease, worker: str) -> Modelled | None:
        """The unit, where this is its newest lease and nobody gave it back."""
        unit = self.units.get(lease.unit.key)
        valid = unit is not None and unit.completed is None and unit.owner == worker and unit.token == lease.token
        return unit if valid else None

    def append(self, fence: int, position: int, line: str) -> Appended:
        """The journal's answer."""
        there = self.lines[position] if position < len(self.lines) else None
        if there == line:
            return Appended.ALREADY_SAME
        if fence < self.fences[-1]:
            return Appended.FENCED
        if there is not None or position != len(self.lines):
            return Appended.CONFLICT
        self.lines.append(line)
        return Appended.APPENDED


class QueueMachine(RuleBasedStateMachine):
    """Drives both, with faults."""

    def __init__(self) -> None:
        super().__init__()
        self.oracle = Oracle()
        self.leases: list[tuple[Lease, str]] = []
        """Every lease that ever reached a worker, and which one."""
        self.over = DriverTurn()
        """The last turn that was over."""
        self.drawn = 0
        self._runner = asyncio.Runner()
        self._runner.run(self._open())

    # --- the world --------------------------------------------------------------------------------------

    async def _open(self) -> None:
        self._stack = AsyncExitStack()
        folder = self._stack.enter_context(quick_folder())
        self._state = folder / "redis"
        self._server = await EmbeddedRedis.start(self._state)
        self._stack.push_async_callback(self._stop_server)
        self._proxy = LossyProxy(self._server.url, folder / "p.sock")
        await self._stack.enter_async_context(self._proxy.running())
        self._lab = RedisLab(self._proxy.url, keys=RedisKeys("machine"))
        self._stack.push_async_callback(self._lab.connection.close)
        await self._load_scripts()
        self._driver = self._new_queue()
        self._workers = {worker: self._new_queue() for worker in WORKERS}
        await self._driver.reset()
        for position in islice(POSITIONS, 4):
            await self._driver.admit(train_unit(position))
            self.oracle.units[train_unit(position).key] = Modelled(train_unit(position))
        for _ in range(2):
            self.oracle.fences.append(await self._lab.journal.take_fence("run"))

    def _new_queue(self) -> RedisQueue:
        return RedisQueue(self._lab.connection, self._lab.keys, LEASE_S, self._lab.turn)

    async def _load_scripts(self) -> None:
        # So that the first reply to a script is the script's and not that nobody knows it.
        client = Redis(unix_socket_path=str(self._server.socket))
        for source in SCRIPTS.values():
            await client.script_load(source.decode())
        await client.aclose()

    async def _stop_server(self) -> None:
        await self._server.stop()

    async def _kill(self) -> None:
        os.kill(self._server.pid, signal.SIGKILL)
        await self._server.stop()

    async def _restart(self) -> None:
        self._server = await EmbeddedRedis.start(self._state)
        await self._load_scripts()

    def _ask(self, command: str, fault: Fault, ask: Callable[[], Awaitable[T]]) -> T:
        """Do it under the fault; ``command`` is a script's name or a command."""
        source = SCRIPTS.get(command)
        mark = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode() if source else command.encode()

        async def asked() -> T:
            if fault == "lost_reply":
                self._proxy.lose(mark)
            elif fault == "cut":
                self._proxy.drop(mark)
            elif fault == "down":
                await self._kill()
                answer = asyncio.ensure_future(ask())
                await self._restart()
                return await answer
            answer_now = await ask()
            assert self._proxy.idle, "the fault met the command"
            return answer_now

        return self._runner.run(asked())

    # --- what workers, driver and owner do --------------------------------------------------------------

    @rule(position=positions, fault=faults)
    def admit(self, position: int, fault: Fault) -> None:
        """Once per turn."""
        unit = train_unit(position)
        new = unit.key not in self.oracle.units
        assert self._ask("admit", fault, lambda: self._driver.admit(unit)) is new
        self.oracle.units.setdefault(unit.key, Modelled(unit))

    @rule(worker=workers, count=st.integers(1, 4), fault=faults)
    def claim(self, worker: str, count: int, fault: Fault) -> None:
        """Every delivery and its count is predicted."""
        expected = self.oracle.claim(worker, count)
        if fault == "lost_reply":
            # Asked again, the server hands out what nobody got, and counts that.
            expected = self.oracle.claim(worker, count)
        leases = self._ask("claim", fault, lambda: self._workers[worker].claim(worker, count, 0.0))
        assert [(lease.unit.key, lease.delivery) for lease in leases] == [
            (unit.unit.key, unit.delivery) for unit in expected
        ]
        for unit, lease in zip(expected, leases, strict=True):
            unit.token = lease.token
            self.oracle.held[worker].add(unit.unit.key)
            self.leases.append((lease, worker))

    @precondition(lambda self: self.leases)
    @rule(pick=picks, fault=faults)
    def complete(self, pick: int, fault: Fault) -> None:
        """With any lease there ever was."""
        self._complete(*self._picked(pick), fault)

    def _complete(self, lease: Lease, worker: str, fault: Fault) -> None:
        unit, known = self.oracle.current(lease, worker), self.oracle.units.get(lease.unit.key)
        expected = Completed.LOST
        if unit is not None:
            expected = Completed.ALREADY_SAME if fault == "lost_reply" else Completed.STORED
            unit.completed = lease.token
            self.oracle.proposals.setdefault(lease.unit.position, lease.token)
        elif known is not None and known.completed == lease.token:
            expected = Completed.ALREADY_SAME
        answer = self._ask(
            "complete",
            fault,
            lambda: self._workers[worker].complete(lease, proposal_of(lease.unit, lease.token)),
        )
        assert answer is expected
        self._dropped(lease, worker)

    @precondition(lambda self: self.leases)
    @rule(pick=picks, fault=faults)
    def renew(self, pick: int, fault: Fault) -> None:
        """Likewise."""
        lease, worker = self._picked(pick)
        unit = self.oracle.current(lease, worker)
        lost = self._ask("renew", fault, lambda: self._workers[worker].renew([lease]))
        assert lost == ([] if unit else [lease])
        if unit:
            unit.expired = False
        else:
            self._dropped(lease, worker)

    @precondition(lambda self: self.leases)
    @rule(pick=picks, fault=faults)
    def release(self, pick: int, fault: Fault) -> None:
        """Likewise."""
        self._release(*self._picked(pick), fault)

    def _release(self, lease: Lease, worker: str, fault: Fault) -> None:
        unit, known = self.oracle.current(lease, worker), self.oracle.units.get(lease.unit.key)
        again = known is not None and known.owner == NOBODY and known.token == lease.token
        done = self._ask("release", fault, lambda: self._workers[worker].release(lease))
        assert done is (unit is not None or again)
        if unit:
            unit.owner, unit.expired = NOBODY, True
        self._dropped(lease, worker)

    @rule(position=positions, fault=faults)
    def submit(self, position: int, fault: Fault) -> None:
        """The first proposal of a position stands."""
        proposal = proposal_of(train_unit(position), self._new("found on disk"))
        self._ask("submit", fault, lambda: self._driver.submit(proposal))
        self.oracle.proposals.setdefault(position, proposal.attempt)

    @rule(position=positions, fault=faults)
    def forget(self, position: int, fault: Fault) -> None:
        """Of a position that is committed, or of any other."""
        self._ask("forget", fault, lambda: self._driver.forget("run", position))
        self.oracle.proposals.pop(position, None)

    @rule(fault=faults)
    def take_fence(self, fault: Fault) -> None:
        """Higher than every one before."""
        fence = self._ask("take_fence", fault, lambda: self._lab.journal.take_fence("run"))
        assert fence == max(self.oracle.fences, default=0) + (2 if fault == "lost_reply" else 1)
        self.oracle.fences.append(fence)

    @rule(pick=picks, back=st.sampled_from((0, 0, 0, 1, 2, -1)), same=st.booleans(), fault=faults)
    def append(self, pick: int, back: int, same: bool, fault: Fault) -> None:
        """At the head, before it or behind it; a line of its own, or the one that is there; any fence."""
        fences, lines = self.oracle.fences, self.oracle.lines
        fence = fences[-1 - pick % 3 // 2 * (pick % len(fences))]
        position = max(0, len(lines) - back)
        line = lines[position] if same and position < len(lines) else self._new(f"line {position}")
        expected = self.oracle.append(fence, position, line)
        if expected is Appended.APPENDED and fault == "lost_reply":
            expected = Appended.ALREADY_SAME
        answer = self._ask("append", fault, lambda: self._lab.journal.append("run", fence, position, line))
        assert answer is expected

    # --- what happens to them ---------------------------------------------------------------------------

    @rule()
    def the_server_dies_and_comes_back(self) -> None:
        """SIGKILL; whatever it acknowledged is in its append-only file."""

        async def die() -> None:
            await self._kill()
            await self._restart()

        self._runner.run(die())
        self.look()

    @rule()
    def time_passes(self) -> None:
        """Every lease runs out."""
        self._runner.run(self._lab.pass_time(LEASE_S + 1))
        for unit in self.oracle.units.values():
            unit.expired = True

    @rule(worker=workers, pick=picks)
    def leases_run_out_and_one_of_the_late_owners_completes(self, worker: str, pick: int) -> None:
        """Whoever took the units over, the same worker or another one."""
        self.time_passes()
        self.claim(worker, len(POSITIONS), "none")
        if self.leases:
            self._complete(*self.leases[pick % len(self.leases)], "none")

    @precondition(lambda self: self.leases)
    @rule(pick=picks, fault=faults)
    def a_worker_completes_what_it_gave_back(self, pick: int, fault: Fault) -> None:
        """Its cancelled episode was not quite over."""
        lease, worker = self._picked(pick)
        self._release(lease, worker, fault)
        self._complete(lease, worker, fault)

    @rule(worker=workers)
    def a_worker_dies_and_comes_back_under_its_name(self, worker: str) -> None:
        """Nobody knows its claims any more, but for their tokens."""
        self._workers[worker] = self._new_queue()
        self.oracle.held[worker].clear()

    @precondition(lambda self: any(unit.completed for unit in self.oracle.units.values()))
    @rule(fault=faults, again=st.booleans())
    def a_driver_starts(self, fault: Fault, again: bool) -> None:
        """A new turn, by the same process or by another one."""
        self.over = DriverTurn(self._lab.turn.name)
        if not again:
            self._driver = self._new_queue()
        self._ask("reset", fault, self._driver.reset)
        self.oracle.units.clear()
        for worker in WORKERS:
            self.a_worker_dies_and_comes_back_under_its_name(worker)

    @precondition(lambda self: self.over.name and self.leases)
    @rule(position=positions, pick=picks, command=st.sampled_from(ASKS), fault=faults)
    def a_process_of_a_replaced_driver_asks(self, position: int, pick: int, command: str, fault: Fault) -> None:
        """It is told that its turn is over, and nothing happens; also where it has the newest fence."""
        connection, keys = self._lab.connection, self._lab.keys
        queue, journal = (
            RedisQueue(connection, keys, LEASE_S, self.over),
            RedisJournal(connection, keys, self.over),
        )
        unit, (lease, worker) = train_unit(position), self._picked(pick)
        fence, head = self.oracle.fences[-1], len(self.oracle.lines)
        asks: dict[str, Callable[[], Awaitable[object]]] = {
            "admit": lambda: queue.admit(unit),
            "claim": lambda: queue.claim(worker, 3, 0.0),
            "renew": lambda: queue.renew([lease]),
            "complete": lambda: queue.complete(lease, proposal_of(lease.unit)),
            "release": lambda: queue.release(lease),
            "submit": lambda: queue.submit(proposal_of(unit)),
            "forget": lambda: queue.forget("run", position),
            "take_fence": lambda: journal.take_fence("run"),
            "append": lambda: journal.append("run", fence, head, "a line of an older turn"),
            "outstanding": queue.outstanding,
            "changes": lambda: queue.changes("", 0.0),
        }
        with pytest.raises(TurnOverError):
            self._ask(command, fault, asks[command])
        self.look()

    @rule()
    def look(self) -> None:
        """What was acknowledged is there, once, and nothing else is."""
        self._runner.run(self._looked())

    async def _looked(self) -> None:
        oracle = self.oracle
        assert await self._driver.outstanding() == {k for k, u in oracle.units.items() if u.completed is None}
        for position in POSITIONS:
            stored = await self._driver.proposal("run", position)
            assert (stored.attempt if stored else None) == oracle.proposals.get(position)
        assert await self._lab.journal.read("run") == oracle.lines
        assert await self._lab.journal.head("run") == len(oracle.lines)

    def teardown(self) -> None:
        """What was admitted can still be claimed and completed, exactly once."""
        try:
            self.the_server_dies_and_comes_back()
            self.time_passes()
            for _ in POSITIONS:
                before = len(self.leases)
                self.claim("a", len(POSITIONS), "none")
                for lease, worker in self.leases[before:]:
                    self._complete(lease, worker, "none")
            assert all(unit.completed for unit in self.oracle.units.values()), "an admitted unit was lost"
            self.look()
        finally:
            self._runner.run(self._stack.aclose())
            self._runner.close()

    # ----------------------------------------------------------------------------------------------------

    def _picked(self, pick: int) -> tuple[Lease, str]:
        """One of all leases there ever were, mostly a late one."""
        late = self.leases[-4:] if pick % 4 else self.leases
        return late[pick % len(late)]

    def _dropped(self, lease: Lease, worker: str) -> None:
        unit = self.oracle.units.get(lease.unit.key)
        if unit is not None and unit.token == lease.token:
            self.oracle.held[worker].discard(lease.unit.key)

    def _new(self, text: str) -> str:
        self.drawn += 1
        return f"{text}, {self.drawn}"


@pytest.mark.parametrize("fault", FAULTS)
def test_every_command_meets_every_fault(fault: Fault) -> None:
    """D2, D4, D10: in the order of a launch's life; chance adds the orders that nobody thought of."""
    machine = QueueMachine()
    try:
        machine.admit(4, fault)
        machine.admit(4, fault)
        machine.claim("a", 3, fault)
        machine.leases_run_out_and_one_of_the_late_owners_completes("a", 0)
        machine.release(0, fault)
        machine.renew(0, fault)
        machine.leases_run_out_and_one_of_the_late_owners_completes("b", 1)
        machine.time_passes()
        machine.claim("a", 3, fault)
        for pick in (1, 2):
            machine.renew(pick, fault)
            machine.release(pick, fault)
            machine.claim("b", 2, fault)
            machine.complete(pick, fault)
        machine.a_worker_completes_what_it_gave_back(3, fault)
        machine.submit(5, fault)
        machine.look()
        machine.forget(5, fault)
        for back, same in ((0, False), (0, False), (1, True), (1, False), (-1, False)):
            machine.append(0, back, same, fault)
        machine.take_fence(fault)
        machine.append(2, 0, False, fault)
        machine.a_driver_starts(fault, again=False)
        machine.admit(0, fault)
        for command in ASKS:
            machine.a_process_of_a_replaced_driver_asks(0, 0, command, fault)
        machine.claim("a", 1, fault)
        machine.release(0, fault)
        machine.complete(0, fault)
        machine.complete(3, fault)
    finally:
        machine.teardown()


def test_no_crash_between_any_two_commands_loses_or_doubles_anything_that_was_acknowledged() -> None:
    """D1, D2, D4, D10, D11, R7: completions, proposals and journal lines survive, no count falls, no stale token
    completes and no stale fence appends."""
    run_state_machine_as_test(
        QueueMachine,
        settings=settings(
            max_examples=6,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
