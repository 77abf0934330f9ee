"""A config starts from others by ``include``, and every message still names the file and line to change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from chime_dist.config.cluster import HttpEndpoint
from chime_dist.config.loading import load_sweep
from chime_dist.config.serving_file import load_served
from chime_dist.config.sweep import SweepConfig
from chime_dist.core.episode import Role
from chime_dist.errors import ConfigError

SWEEP = """\
name: quick
include: [models/qwen.yaml, models/judge.yaml]
benchmarks: [bfcl_v4]
methods: [chime]
embedder: hashing
"""
QWEN = """\
backbones:
  - name: qwen
    model: Qwen/Qwen3-8B
    max_input_tokens: 32000
cluster:
  slots: 2
  endpoints:
    qwen: {url: "http://qwen:8000/v1", api_key: "${QWEN_KEY}"}
"""
JUDGE = """\
backbones: [{name: judge, model: Qwen/Judge, temperature: 0.5}]
cluster:
  slots: 4
  endpoints:
    judge: {url: "http://judge:8000/v1"}
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a sweep and the two files that it includes."""

    def write(sweep: str = SWEEP, qwen: str = QWEN, judge: str = JUDGE) -> Path:
        (tmp_path / "models").mkdir(exist_ok=True)
        (tmp_path / "models" / "qwen.yaml").write_text(qwen, encoding="utf-8")
        (tmp_path / "models" / "judge.yaml").write_text(judge, encoding="utf-8")
        (tmp_path / "sweep.yaml").write_text(sweep, encoding="utf-8")
        return tmp_path / "sweep.yaml"

    return write


def load(path: Path, *overrides: str) -> SweepConfig:
    return load_sweep(path, overrides, {"QWEN_KEY": "k"})


def names(sweep: SweepConfig) -> list[str]:
    return [backbone.name for backbone in sweep.backbones]


def test_backbones_of_included_files_are_added_up_and_mappings_put_together(write: Write) -> None:
    sweep = load(write())
    assert names(sweep) == ["qwen", "judge"]
    assert sweep.backbones[0].max_input_tokens == 32_000
    assert set(sweep.cluster.endpoints) == {"qwen", "judge"}
    assert sweep.cluster.slots == 4, "the later file's value stands"


def test_the_including_file_has_the_last_word(write: Write) -> None:
    own = "cluster: {slots: 8, endpoints: {qwen: {url: 'http://mine:1/v1'}}}\n"
    sweep = load(write(SWEEP + own))
    assert sweep.cluster.slots == 8
    endpoint = sweep.cluster.endpoints["qwen"]
    assert isinstance(endpoint, HttpEndpoint)
    assert endpoint.url.reveal() == "http://mine:1/v1"
    assert endpoint.api_key is not None, "what it does not say is the included file's"


def test_listed_backbones_are_the_sweeps_and_start_from_the_included_ones(write: Write) -> None:
    """R38: a model that is only a role comes out of a file as well, whole by its name."""
    own = "backbones: [{name: qwen, temperature: 0.7}]\nroles: {judge: judge, gate: {name: judge, model: other}}\n"
    with pytest.raises(ConfigError, match=r"roles\.gate: 'judge' is set up in two ways"):
        load(write(SWEEP + own))
    sweep = load(write(SWEEP + own.replace(", gate: {name: judge, model: other}", "")))
    assert names(sweep) == ["qwen"]
    qwen, judge = sweep.backbones[0], sweep.roles[Role.JUDGE]
    assert (qwen.model, qwen.max_input_tokens, qwen.temperature) == ("Qwen/Qwen3-8B", 32_000, 0.7)
    assert (judge.model, judge.temperature) == ("Qwen/Judge", 0.5)


def test_a_backbone_that_two_files_hold_is_one(write: Write) -> None:
    both = "backbones: [{name: qwen, temperature: 1.0}]\n"
    sweep = load(write(judge=both))
    assert names(sweep) == ["qwen"]
    assert (sweep.backbones[0].model, sweep.backbones[0].temperature) == ("Qwen/Qwen3-8B", 1.0)


def test_overrides_reach_into_what_was_included(write: Write) -> None:
    sweep = load(write(), "backbones.qwen.model=other", "cluster.endpoints.qwen.limits.max_in_flight=3")
    assert sweep.backbones[0].model == "other"
    endpoint = sweep.cluster.endpoints["qwen"]
    assert isinstance(endpoint, HttpEndpoint)
    assert endpoint.limits.max_in_flight == 3


def test_a_problem_is_reported_where_it_was_written(write: Write) -> None:
    path = write(
        SWEEP + "backbones: [{name: qwen, thinking: maybe}]\n",
        QWEN.replace("max_input_tokens", "max_input_tokns").replace("slots: 2", "slotz: 2"),
    )
    with pytest.raises(ConfigError) as caught:
        load_sweep(path, environ={})
    text = str(caught.value)
    models = path.parent / "models"
    assert f"{models / 'qwen.yaml'}:4: backbones.0.max_input_tokns: unknown key; did you mean" in text
    assert f"{models / 'qwen.yaml'}:6: cluster.slotz: unknown key" in text
    assert f"{models / 'qwen.yaml'}:8: cluster.endpoints.qwen.api_key: the environment variable QWEN_KEY" in text
    assert f'{path}:6: backbones.0.thinking: "maybe": expected true or false' in text


def test_what_is_not_said_anywhere_is_missing_in_the_including_file(write: Write) -> None:
    path = write(SWEEP.replace("methods: [chime]\n", ""))
    with pytest.raises(ConfigError, match=rf"{path}:1: methods: is missing"):
        load(path)


@pytest.mark.parametrize(
    ("include", "message"),
    [
        ("models/qwen.yaml", r"sweep\.yaml:2: include: is text; write a list of files"),
        ("[3]", r"sweep\.yaml:2: include: is a list; write a list of files"),
        ("['${MODEL}']", r"sweep\.yaml:2: include: is a list; write a list of files, .* without variables"),
        ("[models/qwen.yaml, models/gone.yaml]", r"sweep\.yaml:2: include\.1: there is no file .*gone\.yaml"),
        ("[models]", r"sweep\.yaml:2: include\.0: there is no file .*models;"),
        ("[sweep.yaml]", r"sweep\.yaml:2: include: an included file includes nothing itself"),
    ],
)
def test_a_bad_include_is_refused_at_its_line(write: Write, include: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(write(SWEEP.replace("[models/qwen.yaml, models/judge.yaml]", include)))


def test_malformed_backbones_are_left_for_the_check_of_the_whole(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"qwen\.yaml:1: backbones: text: expected a list"):
        load(write(qwen=QWEN.replace(QWEN[: QWEN.index("cluster")], "backbones: qwen\n"), judge="cluster: {}\n"))
    with pytest.raises(ConfigError, match=r"judge\.yaml:1: backbones\.1\.name: is missing"):
        load(write(judge="backbones: [{model: x}]\n"))


def test_a_served_backbone_may_be_in_an_included_file(write: Write) -> None:
    served = load_served(
        "qwen",
        write(qwen=QWEN.replace('{url: "http://qwen:8000/v1", api_key: "${QWEN_KEY}"}', "{kind: vllm}")),
        environ={},
    )
    assert served.model == "Qwen/Qwen3-8B"
