"""Which of the candidate plans is the best: one listwise reply, six dimensions, a written rule for bad scores.

[U] S0 says that plans are selected by value estimates. Goal alignment, subgoal coverage and tool appropriateness
come from WebAnchor's own description; dependency order, constraint coverage and feasibility are ours, as are the
scale and equal weights.
"""

from __future__ import annotations

from math import fsum

from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.core.json_schema import closed
from chime_dist.core.reply import Fault, excerpt, sole_object

DIMENSIONS = (
    "goal_alignment",
    "subgoal_coverage",
    "tool_appropriateness",
    "dependency_order",
    "constraint_coverage",
    "feasibility",
)
LOWEST, HIGHEST = 1, 10
"""Ends of the scale of every dimension, both included."""
_DECIMALS = 6
"""Means are compared after rounding, so that equal scores in another order are a tie."""


class Score(Frozen):
    """What the judge gave one plan."""

    plan: int
    """1-based, as the judge was shown it."""
    scores: dict[str, float] = {}
    """By dimension; all of ``DIMENSIONS``, or none for a plan without usable scores."""
    mean: float | None = None
    """Unweighted; None for a plan without usable scores."""


class Choice(Frozen):
    """Which plan wins, and why."""

    chosen: int
    """0-based index of the plan."""
    scores: tuple[Score, ...]
    """One per plan, in order."""
    fault: Fault | None = None
    """Why the reply held no scores at all; None where it was an object."""
    excerpt: str = ""
    """The start of a reply that scored nothing."""

    @property
    def judged(self) -> bool:
        """Whether at least one plan has usable scores."""
        return any(score.mean is not None for score in self.scores)


def scores_schema(candidates: int) -> dict[str, Json]:
    """The JSON schema of the judge's reply: ``plan_1`` and so on, each with an integer for every dimension.

    Plans are keys and no list, so that none can be left out or scored twice.
    """
    number = {"type": "integer", "minimum": LOWEST, "maximum": HIGHEST}
    return closed({_key(n): closed(dict.fromkeys(DIMENSIONS, number)) for n in range(1, candidates + 1)})


def choose(text: str | None, finish_reason: str, candidates: int) -> Choice:
    """Read the judge's reply and choose. Never raises.

    - Which text is a reply at all: ``reply.sole_object``. Unknown keys are ignored.
    - A plan counts as scored if each dimension has a JSON number on the scale; one that is missing, text, or
      outside of it leaves the whole plan unscored, because a mean over fewer dimensions compares with no other.
    - The highest mean wins, of equal ones the lowest index. An unscored plan never wins against a scored one.
    - [U] No plan scored: the first one is taken. A second judging call would break the stated cost.
    """
    found = sole_object(text, finish_reason)
    fault, given = (found, {}) if isinstance(found, Fault) else (None, found)
    scores = tuple(_score(number, given.get(_key(number))) for number in range(1, candidates + 1))
    means = [score.mean for score in scores if score.mean is not None]
    if not means:
        return Choice(chosen=0, scores=scores, fault=fault, excerpt=excerpt(text))
    return Choice(chosen=[score.mean for score in scores].index(max(means)), scores=scores)


def _score(plan: int, value: Json) -> Score:
    given = value if isinstance(value, dict) else {}
    scores = {name: float(given[name]) for name in DIMENSIONS if _on_scale(given.get(name))}
    if len(scores) < len(DIMENSIONS):
        return Score(plan=plan)
    return Score(plan=plan, scores=scores, mean=round(fsum(scores.values()) / len(scores), _DECIMALS))


def _on_scale(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and LOWEST <= value <= HIGHEST


def _key(number: int) -> str:
    return f"plan_{number}"
