"""``show --prompts``: what an episode said to its models and what they said, word for word."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from rich.console import RenderableType
from rich.text import Text

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.prompt_files import load_prompts
from chime_dist.cli.output import counted, foreign, show, show_json
from chime_dist.cli.targets import find
from chime_dist.core.captured import CapturedCall, CapturedEpisode
from chime_dist.core.episode import Json
from chime_dist.core.model_call import ChatReply, ChatRequest, Message


def show_prompts(path: Path, words: Sequence[str], as_json: bool) -> None:
    """Every model turn of one episode. Raises typer.BadParameter where none was kept."""
    target = find(path, words)
    if (episode := target.episode) is None:
        raise typer.BadParameter("say of which episode, e.g. train:0", param_hint="--prompts")
    run_id = target.require_run()
    trace = EpisodeArchive(target.launch).trace_at(run_id, episode.phase, episode.position, episode.version)
    if trace is None:
        raise typer.BadParameter(f"{run_id} {episode} has no final attempt, so no prompts of it were kept")
    found = load_prompts(target.launch.run(run_id), trace.record)
    if found is None:
        raise typer.BadParameter(
            f"no prompts of {run_id} {episode} were kept; --capture-prompts, of sweep and resume, keeps those of "
            "the episodes that run from then on"
        )
    if as_json:
        show_json({"directory": target.launch.path, "unit": trace.record.unit.key, "prompts": found})
    else:
        show(*prompts_view(trace.record.unit.key, found))


def prompts_view(unit: str, episode: CapturedEpisode) -> Iterator[RenderableType]:
    """For people: messages as they were sent, one under the other."""
    yield foreign(f"{unit}\nattempt {episode.attempt}, {counted(len(episode.calls), 'model turn')}")
    for number, call in enumerate(episode.calls):
        yield from _call(number, call)


def _call(number: int, call: CapturedCall) -> Iterator[RenderableType]:
    yield Text(f"\n{number} {call.role}: {call.template}", style="bold underline")
    if call.cut:
        yield Text(f"{call.cut:,} characters of its longest texts were cut", style="yellow")
    if call.request is not None:
        yield from _request(call.request)
    if call.reply is not None:
        yield from _reply(call.reply)
    if call.error:
        yield foreign(f"failed: {call.error}", "red")


def _request(request: ChatRequest) -> Iterator[RenderableType]:
    yield foreign(f"temperature {request.temperature:g}, at most {request.max_tokens} tokens", "dim")
    for tool in request.tools:
        yield foreign(f"tool: {_spelled(tool)}", "dim")
    if request.response_schema is not None:
        yield foreign(f"schema {request.schema_name}: {_spelled(request.response_schema)}", "dim")
    for message in request.messages:
        yield from _message(message)


def _message(message: Message) -> Iterator[RenderableType]:
    rest = {key: value for key, value in message.items() if key not in ("role", "content") and value}
    content = message.get("content")
    yield Text(f"--- {message.get('role', '?')}", style="bold")
    if content:
        yield foreign(content if isinstance(content, str) else _spelled(content))
    if rest:
        yield foreign(_spelled(rest))


def _reply(reply: ChatReply) -> Iterator[RenderableType]:
    usage = f"{reply.usage.prompt_tokens} tokens in, {reply.usage.completion_tokens} out"
    yield Text(f"--- reply ({reply.finish_reason}, {reply.latency_s:.2f} s, {usage})", style="bold green")
    if reply.text:
        yield foreign(reply.text)
    for call in reply.tool_calls:
        yield foreign(f"call {call.name}({call.raw})" + (f" refused: {call.error}" if call.error else ""))


def _spelled(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
