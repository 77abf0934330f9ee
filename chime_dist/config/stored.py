"""Whether a stored sweep can still be read: told as a whole, not by whoever needs one of its keys."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

from chime_dist.config.document import Document, Tree
from chime_dist.config.problems import KeyPath, Problem
from chime_dist.config.run import RunConfig
from chime_dist.config.secrets import MASK, Interpolated
from chime_dist.config.sweep import SweepConfig
from chime_dist.config.validation import problems_of
from chime_dist.core.episode import Json

_STAND_IN = "http://variable:1"
"""A value that may stand for any secret, address or key alike."""


def stored_problems(
    config: Mapping[str, Json], runs: Mapping[str, Mapping[str, Json]], name: str
) -> list[Problem]:
    """What is wrong with a dumped SweepConfig and with the dumped RunConfig of each of its runs, by run id.

    ``name`` is what messages call the file, which holds them at ``config`` and ``runs.ID.config``. Values that
    come from variables were not stored: they, and what depends on them, are checked by ``restore_sweep``.
    """
    known, unknown = _stood_in(dict(config), ())
    found = [
        problem
        for problem in _problems(SweepConfig, known, name, ("config",))
        if not any(_touches(path, problem.path[1:]) for path in unknown)
    ]
    for run_id, run in runs.items():
        found += _problems(RunConfig, dict(run), name, ("runs", run_id, "config"))
    return found


def _problems(model: type[BaseModel], tree: Tree, name: str, where: KeyPath) -> list[Problem]:
    try:
        model.model_validate(tree)
    except ValidationError as error:
        told = problems_of(error, model, Document(name, tree), {})
        return [Problem(problem.place, (*where, *problem.path), problem.message) for problem in told]
    return []


def _stood_in(tree: Tree, path: KeyPath) -> tuple[Tree, list[KeyPath]]:
    """The tree with stand-ins for what was not stored, and where they are."""
    match tree:
        case str() if path[:1] == ("cluster",) and ("${" in tree or MASK in tree):
            return Interpolated(_STAND_IN, tree), [path]
        case dict():
            parts = {key: _stood_in(value, (*path, key)) for key, value in tree.items()}
            return {key: part for key, (part, _) in parts.items()}, [
                at for _, some in parts.values() for at in some
            ]
        case list():
            items = [_stood_in(value, (*path, index)) for index, value in enumerate(tree)]
            return [item for item, _ in items], [at for _, some in items for at in some]
        case _:
            return tree, []


def _touches(one: KeyPath, other: KeyPath) -> bool:
    """Whether one of the two is inside the other."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]
