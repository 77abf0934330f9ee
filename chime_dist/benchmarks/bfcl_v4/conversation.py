"""A session that comes before the memory questions: the user talks, the model may write down what it hears.

It goes like the package's own: each of the user's turns lasts until the model answers without a call, and one that
reaches the step cap ends the session. What is in the memory then is what the next session starts with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from chime_dist.benchmarks.bfcl_v4.memory import PrivateMemory
from chime_dist.benchmarks.bfcl_v4.package import Conversation, shared_package
from chime_dist.core.chat_reply import assistant_message
from chime_dist.core.episode import Json
from chime_dist.core.model_call import ChatReply, Message, Turn
from chime_dist.engine.action import action_schema, json_action, native_action
from chime_dist.errors import BackboneError
from chime_dist.ports import Action, Ask

TEMPLATE = "bfcl_v4/remember"

Ended = Literal["complete", "step_cap", "context_overflow"]
"""Why a session was over. Of the last two, what was written down until then counts."""


async def hold(
    conversation: Conversation,
    memory: PrivateMemory,
    tools: tuple[dict[str, Json], ...],
    ask: Ask,
    *,
    native: bool,
    max_steps: int,
) -> Ended:
    """Talk to the model, which changes ``memory``. Raises BackboneError for what is no fault of the model."""
    first, *later = conversation.turns
    instruction, *opening = shared_package().instructed(first, conversation.scenario, memory.api)
    turn = Turn(
        template=TEMPLATE,
        variables={"instruction": instruction["content"], "tools": [] if native else list(tools)},
        conversation=tuple(opening),
        tools=tools if native else (),
        response_schema=None if native else action_schema(tools),
        schema_name="action",
    )
    try:
        for said in ((), *later):
            turn = _continued(turn, said)
            for _ in range(max_steps):
                reply = await ask(turn)
                action = native_action(reply) if native else json_action(reply)
                turn = _continued(turn, (_as_said(reply, action, native),))
                if action.malformed is not None or not action.tool_calls:
                    break
                turn = _continued(turn, memory.results(action.tool_calls, native))
            else:
                return "step_cap"
    except BackboneError as error:
        if error.code != "context_overflow":
            raise
        return "context_overflow"
    return "complete"


def _continued(turn: Turn, messages: Sequence[Message]) -> Turn:
    return turn.model_copy(update={"history": (*turn.history, *messages)})


def _as_said(reply: ChatReply, action: Action, native: bool) -> Message:
    # Calls of a reply that could not be read are not made, and servers refuse a call without its answer.
    if native and action.malformed is None:
        return assistant_message(reply)
    return {"role": "assistant", "content": reply.text}
