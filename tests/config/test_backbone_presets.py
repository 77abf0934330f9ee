"""Every file in configs/backbones can be included in a sweep, which then lacks nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from chime_dist.adapters.vllm.command import engine_command
from chime_dist.adapters.vllm.need import need_of
from chime_dist.config.cluster import HttpEndpoint
from chime_dist.config.loading import load_sweep
from chime_dist.config.models import EMBEDDER_ENDPOINT, EmbedderModel
from chime_dist.config.serving import VllmEndpoint
from chime_dist.config.serving_file import load_served
from chime_dist.config.sweep import SweepConfig
from chime_dist.errors import ConfigError
from tests.cli.conftest import Program

FOLDER = Path(__file__).parents[2] / "configs" / "backbones"
PRESETS = sorted(FOLDER.glob("*.yaml"))
REFERENCE = re.compile(r"\$\{([A-Z_]+)(:-[^}]*)?\}")
BY_NAME = pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)

TOOL_PARSERS = {"hermes", "qwen3_coder", "qwen3_xml", "deepseek_v4"}
REASONING_PARSERS = {"qwen3", "deepseek_v4"}
"""As vLLM's tool_parsers and reasoning register them."""

NATIVE_CONTEXT = {
    "Qwen/Qwen3.5-35B-A3B": 262_144,
    "Qwen/Qwen3.6-35B-A3B-FP8": 262_144,
    "deepseek-ai/DeepSeek-V4-Flash": 1_048_576,
    "Qwen/Qwen3-8B-FP8": 40_960,
    "Qwen/Qwen3-4B-FP8": 40_960,
    "Qwen/Qwen3-Embedding-0.6B": 32_768,
}


def variables(preset: Path) -> dict[str, str]:
    """What must be set, with something to set it to."""
    found = REFERENCE.findall(preset.read_text(encoding="utf-8"))
    return {name: f"canary-{name}" for name, default in found if not default}


def sweep_with(preset: Path, folder: Path) -> Path:
    """The least that a preset leaves to say; one that has no backbone gets the shipped double."""
    text = f"name: preset\ninclude: ['{preset}']\nbenchmarks: [{{name: credit_world}}]\nmethods: [chime]\n"
    if "\nbackbones:" not in preset.read_text(encoding="utf-8"):
        text += "backbones: [{name: double}]\ncluster: {endpoints: {double: {kind: scripted}}}\n"
    if "\nembedder:" not in preset.read_text(encoding="utf-8"):
        text += "embedder: hashing\n"
    path = folder / "sweep.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(preset: Path, folder: Path, environ: Mapping[str, str] | None = None) -> SweepConfig:
    return load_sweep(sweep_with(preset, folder), environ=variables(preset) if environ is None else environ)


