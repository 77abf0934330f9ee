"""Whether backbones do what the roles on them need, shown before the first episode.

One that we serve must; of one that others serve it is told, because its next answer may be another server's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import structlog

from chime_dist.adapters.models.chat_request import ChatSettings, request_body
from chime_dist.adapters.vllm.engine_api import EngineApi
from chime_dist.config.cluster import HttpEndpoint
from chime_dist.config.models import BackboneModel
from chime_dist.config.serving import VllmEndpoint
from chime_dist.core.model_call import ChatRequest
from chime_dist.errors import ServingError
from chime_dist.wiring.health.finding import Finding, ok, problem
from chime_dist.wiring.health.models import forms_of, forms_shown, probed
from chime_dist.wiring.plans import PlannedRun
from chime_dist.wiring.services import LaunchSpec

if TYPE_CHECKING:
    from chime_dist.adapters.vllm.fleet import Fleet

_QUESTION = "Is 7 a prime number? Answer with one word."
_QUESTION_TOKENS = 64
_SHOWN = 60

log = structlog.get_logger()


async def warm_up(
    spec: LaunchSpec, runs: Sequence[PlannedRun], fleets: Mapping[str, Fleet], tell: Callable[[str], None]
) -> None:
    """Ask every backbone for what its roles will ask.

    Logs what may be wrong, and tells what is with a backbone of others; raises ServingError with all that is wrong
    with ours. Each comes with the key or flag to change.
    """
    await _others(spec, runs, tell)
    models = {name: model for name, model in spec.models.items() if name in fleets}
    found = await asyncio.gather(*(_findings(spec, runs, model, fleets[name]) for name, model in models.items()))
    problems = []
    for finding in (finding for findings in found for finding in findings):
        if finding.level == "problem":
            problems.append(f"  {finding.check}: {finding.what}; fix: {finding.fix}")
        elif finding.level == "warning":
            _log(finding)
    if problems:
        raise ServingError("\n".join(["a served backbone cannot do what its roles need:", *problems]))


async def _others(spec: LaunchSpec, runs: Sequence[PlannedRun], tell: Callable[[str], None]) -> None:
    models = [m for name, m in spec.models.items() if isinstance(spec.cluster.endpoints[name], HttpEndpoint)]
    for findings in await asyncio.gather(*(forms_shown(spec, m, forms_of(m.name, runs)) for m in models)):
        for finding in findings:
            if finding.level != "ok":
                _log(finding)
            if finding.level == "problem":
                tell(f"warning: {finding.check}: {finding.what}; fix: {finding.fix}")


def _log(finding: Finding) -> None:
    log.warning("backbone.warm_up", check=finding.check, what=finding.what, fix=finding.fix)


async def _findings(
    spec: LaunchSpec, runs: Sequence[PlannedRun], model: BackboneModel, fleet: Fleet
) -> list[Finding]:
    endpoint = spec.cluster.endpoints[model.name]
    assert isinstance(endpoint, VllmEndpoint)
    return [
        context_finding(model, endpoint, await fleet.api.context_tokens(model.model)),
        await thinking_finding(model, fleet.api),
        *await probed(spec, model, forms_of(model.name, runs)),
    ]


def context_finding(model: BackboneModel, endpoint: VllmEndpoint, served_tokens: int | None) -> Finding:
    """Whether prompts of ``max_input_tokens`` fit into what the server says it takes (R36).

    A longer prompt is cut to ``max_input_tokens`` before it is sent; one that the server refuses ends its episode.
    """
    check, key = f"backbone {model.name}, context", f"cluster.endpoints.{model.name}.context_tokens"
    if served_tokens is None:
        return problem(check, "the server does not say how long it is", f"look at {key} and at the server's log")
    if endpoint.context_tokens not in (None, served_tokens):
        return problem(
            check,
            f"{endpoint.context_tokens} tokens were asked for, the server has {served_tokens}",
            f"correct {key} (vLLM's --max-model-len)",
        )
    if model.max_input_tokens >= served_tokens:
        return problem(
            check,
            f"prompts of up to max_input_tokens ({model.max_input_tokens}) are sent to a server that takes"
            f" {served_tokens} tokens, prompt and output together",
            f"lower backbones.{model.name}.max_input_tokens, or raise {key} (vLLM's --max-model-len)",
        )
    return ok(check, f"{served_tokens} tokens")


async def thinking_finding(model: BackboneModel, api: EngineApi) -> Finding:
    """Whether a model that must not think (R35) answers at once."""
    check = f"backbone {model.name}, thinking"
    if model.thinking:
        return ok(check, "is on")
    settings = ChatSettings(
        name=model.name, base_url=api.url, model=model.model, extra_body=model.extra_body, thinking=False
    )
    request = ChatRequest(messages=({"role": "user", "content": _QUESTION},), session_id="warm-up")
    thoughts = await api.thoughts(request_body(settings, request, _QUESTION_TOKENS))
    if not thoughts:
        return ok(check, "is off")
    return problem(
        check,
        f"is off, and yet it thinks: {thoughts[:_SHOWN]!r}",
        f"switch it off by the template's own variable in cluster.endpoints.{model.name}.chat_template_kwargs "
        "(vLLM's --default-chat-template-kwargs), or, where the model always thinks, set thinking: true of this "
        f"backbone and cluster.endpoints.{model.name}.reasoning_parser (vLLM's --reasoning-parser)",
    )
