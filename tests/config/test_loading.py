"""A file becomes a sweep, or one error that names everything."""

from __future__ import annotations

import pytest

from chime_dist.config.models import BackboneModel
from chime_dist.config.schema import Component
from chime_dist.core.episode import Role
from chime_dist.errors import ConfigError
from tests.config.conftest import SWEEP, Load


def test_a_sweep_file_is_read_with_its_short_forms(load: Load) -> None:
    sweep = load()
    assert sweep.name == "quick"
    assert sweep.benchmarks == (Component(name="bfcl_v4", options={"limit": 12}),)
    assert sweep.methods == (Component(name="chime"), Component(name="no_plan"))
    assert sweep.backbones == (BackboneModel(name="qwen3.5-flash", model="Qwen/Qwen3.5-Flash"),)
    assert sweep.orderings == (0, 1, 2)
    assert sweep.embedder.kind == "hashing"


def test_every_problem_of_a_file_is_reported_with_line_key_value_and_fix(load: Load) -> None:
    text = """\
name: quick
benchmark: x
methods:
  - chime
  - nam: no_plan
backbones:
  - name: qwen
    max_input_tokns: 3
    temperature: "0"
    thinking: "on"
    model: 7
roles: {gat: qwen}
requests: {jitter: 1, timeout_s: ${T}}
cluster:
  redis: {mode: embeded}
  slots: sixteen
  endpoints: []
"""
    with pytest.raises(ConfigError) as caught:
        load(text.replace("${T}", "'${T}'"))
    lines = [line.partition("sweep.yaml:")[2] for line in str(caught.value).splitlines()[1:]]
    assert lines == [
        "13: requests.timeout_s: the environment variable T is not set; set it, or write ${T:-default}",
        "1: benchmarks: is missing; it has no default",
        "5: methods.1.name: is missing; it has no default",
        "5: methods.1.nam: unknown key; did you mean 'name'?",
        "11: backbones.0.model: 7: expected text; quote it",
        '9: backbones.0.temperature: "0": expected a number',
        '10: backbones.0.thinking: "on": expected true or false',
        "8: backbones.0.max_input_tokns: unknown key; did you mean 'max_input_tokens'?",
        "12: roles.gat: \"gat\": expected 'planner', 'executor', 'gate', 'user_simulator', 'judge', 'embedder' or"
        " 'memory_judge'",
        "13: requests.jitter: 1: expected true or false",
        '16: cluster.slots: "sixteen": expected a whole number',
        "15: cluster.redis.mode: \"embeded\": expected 'local', 'embedded' or 'server'",
        "17: cluster.endpoints: a list: expected a mapping",
        "2: benchmark: unknown key; did you mean 'benchmarks'?",
    ]


def test_an_empty_list_is_told_apart_from_a_list_of_wrong_entries(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"sweep\.yaml:5: methods: is empty; list at least 1") as caught:
        load(SWEEP.replace("\n  - chime\n  - name: no_plan", " []"))
    assert "problems" not in str(caught.value)


def test_a_long_value_is_cut_in_messages(load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load(SWEEP.replace("name: quick", f"name: {'x y ' * 100}"))
    assert len(str(caught.value)) < 400


def test_a_filled_value_of_the_wrong_type_is_shown_as_written(load: Load) -> None:
    """H6: what came out of the environment is never shown."""
    with pytest.raises(ConfigError, match=r"cluster\.slots: \$\{S\}: expected a whole number") as caught:
        load(SWEEP + "  slots: ${S}\n", environ={"S": "canary"})
    assert "canary" not in str(caught.value)
    assert load(SWEEP + "  slots: ${S}\n", environ={"S": "4"}).cluster.slots == 4


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("orderings=[1, 1]", "orderings: 1 is listed twice"),
        ("backbones=[a, {name: a, model: b}]", "backbones: a is listed twice"),
        ("roles={embedder: a}", r"roles\.embedder: the embedder is not a backbone"),
        ("roles={gate: {name: qwen3.5-flash, model: other}}", "set up in two ways"),
        ("orderings=[-1]", r"orderings\.0: -1: expected greater than or equal to 0"),
        ("name=a/b", "name:"),
    ],
)
def test_a_sweep_that_contradicts_itself_is_refused(load: Load, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(overrides=[override])


def test_every_model_needs_an_endpoint(load: Load) -> None:
    """R38: backbones, roles and an embedder behind a URL; the likely name is suggested."""
    with pytest.raises(ConfigError) as caught:
        load(
            overrides=[
                "backbones.0.name=qwen3.5-flsh",
                "roles={gate: judge-model}",
                "embedder={kind: http, model: e}",
            ]
        )
    message = str(caught.value)
    assert "backbones.0: no cluster.endpoints.qwen3.5-flsh says where it is served" in message
    assert "did you mean 'qwen3.5-flash'?" in message
    assert "--set roles: roles.gate: no cluster.endpoints.judge-model" in message
    assert "--set embedder: no cluster.endpoints.embedder" in message


def test_a_role_may_share_a_backbone_of_the_sweep(load: Load) -> None:
    """R38: repeated by an alias, it is the same model."""
    text = (
        SWEEP.replace("  - name: qwen3.5-flash", "  - &qwen\n    name: qwen3.5-flash") + "roles: {gate: *qwen}\n"
    )
    sweep = load(text)
    assert sweep.roles == {Role.GATE: sweep.backbones[0]}
