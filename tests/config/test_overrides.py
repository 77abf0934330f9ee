"""``--set PATH=VALUE``."""

from __future__ import annotations

from typing import Any

import pytest

from chime_dist.config.document import Template, stored_document
from chime_dist.config.overrides import apply_overrides
from chime_dist.config.yaml_reader import parse_document
from chime_dist.errors import ConfigError
from tests.config.conftest import SWEEP, Load


def root_after(*overrides: str, text: str = SWEEP) -> Any:
    return apply_overrides(parse_document(text, "a.yaml"), overrides).root


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("name=other", ["name"], "other"),
        ("protocol.limit=12", ["protocol", "limit"], 12),
        ("requests.base_interval_s=1e-3", ["requests", "base_interval_s"], 0.001),
        ("benchmarks.0.limit=3", ["benchmarks", 0, "limit"], 3),
        ("benchmarks.bfcl_v4.limit=3", ["benchmarks", 0, "limit"], 3),
        ("methods.chime.retrieval.k=5", ["methods", 0], {"name": "chime", "retrieval": {"k": 5}}),
        ("methods.0.retrieval.k=5", ["methods", 0], {"name": "chime", "retrieval": {"k": 5}}),
        ("methods.no_plan=chime", ["methods", 1], "chime"),
        ("backbones.qwen3.5-flash.thinking=true", ["backbones", 0, "thinking"], True),
        ("cluster.endpoints.qwen3.5-flash.latency_s=2", ["cluster", "endpoints", "qwen3.5-flash", "latency_s"], 2),
        ('cluster.endpoints."new.one".kind=scripted', ["cluster", "endpoints", "new.one", "kind"], "scripted"),
        ("orderings=[0, 5]", ["orderings"], [0, 5]),
        ("roles={gate: {name: g}}", ["roles"], {"gate": {"name": "g"}}),
        ("name=a=b", ["name"], "a=b"),
        ("name=", ["name"], None),
        ("cluster.runs_dir=${R}", ["cluster", "runs_dir"], Template("${R}", quoted=False)),
    ],
)
def test_an_override_puts_a_yaml_value_at_a_path(override: str, path: list[str | int], value: Any) -> None:
    found = root_after(override)
    for part in path:
        found = found[part]
    assert found == value


def test_overrides_apply_in_order_and_leave_the_document_alone() -> None:
    document = parse_document(SWEEP, "a.yaml")
    changed = apply_overrides(document, ["protocol={limit: 4}", "protocol.limit=5", "protocol.seed=1"])
    assert changed.root["protocol"] == {"limit": 5, "seed": 1}
    assert document.root == parse_document(SWEEP, "a.yaml").root
    assert changed.place(("protocol", "seed")) == "--set protocol.seed"
    assert changed.place(("name",)) == "a.yaml:1"


def test_an_override_reaches_options_of_a_stored_component() -> None:
    stored = {"methods": [{"name": "chime", "options": {"k": 3}}]}
    changed = apply_overrides(stored_document(stored, "sweep.json"), ["methods.chime.k=5", "methods.0.name=x"])
    assert changed.root == {"methods": [{"name": "x", "options": {"k": 5}}]}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("protocol.limit", r"a --set without '=': an override is PATH=VALUE"),
        ("=5", "an override is PATH=VALUE"),
        ("a..b=5", r"--set a\.\.b: an override is PATH=VALUE"),
        ("methods.chmie.k=5", r"--set methods\.chmie\.k: methods has no entry 'chmie'; did you mean 'chime'\?"),
        ("methods.7.k=5", "methods has 2 entries, 0 to 1; there is no 7"),
        ("embedder.dim=64", "embedder holds text, not a mapping; set it as a whole"),
        ("protocol.limit=010", r"--set protocol\.limit: 010 is an octal number .* quote it"),
        ("protocol.limit={a: 1, a: 2}", r"protocol\.limit\.a: is written twice"),
        ("protocol.limit=[1", r"--set protocol\.limit: is not YAML"),
    ],
)
def test_an_override_that_fits_nowhere_is_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        root_after(override)


def test_a_name_that_two_entries_have_asks_for_an_index() -> None:
    with pytest.raises(ConfigError, match="methods has 2 entries named 'chime'; use an index"):
        root_after("methods.chime.k=5", text="methods: [chime, {name: chime, k: 3}]")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("protcol.limit=3", r"--set protcol\.limit: protcol: unknown key; did you mean 'protocol'\?"),
        ("protocol.limt=3", r"--set protocol\.limt: unknown key; did you mean 'limit'\?"),
        ("protocol.limit=many", r'--set protocol\.limit: "many": expected a whole number'),
        (
            "cluster.endpoints.qwen3.5-flash.latency=1",
            r'cluster\.endpoints\."qwen3\.5-flash"\.latency: unknown key; did you mean \'latency_s\'\?',
        ),
    ],
)
def test_an_unknown_path_is_refused_with_the_likely_one(load: Load, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(overrides=[override])


def test_an_override_replaces_a_reference_before_it_is_filled(load: Load) -> None:
    text = SWEEP + "  runs_dir: ${UNSET}\n"
    assert load(text, ["cluster.runs_dir=here"]).cluster.runs_dir == "here"
