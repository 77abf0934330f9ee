"""How one chat backbone is spoken to, and the body of a request to it. Pure.

Servers that call themselves OpenAI-compatible differ in how thinking is switched, how a schema is enforced and
what the output limit is called; all of that is a setting here, so that the requests of two runs with equal
settings are equal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from chime_dist.adapters.json_post import secret_values
from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.core.model_call import ChatRequest
from chime_dist.core.retry import RetryPolicy

StructuredOutput = Literal["json_schema", "llguidance", "none"]
"""How a response schema is enforced: ``response_format``, a llguidance grammar (llama.cpp; no white space, so a
small model cannot waste its output on it), or not at all (the prompt alone asks for it)."""

_OWN_FIELDS = frozenset({"model", "messages", "stream", "tools", "response_format", "temperature"})


class ChatSettings(Frozen):
    """Where a model is and how it is spoken to."""

    name: str
    """The backbone's name in logs and errors."""
    base_url: str
    """Up to and without ``/chat/completions``, e.g. ``http://host:8000/v1``."""
    model: str
    """The model name the server knows."""
    api_key: SecretStr | None = None
    """Sent as a bearer token."""
    headers: dict[str, SecretStr] = {}
    """Additional request headers; their values are treated as secrets."""
    extra_body: dict[str, Json] = {}
    """Additional fields of the request's body; objects are merged with ours, anything else replaces it."""
    thinking: bool | None = False
    """Switches the model's thinking; None leaves the server's default (R35)."""
    thinking_field: Literal["chat_template_kwargs", "enable_thinking", "thinking"] = "chat_template_kwargs"
    """Which spelling the server reads: the chat template's variables (vLLM, SGLang, llama.cpp), a top-level
    boolean, or a top-level object with a ``type``."""
    reasoning_is_text: bool = False
    """Whether an answer that came only in the reasoning field counts as the text."""
    structured_output: StructuredOutput = "json_schema"
    structured_output_by_schema: dict[str, StructuredOutput] = {}
    """Exceptions by ``ChatRequest.schema_name``."""
    strict_tools: bool = False
    """Mark tool definitions ``strict``: a server that knows it then enforces the argument schema."""
    max_output_tokens: int | None = Field(default=16_384, ge=1)
    """Upper bound of every request's output (R36); None leaves it to the server."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    seed: int | None = None
    """Sampling seed sent with every request."""
    retry: RetryPolicy = RetryPolicy()
    connect_timeout_s: float = Field(default=30.0, gt=0)
    """Limit for one TCP connection attempt, so that a dead host does not use up an attempt's timeout."""
    max_response_bytes: int = Field(default=32 * 1024 * 1024, ge=1)
    """Larger replies (after decompression) are refused."""
    max_connections: int = Field(default=0, ge=0)
    """Requests in flight; further ones queue inside their own deadline. 0 is unlimited."""
    keep_alive_s: float = Field(default=4.0, gt=0)
    """How long an idle connection is kept. Below uvicorn's 5 s: a connection that the server closes first costs
    a failed attempt."""
    trust_env: bool = False
    """Whether proxy settings of the environment are used."""

    @field_validator("base_url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"base_url must be http://HOST... or https://HOST..., got {value!r}")
        return value.rstrip("/")

    @field_validator("extra_body")
    @classmethod
    def _leaves_our_fields_alone(cls, value: dict[str, Json]) -> dict[str, Json]:
        taken = sorted(_OWN_FIELDS & value.keys())
        if taken:
            raise ValueError(f"extra_body cannot set {', '.join(taken)}: the request decides these")
        return value

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value, for redaction."""
        return secret_values(self.api_key, self.headers)


def request_body(settings: ChatSettings, request: ChatRequest, max_tokens: int | None) -> dict[str, Json]:
    """The JSON body of one request. Pure."""
    body: dict[str, Json] = {
        "model": settings.model,
        "messages": list(request.messages),
        "temperature": request.temperature,
        "stream": False,
    }
    if max_tokens is not None:
        body[settings.max_tokens_field] = max_tokens
    if settings.seed is not None:
        body["seed"] = settings.seed
    if request.tools:
        body["tools"] = [_strict(tool) if settings.strict_tools else tool for tool in request.tools]
    if request.response_schema is not None:
        mode = settings.structured_output_by_schema.get(request.schema_name, settings.structured_output)
        body |= _structured(mode, request.schema_name, request.response_schema)
    if settings.thinking is not None:
        body |= _thinking(settings.thinking_field, settings.thinking)
    return _merged(body, settings.extra_body)


def _strict(tool: Mapping[str, Json]) -> dict[str, Json]:
    return {**tool, "function": {"strict": True, **tool["function"]}}


def _structured(mode: StructuredOutput, name: str, schema: dict[str, Json]) -> dict[str, Json]:
    if mode == "json_schema":
        wanted = {"name": name, "schema": schema, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": wanted}}
    if mode == "llguidance":
        compact = {**schema, "x-guidance": {"whitespace_flexible": False}}
        return {"grammar": "%llguidance {}\nstart: %json " + json.dumps(compact)}
    return {}


def _thinking(field: str, enabled: bool) -> dict[str, Json]:
    if field == "chat_template_kwargs":
        # Templates differ in the name of the variable and ignore those they do not know.
        return {field: {"enable_thinking": enabled, "thinking": enabled}}
    return {field: enabled if field == "enable_thinking" else {"type": "enabled" if enabled else "disabled"}}


def _merged(body: dict[str, Json], extra: Mapping[str, Json]) -> dict[str, Json]:
    merged = dict(body)
    for key, value in extra.items():
        ours = merged.get(key)
        merged[key] = {**ours, **value} if isinstance(ours, dict) and isinstance(value, dict) else value
    return merged
