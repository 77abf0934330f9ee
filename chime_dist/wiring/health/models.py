"""Whether every model of a sweep answers, in the forms that the roles on it need (A9)."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Sequence
from importlib.util import find_spec

from chime_dist.adapters.models.llamacpp import LlamaCppSettings, model_file
from chime_dist.adapters.vllm.need import need_of
from chime_dist.config.cluster import LlamaCppEndpoint, ScriptedEndpoint
from chime_dist.config.models import EMBEDDER_ENDPOINT, BackboneModel
from chime_dist.config.serving import VllmEndpoint
from chime_dist.core.episode import Json, Role
from chime_dist.core.json_schema import closed
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.errors import BackboneError, ChimeDistError, EmbeddingError
from chime_dist.ports import Backbone
from chime_dist.wiring import embedders, registry, services
from chime_dist.wiring.health.finding import Finding, ok, problem, warning
from chime_dist.wiring.plans import PlannedRun
from chime_dist.wiring.services import LaunchSpec

PROBE_BUDGET_S = 120.0
"""How long one probe may take, in seconds."""
_PROBE_TOKENS = 1_024
"""Output limit of a probe: a model that thinks first needs room for that."""

_SESSION = "doctor"
_TOOLS = "tools"
_ANSWER = closed({"answer": {"type": "integer"}})
_TOOL: dict[str, Json] = {
    "type": "function",
    "function": {"name": "report", "description": "Report a number.", "parameters": _ANSWER},
}
_TOOL_FIX = (
    "start vLLM with --enable-auto-tool-choice --tool-call-parser PARSER (the one of the model's family, e.g. "
    "hermes for Qwen), SGLang with --tool-call-parser PARSER, llama.cpp with --jinja; or let the benchmark use "
    "action_mode: json_schema"
)
_SCHEMA_FIX = (
    "use a server that enforces response_format json_schema (vLLM, SGLang, llama.cpp; a reasoning model needs its "
    "--reasoning-parser), or set structured_output of this backbone to llguidance (llama.cpp) or none"
)


async def backbone_findings(spec: LaunchSpec, runs: Sequence[PlannedRun]) -> AsyncIterator[Finding]:
    """One finding per model and form: one token, then a tool call or a JSON object where a role needs it."""
    for name, model in spec.models.items():
        endpoint = spec.cluster.endpoints[name]
        if isinstance(endpoint, ScriptedEndpoint):
            yield ok(f"backbone {name}", "scripted, in this process")
        elif isinstance(endpoint, LlamaCppEndpoint):
            yield _llamacpp(name, endpoint)
        elif isinstance(endpoint, VllmEndpoint):
            yield _vllm(name, endpoint)
        else:
            for finding in await probed(spec, model, forms_of(name, runs)):
                yield finding


def forms_of(name: str, runs: Sequence[PlannedRun]) -> dict[str, set[str]]:
    """The forms in which the backbone called ``name`` must answer, ``tools`` or a schema's name, and who asks."""
    forms: dict[str, set[str]] = {}
    for run in runs:
        executor = "action" if registry.benchmark(run.config.benchmark).action_mode == "json_schema" else _TOOLS
        asked = {Role.EXECUTOR: (executor,), **registry.method(run.config.method).schemas}
        for role, wanted in asked.items():
            if run.config.backbone_of(role).name == name:
                for form in wanted:
                    forms.setdefault(form, set()).add(role.value)
    return forms


def _llamacpp(name: str, endpoint: LlamaCppEndpoint) -> Finding:
    check = f"backbone {name}"
    try:
        model = model_file(endpoint.model_path or LlamaCppSettings().model)
    except ChimeDistError as error:
        return problem(check, str(error))
    if find_spec("xllamacpp") is None:
        return problem(check, "no llama.cpp server is installed", "pip install 'chime-dist[embedded]'")
    return ok(check, f"llama.cpp with {model.name}; a launch starts it")


async def probed(spec: LaunchSpec, model: BackboneModel, forms: dict[str, set[str]]) -> list[Finding]:
    """Ask a backbone that answers for a token and for each of ``forms``."""
    run = next(iter(spec.runs.values()))
    client = services.backbone(spec, model, run.requests.model_copy(update={"max_retries": 0}))
    try:
        first = await _one_token(client, model)
        return [first] if first.level == "problem" else [first, *await _shown(client, model, forms)]
    finally:
        await client.close()


async def forms_shown(spec: LaunchSpec, model: BackboneModel, forms: dict[str, set[str]]) -> list[Finding]:
    """Ask a backbone that is known to answer for each of ``forms``."""
    run = next(iter(spec.runs.values()))
    client = services.backbone(spec, model, run.requests.model_copy(update={"max_retries": 0}))
    try:
        return await _shown(client, model, forms)
    finally:
        await client.close()


def _vllm(name: str, endpoint: VllmEndpoint) -> Finding:
    check, router = f"backbone {name}", endpoint.router.command[0]
    if shutil.which(router) is None:
        fix = f"pip install 'chime-dist[serve]', or set cluster.endpoints.{name}.router.command"
        return problem(check, f"there is no command {router!r} on this machine", fix)
    return ok(
        check, f"vLLM; a launch starts {endpoint.replicas} of it, each on {need_of(endpoint)}, and tries them"
    )


