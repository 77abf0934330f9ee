"""The models of a run: which weights, asked how. Where they are served is in ``cluster``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from chime_dist.config.schema import ConfigModel, Name, RoleKey
from chime_dist.core.episode import Json, Role

EMBEDDER_ENDPOINT = "embedder"
"""The endpoint of an embedder of kind ``http``; no backbone may have this name."""


class ScriptedModel(ConfigModel):
    """What the shipped double says, where a backbone's endpoint is ``scripted``."""

    seed: int = 0
    script: Literal["hash", "credit_world"] = "hash"
    """Well-formed replies without meaning, or an agent that knows the simulated benchmark ``credit_world``."""
    gate_accuracy: float = Field(default=1.0, ge=0.0, le=1.0)
    """With ``credit_world``: share of the gate's replies, chosen by hash, that attribute rightly."""


class BackboneModel(ConfigModel):
    """A generative model (R9, R35, R36, R38). ``NAME`` alone is short for ``{name: NAME, model: NAME}``."""

    name: Name
    """What the sweep calls it; the key of its endpoint in ``cluster.endpoints``."""
    model: str = Field(min_length=1)
    """What the server calls it; ``name`` where it is left out."""
    max_input_tokens: int = Field(default=245_000, ge=1)
    """Tokens of one prompt, tools included (R36)."""
    max_output_tokens: int = Field(default=16_384, ge=1)
    """Tokens of one completion (R36)."""
    max_output_by_role: dict[RoleKey, int] = {}
    """Lower caps in tokens, for small models that run on."""
    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    """For turns that set none (R35)."""
    thinking: bool = False
    """Whether the model may reason before it answers (R35)."""
    structured_output: Literal["json_schema", "llguidance", "none"] = "json_schema"
    """How a reply's schema is enforced: ``response_format: json_schema``, a llama.cpp grammar, or not at all."""
    structured_output_by_schema: dict[str, Literal["json_schema", "llguidance", "none"]] = {}
    """Exceptions by what is asked for: ``action``, ``diagnosis``, ``merge``."""
    strict_tools: bool = False
    """Mark every tool ``strict``, so that a server which knows the mark keeps arguments to the tool's schema while
    it decodes. vLLM and OpenAI do; OpenAI then takes only schemas that require every property and forbid others,
    and vllm-router 0.1.17 drops the mark on its way."""
    extra_body: dict[str, Json] = {}
    """Put into every request's body as it is."""
    scripted: ScriptedModel | None = None
    """For the shipped double only."""

    @model_validator(mode="before")
    @classmethod
    def _name_is_the_model(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"name": data, "model": data}
        if isinstance(data, dict) and "name" in data and "model" not in data:
            return {**data, "model": data["name"]}
        return data

    @model_validator(mode="after")
    def _check(self) -> BackboneModel:
        if self.name == EMBEDDER_ENDPOINT:
            raise ValueError(f"a backbone cannot be named {EMBEDDER_ENDPOINT!r}: that is the embedder's endpoint")
        small = sorted(role.value for role, cap in self.max_output_by_role.items() if cap < 1)
        if small:
            raise ValueError(f"max_output_by_role: a cap is at least 1 token: {', '.join(small)}")
        return self

    def output_limit(self, role: Role, asked: int | None = None) -> int:
        """Output tokens of one completion: the least of what is asked, the role's cap and the model's."""
        caps = [self.max_output_tokens, self.max_output_by_role.get(role), asked]
        return min(cap for cap in caps if cap is not None)


class EmbedderModel(ConfigModel):
    """The retriever's model (R11, S0 Table 7). ``hashing`` alone is short for ``{kind: hashing}``."""

    kind: Literal["hashing", "sentence_transformers", "http"] = "sentence_transformers"
    """``hashing`` ships with the package and is deterministic everywhere; ``http`` is an OpenAI-compatible
    ``/v1/embeddings`` at the endpoint named ``embedder``."""
    model: str = Field(default="Qwen/Qwen3-Embedding-0.6B", min_length=1)
    dim: int = Field(default=1024, ge=1)
    """Components of a vector."""
    query_prompt: str = ""
    """Put before queries only, never before stored texts."""
    batch_size: int = Field(default=16, ge=1)
    """Texts per call of the model."""
    max_length: int = Field(default=16_384, ge=1)
    """Tokens of a text that the model sees; the rest is cut and counted. By the model's own tokenizer with
    ``sentence_transformers``, by estimate with ``http``, where a text that the server still refuses is halved."""

    @model_validator(mode="before")
    @classmethod
    def _kind_alone(cls, data: Any) -> Any:
        if isinstance(data, str):
            data = {"kind": data}
        if isinstance(data, dict) and data.get("kind") == "hashing" and "model" not in data:
            return {**data, "model": "hashing"}
        return data
