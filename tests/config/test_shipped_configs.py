"""Every sweep in configs/ loads and expands; for configs/backbones see test_backbone_presets.py."""

from __future__ import annotations

import re
from pathlib import Path

from chime_dist.config.expansion import Resolved, expand
from chime_dist.config.loading import load_sweep
from chime_dist.config.models import EmbedderModel
from chime_dist.config.policy import EpisodePolicy, ProtocolSpec, RequestPolicy
from chime_dist.core.episode import Role
from chime_dist.core.paper import PAPER

CONFIGS = Path(__file__).parents[2] / "configs"
REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def test_every_shipped_config_loads_and_expands() -> None:
    """Variables without a default are filled with a URL, which is also a valid key."""
    for path in sorted(set(CONFIGS.rglob("*.yaml")) - set((CONFIGS / "backbones").iterdir())):
        environ = dict.fromkeys(REFERENCE.findall(path.read_text(encoding="utf-8")), "http://example.invalid/v1")
        if "CHIME_REDIS_URL" in environ:
            environ["CHIME_REDIS_URL"] = "redis://example.invalid:6379/0"
        sweep = load_sweep(path, environ=environ)
        assert expand(sweep, lambda kind, component: Resolved(component.options)), path
        assert sweep.cluster.written_out_secrets() == [], path


def test_the_papers_tables_are_what_it_compares_under_its_table_7() -> None:
    """R3, R4, R9, R11, R35 to R38, R43, R44: nothing but the cluster differs from the printed settings."""
    first, second = (load_sweep(CONFIGS / "paper" / f"table{n}.yaml", environ={}) for n in (1, 2))
    for sweep in (first, second):
        assert [part.name for part in sweep.benchmarks] == list(PAPER)
        assert sweep.orderings == (0, 1, 2)
        assert (sweep.protocol, sweep.requests, sweep.episode) == (
            ProtocolSpec(),
            RequestPolicy(),
            EpisodePolicy(),
        )
        assert sweep.embedder == EmbedderModel(kind="http")
        assert set(sweep.roles) == {Role.USER_SIMULATOR, Role.JUDGE}
        assert {(model.temperature, model.thinking) for model in sweep.backbones} == {(0.0, False)}
    assert len(first.backbones) == 2
    assert [part.label for part in first.methods] == [
        *("no_plan", "webanchor", "todoevolve", "a_mapreduce", "chime")
    ]
    assert [part.label for part in second.methods] == [
        "chime",
        *(f"chime no_{what}" for what in ("plan_memory", "exec_memory", "memory", "hierarchy", "gate", "rerank")),
        "chime no_evolution",
    ]
