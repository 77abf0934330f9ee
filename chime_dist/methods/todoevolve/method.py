"""TodoEvolve (R43): a planning architecture is designed for each task, interpreted and adapted; no memory.

[U] The trained meta-planner of its paper is the run's own planner here (R9: one backbone), prompted for a design.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from chime_dist.core.episode import Json, Role, Step
from chime_dist.core.frozen import Frozen
from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.engine.stateless import Stateless
from chime_dist.errors import BackboneError
from chime_dist.methods.todoevolve.architecture import Architecture, architecture_schema, read_architecture
from chime_dist.methods.todoevolve.replies import (
    MAX_OPEN,
    MAX_SKETCHED,
    Revised,
    outline_schema,
    read_outline,
    read_revision,
    revision_schema,
)
from chime_dist.methods.todoevolve.todos import TodoList
from chime_dist.ports import EpisodeContext


class TodoEvolveOptions(Frozen):
    """How often the list is looked at again."""

    adapt_every: int = Field(default=8, ge=1)
    """Executor steps from one revision to the next. [C] The released code's interval, which also counts its own
    planning turns: there a revision comes after every seventh action."""


class TodoEvolve(Stateless):
    """Two calls of the planner before the first step (design, first list), and one before every eighth step after.

    An episode of n executor steps makes 2 + (n - 1) // ``adapt_every`` calls of the planner: 2 for up to 8 steps,
    3 for 9 to 16, 4 for 17 to 24.
    """

    Options: ClassVar[type[Frozen]] = TodoEvolveOptions
    name = "todoevolve"
    schemas: Mapping[Role, tuple[str, ...]] = {Role.PLANNER: ("design", "outline", "revise")}

    def __init__(self, options: TodoEvolveOptions) -> None:
        self.options = options

    def calls(self, steps: int) -> Mapping[Role, int]:
        """Design, first list, and the revisions."""
        return {Role.PLANNER: 2 + (steps - 1) // self.options.adapt_every}

    async def attempt(self, ctx: EpisodeContext) -> None:
        """Design, list, execute with revisions. Each of them becomes a step of the trajectory."""
        view: dict[str, Json] = ctx.view.model_dump(mode="json")
        architecture = await self._designed(ctx, view)
        first = await self._listed(ctx, view, architecture)
        ctx.planned(first.shown())
        turn = Turn(
            template="todoevolve/execute",
            variables={"view": view, "list_tools": ctx.action_mode == "json_schema", "todos": first.shown()},
            conversation=ctx.view.messages,
        )
        await ctx.execute(turn, _Adapting(ctx, view, first, self.options.adapt_every))

    async def _designed(self, ctx: EpisodeContext, view: Json) -> Architecture:
        reply = await _asked(ctx, view, "design", architecture_schema(), {})
        architecture, fault = read_architecture(reply.text, reply.finish_reason)
        data: dict[str, Json] = {"architecture": architecture.model_dump(mode="json")}
        if fault is None:
            ctx.noted("an architecture is designed", data)
        else:
            ctx.noted("the design cannot be used: a linear list is", {**data, "reason": fault})
        return architecture

    async def _listed(self, ctx: EpisodeContext, view: Json, architecture: Architecture) -> TodoList:
        variables: dict[str, Json] = {
            "architecture": architecture.model_dump(mode="json"),
            "most": MAX_SKETCHED if architecture.initialisation == "sketch" else MAX_OPEN,
        }
        reply = await _asked(ctx, view, "outline", outline_schema(architecture), variables)
        todos, fault = read_outline(reply.text, reply.finish_reason, architecture)
        if fault is not None:
            ctx.noted("the todos cannot be used as designed: a linear list is", {"reason": fault})
        return todos


class _Adapting:
    """The ``ports.StepHook`` of one episode; holds the list as it is now."""

    def __init__(self, ctx: EpisodeContext, view: Json, todos: TodoList, every: int) -> None:
        self._ctx = ctx
        self._view = view
        self._todos = todos
        self._every = every
        self._seen = 0
        """Steps of the trajectory that an earlier revision was shown."""

    async def __call__(self, number: int, steps: Sequence[Step]) -> str | None:
        if number == 0 or number % self._every:
            return None
        revised = await self._revised(number, steps)
        self._seen = len(steps)
        self._todos = revised.todos
        if revised.refused is not None:
            self._ctx.noted("a revision is refused: the todo list stays", {"reason": revised.refused})
            return None
        self._ctx.noted(
            f"the todo list is revised after {number} steps",
            revised.model_dump(mode="json", exclude={"todos", "refused"}),
        )
        return f"The planner looked at your progress. From now on this todo list holds:\n{self._todos.shown()}"

    async def _revised(self, number: int, steps: Sequence[Step]) -> Revised:
        variables: dict[str, Json] = {
            "architecture": self._todos.architecture.model_dump(mode="json"),
            "todos": self._todos.shown(),
            "next_number": self._todos.next_number,
            "most": MAX_OPEN,
            "taken": number,
            "steps": [step.model_dump(mode="json") for step in steps[self._seen :]],
        }
        try:
            reply = await _asked(self._ctx, self._view, "revise", revision_schema(self._todos), variables)
        except BackboneError as error:
            if error.code != "context_overflow":
                raise
            # The executor may still have room: its list does not get worse by not being looked at.
            return Revised(todos=self._todos, refused=str(error))
        return read_revision(reply.text, reply.finish_reason, self._todos)


async def _asked(
    ctx: EpisodeContext, view: Json, what: str, schema: dict[str, Json], variables: Mapping[str, Json]
) -> ChatReply:
    turn = Turn(
        template=f"todoevolve/{what}",
        variables={"view": view, "list_tools": True, **variables},
        conversation=ctx.view.messages,
        response_schema=schema,
        schema_name=what,
    )
    return await ctx.turn(Role.PLANNER, turn)
