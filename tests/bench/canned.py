"""A model that costs nothing: every role of an episode in ``credit_world`` gets a usable reply at once.

The gate always writes new experience for both stages, worded so that it is found again (similarity above 0.3) and
never merged (below 0.88): every episode has the same number of calls, and every commit inserts two memories.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

_ARGUMENTS = json.dumps(
    {"plan_rule": "settle open fees before granting extras", "detail": "give amounts in cents"}
)
_PLAN = "1. Settle open fees before granting extras.\n2. Take both steps with the tool."

CALLS = {"train": 4, "eval": 3}
"""Model calls of one CHIME episode of two steps: planner, two of the executor, and in training the gate."""


def canned_completion(body: dict[str, Any]) -> dict[str, Any]:
    """The reply of an OpenAI-compatible server to a request's body."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if body.get("tools"):
        call = {"id": "call_0", "type": "function", "function": {"name": "act", "arguments": _ARGUMENTS}}
        message["tool_calls"] = [call]
    elif body.get("response_format", {}).get("json_schema", {}).get("name") == "diagnosis":
        asked = next(str(m["content"]) for m in body["messages"] if m["role"] == "user")
        message["content"] = json.dumps(_diagnosis(asked.partition("\n")[0]))
    else:
        message["content"] = _PLAN
    return {
        "choices": [{"message": message, "finish_reason": "tool_calls" if body.get("tools") else "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20},
    }


def _diagnosis(case: str) -> dict[str, Any]:
    return {
        "assessment": {"plan": "kept", "execution": "kept", "external": "none"},
        "label": "both",
        "confidence": 0.8,
        "misleading": [],
        **{f"{stage}_experience": _experience(stage, case) for stage in ("plan", "exec")},
    }


def _experience(stage: str, case: str) -> dict[str, Any]:
    digest = hashlib.sha256(f"{stage}{case}".encode()).hexdigest()
    words = " ".join(digest[i : i + 8] for i in range(0, 64, 8))
    return {"scenario": f"{case} {words}", "experience": f"With {words} go first.", "actionable": True}
