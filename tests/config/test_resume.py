"""What a resume may change."""

from __future__ import annotations

from typing import Any

import pytest

from chime_dist.config.cluster import ClusterConfig
from chime_dist.config.expansion import Resolved, expand
from chime_dist.config.resume import Change, changes_between, compare
from chime_dist.config.run import RunConfig
from chime_dist.config.sweep import SweepConfig
from chime_dist.errors import ConfigError


def runs(**changes: Any) -> tuple[RunConfig, ...]:
    plain: dict[str, Any] = {
        "name": "s",
        "benchmarks": ["bfcl_v4"],
        "methods": [{"name": "chime", "retrieval": {"k": 3}}],
        "backbones": ["a"],
        "orderings": [0, 1],
        "embedder": "hashing",
        "protocol": {"epochs": 2, "window": 16},
    }
    sweep = SweepConfig.model_validate({**plain, **changes})
    return expand(sweep, lambda kind, component: Resolved(component.options, {"data": "d"}))


def test_the_same_config_resumes() -> None:
    found = compare(runs(), runs())
    assert found.resumable
    assert (found.refused, found.removed, found.added, found.extended) == ({}, (), (), {})
    found.require_resumable("runs/s/1")


def test_a_stored_run_resumes_after_a_round_trip() -> None:
    stored = [RunConfig.model_validate_json(run.model_dump_json()) for run in runs()]
    assert compare(stored, runs()).resumable


@pytest.mark.parametrize(
    ("change", "key", "old", "new"),
    [
        ({"methods": [{"name": "chime", "retrieval": {"k": 5}}]}, "method.options.retrieval.k", "3", "5"),
        ({"methods": [{"name": "chime", "retrieval": {}}]}, "method.options.retrieval.k", "3", "(not set)"),
        ({"protocol": {"epochs": 2, "window": 8}}, "protocol.window", "16", "8"),
        ({"protocol": {"epochs": 1, "window": 16}}, "protocol.epochs", "2", "1"),
        ({"protocol": {"window": 16}}, "protocol.epochs", "2", "1"),
        ({"backbones": [{"name": "a", "model": "b"}]}, "backbone.model", '"a"', '"b"'),
        ({"roles": {"gate": "g"}}, "roles.gate", "(not set)", '{"name": "g", "model": "g"'),
        ({"embedder": {"kind": "hashing", "dim": 64}}, "embedder.dim", "1024", "64"),
        ({"episode": {"deadline_s": 60}}, "episode.deadline_s", "3600.0", "60.0"),
        ({"benchmarks": [{"name": "bfcl_v4", "n": 1}]}, "benchmark.options.n", "(not set)", "1"),
    ],
)
def test_a_changed_value_is_refused_with_key_old_and_new(
    change: dict[str, Any], key: str, old: str, new: str
) -> None:
    """Design "Layers": resume refuses changed values, naming them, once for all the runs they concern."""
    found = compare(runs(), runs(**change))
    ((refused, concerned),) = found.refused.items()
    assert (refused.key, refused.old) == (key, old)
    assert refused.new.startswith(new)
    assert len(concerned) == 2
    assert not found.added
    with pytest.raises(ConfigError, match="runs/s/1: cannot be resumed") as caught:
        found.require_resumable("runs/s/1")
    assert f"{key}: {old} -> {new}" in str(caught.value)
    assert runs()[0].run_id in str(caught.value)


def test_several_changes_are_named_together() -> None:
    found = compare(runs(), runs(protocol={"epochs": 2, "window": 1}, episode={"deadline_s": 60}))
    assert {change.key for change in found.refused} == {"protocol.window", "episode.deadline_s"}


@pytest.mark.parametrize(
    ("change", "added"),
    [
        ({"orderings": [0, 1, 2]}, 1),
        ({"methods": ["no_plan", {"name": "chime", "retrieval": {"k": 3}}]}, 2),
        ({"methods": [{"name": "chime", "retrieval": {"k": 3}}, {"name": "chime", "retrieval": {"k": 5}}]}, 2),
        ({"benchmarks": ["bfcl_v4", "tau2"]}, 2),
        ({"backbones": ["b", "a"]}, 2),
    ],
)
def test_new_runs_may_join(change: dict[str, Any], added: int) -> None:
    found = compare(runs(), runs(**change))
    assert found.resumable
    assert len(found.added) == added
    assert set(found.added) == {r.run_id for r in runs(**change)} - {r.run_id for r in runs()}


def test_a_run_may_grow_by_epochs() -> None:
    found = compare(runs(), runs(protocol={"epochs": 5, "window": 16}))
    assert found.resumable
    assert found.extended == {Change("protocol.epochs", "2", "5"): tuple(r.run_id for r in runs())}


def test_epochs_that_nobody_wrote_down_are_one() -> None:
    """A run of a benchmark that names none may grow too, and writing the default out changes nothing."""
    unsaid = runs(protocol={"window": 16})
    assert compare(unsaid, runs(protocol={"epochs": 1, "window": 16})).extended == {}
    assert compare(unsaid, runs()).extended == {
        Change("protocol.epochs", "1", "2"): tuple(r.run_id for r in runs())
    }


def test_what_only_reports_read_may_change() -> None:
    """R6, S2: the denominator and the train metric."""
    protocol = {"epochs": 2, "window": 16, "denominator": "planned", "train_metric": "first"}
    found = compare(runs(), runs(protocol=protocol))
    assert found.resumable
    assert not found.extended


def test_a_run_that_is_gone_is_refused() -> None:
    found = compare(runs(), runs(orderings=[1]))
    assert found.removed == (runs()[0].run_id,)
    with pytest.raises(ConfigError, match="is not in the config any more; put it back"):
        found.require_resumable("d")


def test_a_changed_run_is_matched_with_the_one_most_like_it() -> None:
    """Two variants of a method change; each change is told of its own run."""
    two = [{"name": "chime", "a": 1, "b": 1, "c": 1}, {"name": "chime", "a": 2, "b": 2, "c": 2}]
    new = [{"name": "chime", "a": 2, "b": 2, "c": 3}, {"name": "chime", "a": 1, "b": 1, "c": 4}]
    found = compare(runs(methods=two), runs(methods=new))
    assert {(change.old, change.new) for change in found.refused} == {("1", "4"), ("2", "3")}


def test_cluster_changes_are_named_without_secrets() -> None:
    """H6: the driver may log them; they never stop a resume."""
    old = ClusterConfig.model_validate({"secrets": {"serpapi": "canary-1"}})
    new = ClusterConfig.model_validate({"secrets": {"other": "canary-2"}, "slots": 4})
    changes = changes_between(old, new)
    assert Change("slots", "16", "4") in changes
    assert {change.key for change in changes} == {"slots", "secrets.serpapi", "secrets.other"}
    assert "canary" not in str(changes)
