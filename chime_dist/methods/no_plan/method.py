"""No-Plan (R43): a standard agent. No plan call, no memory, no gate; one executor from start to end."""

from __future__ import annotations

from typing import ClassVar

from chime_dist.core.frozen import Frozen
from chime_dist.core.model_call import Turn
from chime_dist.engine.stateless import Stateless
from chime_dist.ports import EpisodeContext


class NoPlanOptions(Frozen):
    """No-Plan has nothing to set."""


class NoPlan(Stateless):
    """One executor per episode."""

    Options: ClassVar[type[Frozen]] = NoPlanOptions
    name = "no_plan"

    def __init__(self, options: NoPlanOptions) -> None:
        self.options = options

    async def attempt(self, ctx: EpisodeContext) -> None:
        """Execute; costs one model call per step."""
        list_tools = ctx.action_mode == "json_schema"
        await ctx.execute(
            Turn(
                template="no_plan/execute",
                variables={"view": ctx.view.model_dump(mode="json"), "list_tools": list_tools},
                conversation=ctx.view.messages,
            )
        )
