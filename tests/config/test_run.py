"""A run's identity."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.config.models import BackboneModel
from chime_dist.config.run import RunConfig
from chime_dist.config.schema import Component
from chime_dist.core.episode import Role

RUN: dict[str, Any] = {
    "benchmark": {"name": "bfcl_v4", "limit": 12},
    "method": "chime",
    "backbone": "Qwen/Qwen3.5-Flash",
    "ordering": 1,
}


def run(**changes: Any) -> RunConfig:
    return RunConfig.model_validate({**RUN, **changes})


def test_a_run_id_is_readable_and_safe() -> None:
    """Safe in a file name, in a Redis key and in a unit's key, which is split at colons."""
    found = run()
    assert re.fullmatch(r"bfcl_v4-chime-qwen_qwen3\.5_flash-o1-[0-9a-f]{8}", found.run_id)
    assert found.run_id.endswith(found.digest[:8])
    assert len(found.digest) == 64


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_./:-]{0,100}", fullmatch=True).filter(
    lambda name: name != "embedder"
)


@given(NAMES, NAMES, NAMES, st.integers(0, 99))
def test_every_run_id_is_safe(benchmark: str, method: str, backbone: str, ordering: int) -> None:
    found = run(benchmark=benchmark, method=method, backbone=backbone, ordering=ordering)
    assert re.fullmatch(
        r"[a-z0-9][a-z0-9._]*-[a-z0-9][a-z0-9._]*-[a-z0-9][a-z0-9._]*-o\d+-[0-9a-f]{8}", found.run_id
    )
    assert len(found.run_id) < 160


def test_a_default_counts_as_if_it_were_written() -> None:
    """R45: with all switches at default the hash is the same."""
    written = run(
        protocol={"preset": "paper_numbers", "interleave": "shuffled", "window": None},
        requests={"timeout_s": 2400, "max_retries": 15},
        roles={},
        backbone={"name": "Qwen/Qwen3.5-Flash", "model": "Qwen/Qwen3.5-Flash", "temperature": 0},
    )
    assert written.digest == run().digest


@pytest.mark.parametrize(
    "change",
    [
        {"ordering": 2},
        {"method": {"name": "chime", "hierarchy": False}},
        {"benchmark": "bfcl_v4"},
        {"backbone": {"name": "Qwen/Qwen3.5-Flash", "model": "other"}},
        {"roles": {"gate": "other"}},
        {"embedder": "hashing"},
        {"protocol": {"window": 1}},
        {"protocol": {"limit": 12}},
        {"protocol": {"fixed_split": True}},
        {"requests": {"max_retries": 3}},
        {"episode": {"deadline_s": 60}},
        {"fingerprints": {"benchmark.data": "abc"}},
    ],
)
def test_whatever_changes_results_changes_the_id(change: dict[str, Any]) -> None:
    assert run(**change).run_id != run().run_id


@pytest.mark.parametrize("key", [{"epochs": 5}, {"train_metric": "first"}, {"denominator": "planned"}])
def test_what_lets_a_run_go_on_or_be_counted_anew_keeps_the_id(key: dict[str, Any]) -> None:
    """A longer run repeats the shorter one's positions; reporting keys change no episode."""
    assert run(protocol=key).digest == run().digest


def test_roles_without_a_model_of_their_own_use_the_backbone() -> None:
    """R38, R51: the gate alone may be another model."""
    found = run(roles={"gate": {"name": "qwen3.7"}})
    assert found.backbone_of(Role.GATE) == BackboneModel(name="qwen3.7", model="qwen3.7")
    assert found.backbone_of(Role.PLANNER) == found.backbone


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats(-5, 5) | st.text(max_size=5),
    lambda children: st.lists(children, max_size=2) | st.dictionaries(st.text(max_size=5), children, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.text(min_size=1, max_size=8), JSON, max_size=3), st.integers(0, 9))
def test_a_stored_run_is_the_same_run(options: dict[str, Any], ordering: int) -> None:
    """Dump, load: same id, same digest, whatever the options hold."""
    found = run(ordering=ordering).model_copy(update={"method": Component(name="chime", options=options)})
    for stored in (found.model_dump(), found.model_dump(mode="json")):
        assert RunConfig.model_validate(stored).digest == found.digest
    again = RunConfig.model_validate_json(found.model_dump_json())
    assert again == found
    assert again.run_id == found.run_id
