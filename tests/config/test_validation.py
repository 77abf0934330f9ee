"""How a component's own options are checked: the same words as for the rest of a config."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, Field

from chime_dist.config.cluster import ClusterConfig
from chime_dist.config.validation import validated
from chime_dist.core.frozen import Frozen
from chime_dist.errors import ConfigError


class Retrieval(Frozen):
    """A group of options."""

    k: int = Field(default=3, strict=True)
    token: str = ""
    weights: tuple[int, ...] = ()


class Options(Frozen):
    """Options of a method."""

    retrieval: Retrieval = Retrieval()
    stage: Retrieval | int | None = None
    by_stage: dict[str, Retrieval] = {}


def refusal(tree: object, model: type[BaseModel] = Options) -> str:
    with pytest.raises(ConfigError) as caught:
        validated(model, tree, "sweep.yaml", ("methods", "chime"))
    return str(caught.value)


def test_options_that_fit_come_back_as_their_model() -> None:
    assert validated(Options, {"retrieval": {"k": 5}}, "sweep.yaml") == Options(retrieval=Retrieval(k=5))


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"retrieval": {"kk": 1}}, "methods.chime.retrieval.kk: unknown key; did you mean 'k'?"),
        ({"retreival": {}}, "methods.chime.retreival: unknown key; did you mean 'retrieval'?"),
        ({"xyz": 1}, "methods.chime.xyz: unknown key; known here: by_stage, retrieval, stage"),
        ({"by_stage": {"plan": {"q": 1}}}, "by_stage.plan.q: unknown key; known here: k, token, weights"),
        ({"retrieval": {"k": "5"}}, 'methods.chime.retrieval.k: "5": expected a whole number'),
        ({"retrieval": {"weights": [1, "x"]}}, 'retrieval.weights.1: "x": expected a valid integer'),
        ({"retrieval": {"token": 5}}, "retrieval.token: a number: expected text; quote it"),
        ({"retrieval": {"token": True}}, "retrieval.token: a boolean: expected text; quote it"),
        ({"retrieval": None}, "methods.chime.retrieval: nothing: expected a mapping"),
        ([], "methods.chime: a list: expected a mapping"),
    ],
)
def test_options_that_do_not_fit_are_named_by_place_key_value_and_fix(tree: object, message: str) -> None:
    """H6: a value under a key that is named like a secret is described, not shown."""
    assert refusal(tree).startswith("sweep.yaml: methods.chime")
    assert message in refusal(tree)


def test_every_reading_of_a_choice_is_reported_under_its_key() -> None:
    message = refusal({"stage": "x"})
    assert "methods.chime.stage: text: expected a mapping" in message
    assert 'methods.chime.stage: "x": expected a valid integer' in message


def test_a_kind_is_no_part_of_a_path() -> None:
    """A whole endpoint is refused under its own path, whatever its kind, and what it lacks under the key's."""
    engine = {"endpoints": {"m": {"kind": "vllm", "flags": {"port": 1}}}}
    assert "methods.chime.endpoints.m: flags: port is decided" in refusal(engine, ClusterConfig)
    assert "methods.chime.endpoints.m.url: is missing" in refusal({"endpoints": {"m": {}}}, ClusterConfig)
