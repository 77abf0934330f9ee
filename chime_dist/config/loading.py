"""From a file, overrides and the environment to a checked sweep, or to one error that names every problem."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog
from pydantic import ValidationError

from chime_dist.config.cluster import unreachable, with_environment
from chime_dist.config.document import Document, stored_document
from chime_dist.config.including import read_config
from chime_dist.config.interpolation import Filled, fill
from chime_dist.config.overrides import apply_overrides
from chime_dist.config.problems import Problem, refuse, suggestion
from chime_dist.config.sweep import SweepConfig
from chime_dist.config.validation import problems_of
from chime_dist.core.episode import Json

log = structlog.get_logger(__name__)


def load_sweep(
    path: str | Path, overrides: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> SweepConfig:
    """Read a sweep from a YAML file and those it includes, put ``overrides`` (``PATH=VALUE``) in, and fill it from
    ``environ``.

    Logs every warning. Raises ConfigError with every problem found, each with file and line, key path and fix;
    no message holds a secret (H6).
    """
    return _checked(apply_overrides(read_config(Path(path)), overrides), environ)


def restore_sweep(
    stored: Mapping[str, Json],
    name: str,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> SweepConfig:
    """The inverse of ``SweepConfig.model_dump``: secrets are read again from the variables they came from.

    ``name`` is what messages call the stored config. Raises ConfigError, also for a secret that was written out
    and therefore not stored.
    """
    return _checked(apply_overrides(stored_document(stored, name), overrides), environ)


def _checked(document: Document, environ: Mapping[str, str]) -> SweepConfig:
    filled = fill(document, environ)
    sweep = _validated(document, filled)
    sweep = sweep.model_copy(update={"cluster": with_environment(sweep.cluster, environ)})
    refuse(_unusable(document, sweep))
    for warning in sweep.warnings():
        log.warning("config.warning", sweep=sweep.name, warning=warning)
    return sweep


def _validated(document: Document, filled: Filled) -> SweepConfig:
    problems = filled.problems
    try:
        sweep = SweepConfig.model_validate(filled.root)
    except ValidationError as error:
        unfilled = {problem.path for problem in problems}
        found = problems_of(
            error, SweepConfig, Document(document.name, filled.root, document.places), filled.templates
        )
        problems = problems + [problem for problem in found if problem.path not in unfilled]
    refuse(problems)
    return sweep


def _unusable(document: Document, sweep: SweepConfig) -> list[Problem]:
    known = sweep.cluster.endpoints
    problems = [
        document.problem(path, f"no cluster.endpoints.{name} says where it is served; {suggestion(name, known)}")
        for path, name in sweep.missing_endpoints().items()
    ]
    problems += [
        document.problem(
            ("cluster", "endpoints", name),
            "has no price, so cluster.limits.cost cannot be kept; write e.g. price: {input: 0.10, output: 0.40}",
        )
        for name in sweep.unpriced_endpoints()
    ]
    if (reason := unreachable(sweep.cluster)) is not None:
        problems.append(document.problem(("cluster",), reason))
    return problems
