"""Open backbones that we serve ourselves: vLLM replicas on the nodes of a Ray cluster, behind one router."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from chime_dist.config.policy import EndpointPrice
from chime_dist.config.schema import ConfigModel
from chime_dist.config.secrets import Secret
from chime_dist.core.episode import Json
from chime_dist.core.pacing import PaceLimits

Words = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1, strict=False)]
"""A command and its first arguments, one word each; no shell reads them."""
Patience = Annotated[float, Field(gt=0)]
"""Seconds."""

OWN_FLAGS = frozenset(
    {"model", "served-model-name", "host", "port", "tensor-parallel-size", "pipeline-parallel-size"}
    | {"max-model-len", "tool-call-parser", "enable-auto-tool-choice", "reasoning-parser", "runner"}
    | {"default-chat-template-kwargs", "nnodes", "node-rank", "master-addr", "master-port", "headless"}
)
"""Engine flags that keys of their own decide, or the placement."""


class RouterConfig(ConfigModel):
    """What stands before the replicas of a backbone; it runs beside the driver."""

    command: Words = ("vllm-router",)
    """vllm-router 0.1.17 or later, as it is started on the driver's machine."""
    policy: Literal["consistent_hash", "round_robin", "random", "power_of_two", "cache_aware"] | None = None
    """Which replica a request goes to. None is ``consistent_hash``, which keeps an episode on one replica, whose
    cache holds its prompts' prefixes; or ``round_robin`` for an embedding model, whose texts are no episode's."""
    flags: dict[str, Json] = {}
    """Further flags of the router, written like ``VllmEndpoint.flags``; they win over ours."""


class VllmEndpoint(ConfigModel):
    """A backbone of our own: a launch, or ``chime-dist serve``, starts it on ``cluster.ray`` and ends it.

    A replica is one vLLM server on ``tensor_parallel * pipeline_parallel`` GPUs. Paths are absolute and the same
    on every node.
    """

    kind: Literal["vllm"]
    model: str | None = Field(default=None, min_length=1)
    """What vLLM loads: a name on the Hugging Face hub or a folder; None takes the backbone's ``model``."""
    replicas: int = Field(default=1, ge=1)
    tensor_parallel: int = Field(default=1, ge=1)
    pipeline_parallel: int = Field(default=1, ge=1)
    nodes: int = Field(default=1, ge=1)
    """Machines that one replica spans, an equal share of its GPUs on each."""
    gpus: int | None = Field(default=None, ge=0)
    """GPUs of one replica; None is one for each tensor and pipeline rank, 0 is vLLM's CPU build. Set it with
    ``flags: {data-parallel-size: ...}``."""
    cpus: float = Field(default=1.0, gt=0)
    """Ray's CPUs that a replica takes on each of its nodes."""
    accelerator: str | None = Field(default=None, min_length=1)
    """Ray's name of the GPU that it must be, e.g. ``H100``; None takes any."""
    limits: PaceLimits = PaceLimits()
    """What all replicas together are asked at most."""
    context_tokens: int | None = Field(default=None, ge=1)
    """Prompt and output together; None is the model's own limit."""
    runner: Literal["generate", "pooling"] = "generate"
    """``pooling`` serves an embedding model."""
    tool_parser: str | None = Field(default=None, min_length=1)
    """How vLLM finds tool calls in what the model says, e.g. ``hermes``; None serves no tool calls."""
    reasoning_parser: str | None = Field(default=None, min_length=1)
    """How vLLM tells thoughts from the answer; None takes all for the answer."""
    chat_template_kwargs: dict[str, Json] = {}
    """Variables of the chat template for requests that do not set them, e.g. ``{enable_thinking: false}``."""
    flags: dict[str, Json] = {}
    """Further flags of the engine without their dashes: true is a bare flag, false its ``no-`` form, null leaves
    one of ours out, a list is several words, a mapping is JSON. They win over our defaults."""
    env: dict[str, str] = {}
    """Environment of the server."""
    secret_env: dict[str, Secret] = {}
    """Likewise, for values that reach no file, e.g. ``{HF_TOKEN: ${HF_TOKEN}}``."""
    command: Words = ("vllm", "serve")
    """How vLLM is started on a node; one that does not end in ``serve`` gets its model as ``--model``."""
    router: RouterConfig = RouterConfig()
    price: EndpointPrice | None = None
    """What a million tokens cost, e.g. in rented GPUs; None where it is not known."""
    placement_timeout_s: Patience = 300.0
    """How long the cluster may take to have room for a replica."""
    start_timeout_s: Patience = 1800.0
    """From a replica's start to its first token; loading large weights takes minutes."""
    drain_timeout_s: Patience = 120.0
    """How long requests in flight may take to end when a replica is stopped."""

    @model_validator(mode="after")
    def _check(self) -> VllmEndpoint:
        if self._gpus % self.nodes:
            raise ValueError(f"{self._gpus} GPUs cannot be shared evenly by {self.nodes} nodes")
        if dashed := sorted(name for name in (*self.flags, *self.router.flags) if name.startswith("-")):
            raise ValueError(f"flags: write {', '.join(dashed)} without the dashes")
        if taken := sorted(OWN_FLAGS & {name.replace("_", "-") for name in self.flags}):
            raise ValueError(f"flags: {', '.join(taken)} is decided by the endpoint's other keys; set those")
        return self

    @property
    def policy(self) -> str:
        """``router.policy``, or what its None means here."""
        return self.router.policy or ("round_robin" if self.runner == "pooling" else "consistent_hash")

    @property
    def gpus_per_node(self) -> int:
        """GPUs of one replica on each of its nodes."""
        return self._gpus // self.nodes

    @property
    def _gpus(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel if self.gpus is None else self.gpus
