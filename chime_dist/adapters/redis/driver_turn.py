"""The driver's turn in which a process takes part: whoever holds another one can change nothing of a launch."""

from __future__ import annotations


class DriverTurn:
    """What queue and journal of one process say with everything they ask of the server.

    A turn ends with the next driver's reset. Its name is random: a server that lost its data counts from the
    beginning again, and what counts would give an old process's number to a new one.
    """

    def __init__(self, name: str = "") -> None:
        """``name``: of the turn that the process's driver has begun; "" in a driver that has yet to begin one."""
        self.name = name
