"""The planning architecture that is designed for each task: four choices out of closed lists, interpreted by us.

[U] TodoEvolve's meta-planner writes a planner as program text. Here the same four dimensions of its design space
are data: a design is read, never run, and one that is not in these lists gives way to a linear list.
"""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import ValidationError

from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.core.json_schema import bounded_text, closed
from chime_dist.core.reply import Fault, sole_object

Topology = Literal["linear", "tree", "dag", "parallel"]
"""How todos hang together: each after the one before it; parts of a whole; each after those it names; not."""
Initialisation = Literal["sub_goals", "conditions", "calls", "sketch"]
"""What becomes a todo at first: a sub-goal; a condition of the request, then the work; one tool call; a few rough
stages, for the revisions to spell out."""
Adaptation = Literal["tick", "extend", "rewrite"]
"""What a revision may do besides ticking off: nothing; add todos; replace all that are open."""
Navigation = Literal["in_order", "depth_first", "most_blocking", "any_ready"]
"""Which todo is next, out of those that wait for none: the lowest number; the one closest to what came before; the
one that most others wait for; the executor's choice."""

_REASON_CHARS = 300


class Architecture(Frozen):
    """One design. The defaults are the fallback: a linear list, worked through in order."""

    why: str = ""
    """The designer's reason, for people."""
    topology: Topology = "linear"
    initialisation: Initialisation = "sub_goals"
    adaptation: Adaptation = "rewrite"
    navigation: Navigation = "in_order"


def architecture_schema() -> dict[str, Json]:
    """The JSON schema of a design. The reason comes first, so that the choices follow from it."""
    choices = {
        "topology": Topology,
        "initialisation": Initialisation,
        "adaptation": Adaptation,
        "navigation": Navigation,
    }
    properties: dict[str, Json] = {"why": bounded_text(_REASON_CHARS, least=1)}
    properties |= {name: {"type": "string", "enum": list(get_args(values))} for name, values in choices.items()}
    return closed(properties)


def read_architecture(text: str | None, finish_reason: str) -> tuple[Architecture, str | None]:
    """The design that a reply holds, or the fallback and why. Never raises.

    Which text is a reply at all: ``reply.sole_object``. All four choices must be made, in the listed words; an
    unknown key is a design of another kind.
    """
    found = sole_object(text, finish_reason)
    if isinstance(found, Fault):
        return Architecture(), found.value
    missing = [name for name in Architecture.model_fields if name != "why" and name not in found]
    if missing:
        return Architecture(), f"no {', no '.join(missing)}"
    try:
        return Architecture.model_validate(found), None
    except ValidationError as error:
        return Architecture(), explained(error)


def explained(error: ValidationError) -> str:
    """What was wrong, by place, in one line."""
    problems = (f"{'.'.join(map(str, one['loc'])) or 'reply'}: {one['msg']}" for one in error.errors())
    return "; ".join(problems)[:_REASON_CHARS]
