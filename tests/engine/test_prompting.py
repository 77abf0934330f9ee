"""The block that all roles of an episode share."""

from __future__ import annotations

from typing import Any

import pytest

from chime_dist.core.model_call import Turn
from chime_dist.wiring.registry import prompts

TOOL = {
    "type": "function",
    "function": {"name": "look", "description": " Look up. ", "parameters": {"type": "object"}},
}
VIEW: dict[str, Any] = {"request": "Book it.", "policy": "", "tools": []}
LIBRARY = prompts(["chime"])


def system(template: str, tools: list[dict[str, Any]], **variables: Any) -> str:
    """What a role is told before its own part."""
    given = {"view": {**VIEW, "tools": tools}, "list_tools": True, "memories": [], **variables}
    return str(LIBRARY.render(Turn(template=f"chime/{template}", variables=given))[0]["content"])


def test_roles_are_told_the_executors_tools_or_that_there_are_none() -> None:
    """BFCL-v4 has tasks without a tool: who plans and who reviews cannot see that a list is not there."""
    assert system("plan", []).endswith("\n\nTools that the executor can call: none.")
    listed = 'Tools that the executor can call:\n- look: Look up.\n  parameters: {"type": "object"}'
    assert system("plan", [TOOL]).endswith(f"\n\n{listed}")
    native = system("execute", [TOOL], list_tools=False, plan="1. Look.")
    assert "Tools" not in native, "its request carries them"


@pytest.mark.parametrize("tools", [[], [TOOL]])
def test_planner_executor_and_reviewer_share_their_beginning(tools: list[dict[str, Any]]) -> None:
    """A server's prefix cache serves all roles of an episode with what it has of the first."""
    review: dict[str, Any] = {"plan": "1. Look.", "steps": [], "outcome": "failure", "repair": None}
    planned = system("plan", tools)
    assert system("execute", tools, plan="1. Look.") == planned == system("review", tools, **review)