async def _one_token(client: Backbone, model: BackboneModel) -> Finding:
    check = f"backbone {model.name}"
    try:
        reply = await client.complete(ChatRequest.one_token(_SESSION), PROBE_BUDGET_S)
    except BackboneError as error:
        return problem(check, f"did not complete one token: {error}", reach_fix(error, model.name, model.model))
    return ok(check, f"completed a token in {reply.latency_s:.1f} s")


def reach_fix(error: BackboneError, name: str, model: str) -> str:
    """What to do about a backbone ``name`` that served no token of ``model``."""
    endpoint = f"cluster.endpoints.{name}"
    if error.code == "unreachable":
        return f"start the server, or correct {endpoint}.url (it ends with the version, e.g. /v1)"
    if error.code == "auth":
        return f"correct {endpoint}.api_key"
    if error.code == "bad_request":
        return (
            f"check that the server serves the model {model!r} (its --served-model-name), and {endpoint}.url (it "
            "ends with the version, e.g. /v1)"
        )
    if error.code == "rate_limited":
        return f"ask again later; where others use it too, set {endpoint}.limits to what is left for this launch"
    if error.code == "empty_completion":
        return f"correct {endpoint}.url: what answers there is no OpenAI-compatible API (it ends with e.g. /v1)"
    if error.code in ("timeout", "budget"):
        return "look at the server's log: it accepts requests and produces nothing"
    return "look at the server's log"


async def _shown(client: Backbone, model: BackboneModel, forms: dict[str, set[str]]) -> list[Finding]:
    return [await _form(client, model, names, roles) for names, roles in _tried_once(model, forms)]


def _tried_once(model: BackboneModel, forms: dict[str, set[str]]) -> list[tuple[list[str], list[str]]]:
    """(forms, who asks for them), together where the same probe shows them all."""
    alike: dict[str, list[str]] = {}
    for form in sorted(forms):
        alike.setdefault(_TOOLS if form == _TOOLS else _enforced(model, form), []).append(form)
    return [(names, sorted(set().union(*(forms[name] for name in names)))) for names in alike.values()]


def _enforced(model: BackboneModel, schema: str) -> str:
    return model.structured_output_by_schema.get(schema, model.structured_output)


async def _form(client: Backbone, model: BackboneModel, names: Sequence[str], roles: Sequence[str]) -> Finding:
    asked_by = f"(asked by {', '.join(roles)})"
    if names[0] == _TOOLS:
        return await _tool_call(client, f"backbone {model.name}, tool calls {asked_by}")
    check = f"backbone {model.name}, schema {', '.join(names)} {asked_by}"
    if _enforced(model, names[0]) == "none":
        return ok(check, "structured output is off for it; replies are read as they come")
    return await _schema(client, check, names[0])


async def _tool_call(client: Backbone, check: str) -> Finding:
    request = _request("Call the tool report with the answer 7. Say nothing else.", tools=(_TOOL,))
    try:
        reply = await client.complete(request, PROBE_BUDGET_S)
    except BackboneError as error:
        return problem(check, f"a request with tools failed: {error}", _TOOL_FIX)
    if reply.tool_calls:
        call = reply.tool_calls[0]
        if call.arguments is None:
            return warning(check, f"its arguments could not be read: {call.error}", _TOOL_FIX)
        return ok(check, "called the tool")
    if "report" in reply.text:
        return problem(check, "the call came as text: the server did not parse it", _TOOL_FIX)
    return warning(
        check, f"the model did not call the tool it was told to call ({reply.finish_reason})", _TOOL_FIX
    )


async def _schema(client: Backbone, check: str, form: str) -> Finding:
    request = _request("Reply with a JSON object whose field answer is 7.", schema=_ANSWER, schema_name=form)
    try:
        reply = await client.complete(request, PROBE_BUDGET_S)
    except BackboneError as error:
        return problem(check, f"a request with a schema failed: {error}", _SCHEMA_FIX)
    if _fits(reply):
        return ok(check, "followed the schema")
    if reply.finish_reason == "length":
        return warning(check, f"the reply was cut at {_PROBE_TOKENS} tokens", _SCHEMA_FIX)
    return problem(check, "the reply does not follow the schema: the server does not enforce it", _SCHEMA_FIX)


def _fits(reply: ChatReply) -> bool:
    try:
        found = json.loads(reply.text)
    except ValueError:
        return False
    return isinstance(found, dict) and found.keys() == {"answer"} and isinstance(found["answer"], int)


def _request(
    text: str,
    *,
    tools: tuple[dict[str, Json], ...] = (),
    schema: dict[str, Json] | None = None,
    schema_name: str = "reply",
) -> ChatRequest:
    return ChatRequest(
        messages=({"role": "user", "content": text},),
        tools=tools,
        response_schema=schema,
        schema_name=schema_name,
        max_tokens=_PROBE_TOKENS,
        session_id=_SESSION,
    )


async def embedder_finding(spec: LaunchSpec) -> Finding:
    """Load the embedder and embed a word: its dimension is what the config says."""
    model = spec.embedder
    check = f"embedder {model.model}"
    try:
        embedder = await embedders.embedder(spec)
        await embedder.embed(["doctor"], "query")
    except EmbeddingError as error:
        hint = f"check cluster.endpoints.{EMBEDDER_ENDPOINT}" if model.kind == "http" else ""
        return problem(check, str(error), hint)
    except ChimeDistError as error:
        return problem(check, str(error))
    return ok(check, f"gives vectors of {embedder.fingerprint.dim} components")
