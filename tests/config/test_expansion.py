"""From a sweep to its runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from chime_dist.config.expansion import Kind, Resolved, expand
from chime_dist.config.loading import restore_sweep
from chime_dist.config.schema import Component
from chime_dist.config.sweep import SweepConfig
from chime_dist.config.validation import validated
from chime_dist.core.frozen import Frozen
from chime_dist.errors import ConfigError
from tests.config.conftest import SWEEP, Load


class MethodOptions(Frozen):
    """Options as a method would declare them."""

    hierarchy: bool = True
    k: int = Field(default=3, ge=1)


def resolve(kind: Kind, component: Component) -> Resolved:
    if kind == "benchmark":
        return Resolved(component.options, {"data": "d1"}, epochs=2, window=16)
    options = validated(MethodOptions, component.options, "options").model_dump()
    if component.name == "no_plan":
        return Resolved(options, epochs=1)
    if component.name == "cheatsheet":
        return Resolved(options, window=1)
    return Resolved(options, {"prompt.gate": "p1"})


def sweep(**changes: Any) -> SweepConfig:
    plain = {
        "name": "s",
        "benchmarks": ["bfcl_v4", "tau2"],
        "methods": ["chime", "no_plan"],
        "backbones": ["a", "b"],
        "embedder": "hashing",
    }
    return SweepConfig.model_validate({**plain, **changes})


def test_a_sweep_is_every_combination_in_the_order_written() -> None:
    """R4, R43: benchmark, method, backbone, ordering, the last changing fastest; three orderings by default."""
    runs = expand(sweep(), resolve)
    assert len(runs) == 2 * 2 * 2 * 3
    first = [(r.benchmark.name, r.method.name, r.backbone.name, r.ordering) for r in runs[:7]]
    assert first == [
        *[("bfcl_v4", "chime", "a", i) for i in range(3)],
        *[("bfcl_v4", "chime", "b", i) for i in range(3)],
        ("bfcl_v4", "no_plan", "a", 0),
    ]
    assert len({r.run_id for r in runs}) == len(runs)
    assert [r.run_id for r in expand(sweep(), resolve)] == [r.run_id for r in runs]


def test_a_run_holds_every_option_and_every_fingerprint() -> None:
    run = expand(sweep(methods=[{"name": "chime", "k": 5}]), resolve, {"code": "c1"})[0]
    assert run.method == Component(name="chime", options={"hierarchy": True, "k": 5})
    assert run.fingerprints == {"code": "c1", "benchmark.data": "d1", "method.prompt.gate": "p1"}


def test_switches_at_their_defaults_change_no_hash() -> None:
    """R45: written or omitted."""
    plain, written = (
        expand(sweep(methods=[method]), resolve) for method in ("chime", {"name": "chime", "hierarchy": True})
    )
    assert [r.run_id for r in plain] == [r.run_id for r in written]


@pytest.mark.parametrize(
    ("protocol", "method", "epochs", "window"),
    [
        ({}, "chime", 2, 16),
        ({"epochs": 5, "window": 1}, "chime", 5, 1),
        ({}, "no_plan", 1, 16),
        ({"epochs": 5}, "no_plan", 1, 16),
        ({}, "cheatsheet", 2, 1),
        ({"window": 8}, "cheatsheet", 2, 1),
    ],
)
def test_epochs_and_window_come_from_the_protocol_the_benchmark_and_the_method(
    protocol: dict[str, int], method: str, epochs: int, window: int
) -> None:
    """R6, R7: the benchmark's figures where none are written; one epoch without state; a method's largest W."""
    run = expand(sweep(methods=[method], protocol=protocol), resolve)[0]
    assert (run.protocol.epochs, run.protocol.window) == (epochs, window)


def test_a_component_that_says_nothing_about_epochs_leaves_them_open() -> None:
    run = expand(sweep(), lambda kind, component: Resolved({}))[0]
    assert (run.protocol.epochs, run.protocol.window) == (None, None)


def test_two_runs_that_are_the_same_are_refused_and_both_named() -> None:
    doubled = sweep(methods=["chime", {"name": "chime", "hierarchy": True}])
    with pytest.raises(ConfigError) as caught:
        expand(doubled, resolve)
    assert "benchmarks.0 (bfcl_v4) x methods.0 (chime) x a x ordering 0" in str(caught.value)
    assert "benchmarks.0 (bfcl_v4) x methods.1 (chime) x a x ordering 0" in str(caught.value)


def test_an_ablation_beside_its_method_is_another_run() -> None:
    """R44: one switch apart."""
    runs = expand(sweep(methods=["chime", {"name": "chime", "hierarchy": False}]), resolve)
    assert len({r.run_id for r in runs}) == 24


def test_every_component_that_cannot_be_resolved_is_named_at_once() -> None:
    wrong = sweep(methods=[{"name": "chime", "hierarchie": True}, {"name": "no_plan", "k": 0}])
    with pytest.raises(ConfigError) as caught:
        expand(wrong, resolve)
    assert "methods.0 (chime): options: hierarchie: unknown key; did you mean 'hierarchy'?" in str(caught.value)
    assert "methods.1 (no_plan): options: k: 0: expected greater than or equal to 1" in str(caught.value)


def test_where_a_sweep_runs_changes_no_run(load: Load) -> None:
    """Slots, services and endpoints are not in the hash."""
    here = expand(load(), resolve)
    there = expand(
        load(
            overrides=["cluster.slots=64", "cluster.endpoints.qwen3.5-flash={url: 'http://h/v1'}"],
            environ={"CHIME_REDIS_URL": "redis://h"},
        ),
        resolve,
    )
    assert [r.run_id for r in here] == [r.run_id for r in there]


TEXT = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Z")), max_size=8)


@given(
    options=st.dictionaries(
        st.from_regex(r"[a-z]{1,6}_x", fullmatch=True),
        TEXT | st.integers() | st.lists(TEXT, max_size=2),
        max_size=3,
    ),
    orderings=st.lists(st.integers(0, 20), min_size=1, max_size=3, unique=True),
    prompt=TEXT,
)
def test_a_stored_sweep_gives_the_same_runs(options: dict[str, Any], orderings: list[int], prompt: str) -> None:
    """Dump, restore: the same run ids, whatever text the config holds, ``${`` included."""
    original = sweep(
        benchmarks=[{"name": "bfcl_v4", "options": options}],
        orderings=orderings,
        embedder={"kind": "hashing", "query_prompt": prompt + "${X}"},
        cluster={"endpoints": {"a": {"kind": "scripted"}, "b": {"kind": "scripted"}}},
    )
    again = restore_sweep(original.model_dump(mode="json"), "sweep.json", environ={})
    assert again == original
    assert [r.run_id for r in expand(again, resolve)] == [r.run_id for r in expand(original, resolve)]


def test_a_loaded_sweep_restores_to_itself(load: Load) -> None:
    loaded = load(SWEEP, ["methods.chime.k=4", "cluster.redis=embedded"])
    assert restore_sweep(loaded.model_dump(mode="json"), "sweep.json", environ={}) == loaded