@BY_NAME
def test_a_preset_and_a_few_lines_are_a_sweep(
    preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R9, R35, R36: the paper's limits where the model has the room, temperature 0, no thinking."""
    for command in ("vllm", "vllm-router"):
        (tmp_path / command).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.chdir(tmp_path)
    sweep = loaded(preset, tmp_path)
    assert sweep.warnings() == []
    for backbone in sweep.backbones:
        assert (backbone.temperature, backbone.thinking) == (0.0, False)
    result = Program(tmp_path)("sweep", tmp_path / "sweep.yaml", "--dry-run", "--json", env=variables(preset))
    assert result.exit_code == 0, result.output
    assert "canary" not in result.output
    assert sweep.backbones[0].name in result.output


@BY_NAME
def test_a_variable_of_a_preset_that_is_not_set_is_named_with_its_line(preset: Path, tmp_path: Path) -> None:
    """H6: keys come from the environment; a preset that needs none says nothing of it."""
    if not variables(preset):
        assert loaded(preset, tmp_path, {})
        return
    with pytest.raises(ConfigError) as caught:
        loaded(preset, tmp_path, {})
    for name in variables(preset):
        assert f"the environment variable {name} is not set" in str(caught.value)
    assert f"{preset}:" in str(caught.value)


@BY_NAME
def test_a_misspelt_key_of_a_preset_is_refused(preset: Path, tmp_path: Path) -> None:
    text = preset.read_text(encoding="utf-8")
    copy = tmp_path / preset.name
    copy.write_text(
        text.replace("\n      kind:", "\n      tolerance: 1\n      kind:").replace(
            "\n      url:", "\n      tolerance: 1\n      url:"
        ),
        encoding="utf-8",
    )
    with pytest.raises(ConfigError, match=rf"{copy}:\d+: cluster\.endpoints\..*\.tolerance: unknown key"):
        loaded(copy, tmp_path, variables(preset))


@BY_NAME
def test_a_preset_fits_what_its_model_and_server_take(preset: Path, tmp_path: Path) -> None:
    sweep = loaded(preset, tmp_path)
    endpoints = sweep.cluster.endpoints
    for backbone in sweep.backbones:
        endpoint = endpoints[backbone.name]
        if isinstance(endpoint, HttpEndpoint):
            assert endpoint.url.scheme == "https"
            assert endpoint.api_key is not None
        if isinstance(endpoint, VllmEndpoint):
            assert endpoint.model is None, "what is loaded is what the run's identity names"
            assert endpoint.context_tokens is not None
            assert endpoint.context_tokens <= NATIVE_CONTEXT[backbone.model]
            assert backbone.max_input_tokens + backbone.max_output_tokens <= endpoint.context_tokens
            assert endpoint.tool_parser in TOOL_PARSERS
            assert endpoint.reasoning_parser in REASONING_PARSERS
            assert engine_command(endpoint, backbone.model, "127.0.0.1", 1)[:3] == [
                "vllm",
                "serve",
                backbone.model,
            ]
            assert need_of(endpoint).per_node["GPU"] == endpoint.tensor_parallel


def test_the_papers_models_are_there_with_its_limits() -> None:
    """R9, R36, R38 and R11: the two backbones, the evaluation's model, and the retriever."""
    served = {
        name: load_served(name, FOLDER / f"{file}.yaml", environ={}).model
        for name, file in {
            "qwen3.5-flash": "qwen3.5-35b-a3b",
            "deepseek-v4-flash": "deepseek-v4-flash",
            "qwen3.6-flash": "qwen3.6-35b-a3b-fp8",
        }.items()
    }
    assert served == {
        "qwen3.5-flash": "Qwen/Qwen3.5-35B-A3B",
        "deepseek-v4-flash": "deepseek-ai/DeepSeek-V4-Flash",
        "qwen3.6-flash": "Qwen/Qwen3.6-35B-A3B-FP8",
    }


def test_the_papers_table_takes_presets_in_place_of_its_urls(tmp_path: Path) -> None:
    """The sweep that README.md shows: two served backbones, a role out of a third file, a served retriever."""
    files = ("qwen3.5-35b-a3b", "deepseek-v4-flash", "qwen3.6-35b-a3b-fp8", "qwen3-embedding-0.6b")
    path = tmp_path / "sweep.yaml"
    path.write_text(
        "name: mine\n"
        f"include: [{', '.join(str(FOLDER / f'{file}.yaml') for file in files)}]\n"
        "benchmarks: [bfcl_v4]\n"
        "methods: [no_plan, chime]\n"
        "backbones: [qwen3.5-flash, deepseek-v4-flash]\n"
        "roles: {user_simulator: qwen3.6-flash, judge: qwen3.6-flash}\n"
        "cluster: {endpoints: {qwen3.5-flash: {replicas: 4}}}\n",
        encoding="utf-8",
    )
    sweep = load_sweep(path, environ={})
    assert [backbone.name for backbone in sweep.backbones] == ["qwen3.5-flash", "deepseek-v4-flash"]
    assert {model.model for model in sweep.roles.values()} == {"Qwen/Qwen3.6-35B-A3B-FP8"}
    assert sweep.embedder == EmbedderModel(kind="http")
    retriever = sweep.cluster.endpoints[EMBEDDER_ENDPOINT]
    assert isinstance(retriever, VllmEndpoint)
    assert retriever.runner == "pooling"
    qwen = sweep.cluster.endpoints["qwen3.5-flash"]
    assert isinstance(qwen, VllmEndpoint)
    assert (qwen.replicas, qwen.tool_parser) == (4, "qwen3_coder")
