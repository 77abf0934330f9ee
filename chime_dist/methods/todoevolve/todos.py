"""A todo list that knows its architecture: what waits for what, and what is next. Pure.

Links point to earlier numbers only, so no list can wait for itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from chime_dist.core.frozen import Frozen
from chime_dist.methods.todoevolve.architecture import Architecture


class Todo(Frozen):
    """One thing to do."""

    number: int
    """1-based; a number is never given twice."""
    text: str
    after: tuple[int, ...] = ()
    """Lower numbers that it waits for; means something in a dag."""
    part_of: int | None = None
    """The lower number of what it is a part of; means something in a tree."""
    done: bool = False


class TodoList(Frozen):
    """All todos, by number, and how they are to be read."""

    architecture: Architecture
    todos: tuple[Todo, ...]
    next_number: int
    """What the next new todo is called; above every number ever given, whatever became of it."""

    @property
    def open(self) -> tuple[Todo, ...]:
        """Those that are not done, by number."""
        return tuple(todo for todo in self.todos if not todo.done)

    def ready(self, left: Iterable[Todo]) -> list[Todo]:
        """Those of ``left`` that wait for none of ``left``, by number; at least one if there are any."""
        open_ = {todo.number: todo for todo in left}
        return [todo for number, todo in sorted(open_.items()) if not self.waits_for(todo) & open_.keys()]

    def waits_for(self, todo: Todo) -> frozenset[int]:
        """Numbers that come before it, done or not (see ``Topology``; a tree's parts come before the whole)."""
        match self.architecture.topology:
            case "linear":
                return frozenset([other.number for other in self.todos if other.number < todo.number][-1:])
            case "tree":
                return frozenset(other.number for other in self.todos if other.part_of == todo.number)
            case "dag":
                return frozenset(todo.after)
            case "parallel":
                return frozenset()

    def agenda(self) -> tuple[Todo, ...]:
        """The open todos in the order in which navigation takes them if each one works out."""
        left = list(self.open)
        order: list[Todo] = []
        while left:
            chosen = min(self.ready(left), key=lambda todo: self._rank(todo, order, left))
            order.append(chosen)
            left.remove(chosen)
        return tuple(order)

    def focus(self) -> tuple[Todo, ...]:
        """What to work on now: all that are ready where the executor chooses, else the agenda's first."""
        if self.architecture.navigation == "any_ready":
            return tuple(self.ready(self.open))
        return self.agenda()[:1]

    def shown(self) -> str:
        """The list as planner and executor read it, in the agenda's order."""
        lines = [f"{todo.number}. {todo.text}{self._link(todo)}" for todo in self.agenda()]
        if ticked := ", ".join(str(todo.number) for todo in self.todos if todo.done):
            lines.append(f"Done: {ticked}")
        focus = [str(todo.number) for todo in self.focus()]
        if not focus:
            lines.append("Next: nothing is left; finish the task")
        elif len(focus) == 1:
            lines.append(f"Next: {focus[0]}")
        else:
            lines.append(f"Next, in any order: {', '.join(focus)}")
        return "\n".join(lines)

    def _rank(self, todo: Todo, order: list[Todo], left: list[Todo]) -> tuple[int, int]:
        match self.architecture.navigation:
            case "in_order" | "any_ready":
                return 0, todo.number
            case "depth_first":
                related = self._related(todo)
                latest = max((place for place, done in enumerate(order) if done.number in related), default=-1)
                return -latest, todo.number
            case "most_blocking":
                return -len(self._blocked_by(todo, left)), todo.number

    def _related(self, todo: Todo) -> set[int]:
        """What it continues: those it waited for, and in a tree the other parts of the same whole."""
        siblings = (
            {other.number for other in self.todos if other.part_of == todo.part_of}
            if self.architecture.topology == "tree" and todo.part_of is not None
            else set()
        )
        return siblings | self.waits_for(todo)

    def _blocked_by(self, todo: Todo, left: list[Todo]) -> set[int]:
        """Numbers in ``left`` that cannot start before it, directly or not."""
        blocked: set[int] = set()
        reached = {todo.number}
        while reached:
            reached = {other.number for other in left if self.waits_for(other) & reached} - blocked
            blocked |= reached
        return blocked

    def _link(self, todo: Todo) -> str:
        if self.architecture.topology == "dag" and todo.after:
            return f" (after {', '.join(map(str, todo.after))})"
        if self.architecture.topology == "tree" and todo.part_of is not None:
            return f" (part of {todo.part_of})"
        return ""
