"""One model turn: what a method asks, what goes over the wire, what comes back."""

from __future__ import annotations

from chime_dist.core.episode import Json, Usage
from chime_dist.core.frozen import Frozen

Message = dict[str, Json]
"""A chat message as the OpenAI-compatible API spells it: role, content, tool_calls, tool_call_id."""


class Note(Frozen):
    """Words of ours between two turns of the executor: part of the plan or the memories, never an observation."""

    after: int
    """How many messages of the history come before it."""
    text: str


class Turn(Frozen):
    """What a method asks of a role. Rendered by the role's actor, so only variables travel."""

    template: str
    """A prompt of a method, ``METHOD/NAME``: the file ``methods/METHOD/prompts/NAME.j2`` with the blocks
    ``system`` and ``user``."""
    variables: dict[str, Json] = {}
    """What the template needs. ``steps``, where it is one, holds a trajectory's steps: of a prompt that is too
    long the oldest observations among them are left out (R36), like those in ``history``."""
    conversation: tuple[Message, ...] = ()
    """The task's own messages. They stand between the system block and the user block, so that every role of
    an episode shares the longest possible prefix; the user block joins the last message if that is a user's."""
    history: tuple[Message, ...] = ()
    """Messages after the rendered ones, oldest first."""
    notes: tuple[Note, ...] = ()
    """Said as the user's words inside the history, oldest first. A note joins the message before it if that is a
    user's; it stays where that message is left out of a prompt that is too long (R36)."""
    tools: tuple[dict[str, Json], ...] = ()
    """OpenAI tool definitions; empty omits the field."""
    response_schema: dict[str, Json] | None = None
    """JSON schema the reply must follow (``response_format: json_schema``), or None for free text."""
    schema_name: str = "reply"
    temperature: float | None = None
    """None takes the backbone's (R35)."""
    max_tokens: int | None = None
    """Output limit in tokens; None takes the backbone's (R36)."""


class ChatRequest(Frozen):
    """One chat completion, rendered. What the backbone adapter sends, minus model name, URL and key."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Json], ...] = ()
    response_schema: dict[str, Json] | None = None
    schema_name: str = "reply"
    temperature: float = 0.0
    max_tokens: int | None = None
    session_id: str
    """The episode's id; sent as ``x-session-id`` so that its prefix cache is reused."""
    paced: bool = True
    """Whether it keeps the backbone's pace. A probe does not: it asks whether a pause may end (A9)."""

    @classmethod
    def one_token(cls, session_id: str, *, paced: bool = True) -> ChatRequest:
        """The smallest request there is: proof that a model completes, which healthy servers may not (A9)."""
        hello: Message = {"role": "user", "content": "hi"}
        return cls(messages=(hello,), max_tokens=1, session_id=session_id, paced=paced)


class ToolCall(Frozen):
    """A tool call as the model made it. ``arguments`` is None where they could not be read as one object."""

    id: str
    name: str
    arguments: dict[str, Json] | None
    raw: str
    """The arguments' text as received."""
    error: str | None = None
    """Why the arguments are unusable, in words the executor can act on."""


class ChatReply(Frozen):
    """A usable completion."""

    text: str = ""
    """The visible text; reasoning is not part of it."""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    """``stop``, ``length``, ``tool_calls`` or ``content_filter``."""
    usage: Usage = Usage()
    latency_s: float = 0.0
    """Seconds, all attempts and waits included."""
    sent: ChatRequest | None = None
    """What it answers, where prompts are captured; never set for a method."""
