"""What the agent double of ``credit_world`` says where a method plans in more than one call.

Nobody tells the hidden rules, so a judge of plans has nothing to tell a right one from a wrong one by: its scores
are drawn by hash. What a planning architecture looks like makes no difference in this world; the hash draws it.
"""

from __future__ import annotations

from chime_dist.adapters.models.credit_world_asked import Asked
from chime_dist.core.credit_world import hidden_rule, stated
from chime_dist.core.episode import Json
from chime_dist.core.memory import Stage
from chime_dist.core.model_call import ChatReply

_WORK = "Take every step with the tool, in that order."


def draft(asked: Asked) -> ChatReply:
    """One of several plans: each guesses for itself, right for the share of cases that a single plan is."""
    lucky = asked.chance("draft") < asked.settings.base_rate
    rule = hidden_rule(asked.case, Stage.PLAN) if lucky else asked.other_rule(Stage.PLAN)
    return asked.text(f"1. {stated(rule, Stage.PLAN)}\n2. {_WORK}")


def scores(asked: Asked) -> ChatReply:
    """A number on the schema's scale for each dimension of each plan."""
    plans: dict[str, Json] = (asked.request.response_schema or {})["properties"]
    return asked.json(
        {
            plan: {
                name: scale["minimum"]
                + int(asked.chance(f"{plan} {name}") * (scale["maximum"] - scale["minimum"] + 1))
                for name, scale in schema["properties"].items()
            }
            for plan, schema in plans.items()
        }
    )


def outline(asked: Asked) -> ChatReply:
    """A todo list whose first todo states the rule that a plan would."""
    properties: dict[str, Json] = (asked.request.response_schema or {})["properties"]
    return asked.json({"todos": _todos(asked, properties["todos"])})


def revise(asked: Asked) -> ChatReply:
    """Nothing new: what is to be done stays what it was, and nothing is ticked off before the case is over."""
    properties: dict[str, Json] = (asked.request.response_schema or {})["properties"]
    silent: dict[str, Json] = {"assessment": "Some steps are on file.", "done": [], "add": []}
    reply = {name: value for name, value in silent.items() if name in properties}
    if "left" in properties:
        reply["left"] = _todos(asked, properties["left"])
    return asked.json(reply)


def _todos(asked: Asked, schema: dict[str, Json]) -> list[Json]:
    unlinked: dict[str, Json] = {"after": [], "part_of": 0}
    links = {name: value for name, value in unlinked.items() if name in schema["items"]["properties"]}
    texts = (stated(asked.rule(Stage.PLAN), Stage.PLAN), _WORK)
    return [{"text": text, **links} for text in texts]
