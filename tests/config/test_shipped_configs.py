"""Every file in configs/ loads and expands."""

from __future__ import annotations

import re
from pathlib import Path

from chime_dist.config.expansion import Resolved, expand
from chime_dist.config.loading import load_sweep

CONFIGS = Path(__file__).parents[2] / "configs"
REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def test_every_shipped_config_loads_and_expands() -> None:
    """Variables without a default are filled with a URL, which is also a valid key."""
    for path in sorted(CONFIGS.rglob("*.yaml")):
        environ = dict.fromkeys(REFERENCE.findall(path.read_text(encoding="utf-8")), "http://example.invalid/v1")
        if "CHIME_REDIS_URL" in environ:
            environ["CHIME_REDIS_URL"] = "redis://example.invalid:6379/0"
        sweep = load_sweep(path, environ=environ)
        assert expand(sweep, lambda kind, component: Resolved(component.options)), path
        assert sweep.cluster.written_out_secrets() == [], path
