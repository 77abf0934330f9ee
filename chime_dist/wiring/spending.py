"""Who pays for a run's model calls, at what price, and how much of it a launch allows: told by its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from chime_dist.adapters.directory.launch_directory import MANIFEST, LaunchDirectory
from chime_dist.config.cluster import ClusterConfig
from chime_dist.config.models import EMBEDDER_ENDPOINT
from chime_dist.config.policy import EndpointPrice, LimitPolicy
from chime_dist.config.validation import validated
from chime_dist.core.episode import Json, Role, Usage
from chime_dist.core.spending import Payer, Purpose, Spent

_NOTHING: Mapping[str, Usage] = MappingProxyType({})


def payer(config: Mapping[str, Json], role: str, purpose: Purpose = "episodes") -> Payer:
    """Whom a role of a run asks, by the run's config as the manifest keeps it."""
    if role == Role.EMBEDDER:
        return Payer(EMBEDDER_ENDPOINT, role, purpose)
    model = config.get("roles", {}).get(role) or config["backbone"]
    return Payer(model["name"], role, purpose)


def stored_prices(launch: LaunchDirectory) -> dict[str, EndpointPrice]:
    """Known prices by endpoint. Raises ConfigError where another version of chime_dist wrote them."""
    endpoints = launch.manifest.config.get("cluster", {}).get("endpoints", {})
    found = {}
    for name, endpoint in endpoints.items():
        if (price := endpoint.get("price")) is not None:
            place = ("config", "cluster", "endpoints", name, "price")
            found[name] = validated(EndpointPrice, price, str(launch.path / MANIFEST), place)
    return found


def spent_on(
    launch: LaunchDirectory, run_id: str, usage: Mapping[str, Usage], at_commits: Mapping[str, Usage] = _NOTHING
) -> Spent:
    """What episodes of a run cost that used so much, and their commits, both by role; without any time.

    Raises ConfigError likewise.
    """
    config = launch.manifest.runs[run_id].config
    asked = {payer(config, role): used for role, used in usage.items()}
    asked |= {payer(config, role, "commits"): used for role, used in at_commits.items()}
    return Spent(asked, stored_prices(launch), 0.0)


def stored_limits(launch: LaunchDirectory) -> LimitPolicy:
    """What the launch may spend. Raises ConfigError likewise."""
    limits = launch.manifest.config.get("cluster", {}).get("limits", {})
    return validated(LimitPolicy, limits, str(launch.path / MANIFEST), ("config", "cluster", "limits"))


def with_money_of(launch: LaunchDirectory, cluster: ClusterConfig) -> LaunchDirectory:
    """The launch with the limits and prices of ``cluster`` in its manifest; only its driver may call this.

    Other settings of a resume are for that driver alone. These are kept, so that a later report counts with the
    prices that were learnt last, and a limit that was raised stays raised.
    """
    if stored_limits(launch) == cluster.limits and stored_prices(launch) == cluster.prices:
        return launch
    config = launch.manifest.config
    stored: dict[str, Json] = config.get("cluster", {})
    endpoints = {
        name: {**endpoint, "price": price.model_dump(mode="json") if price is not None else None}
        for name, endpoint in stored.get("endpoints", {}).items()
        for price in [cluster.prices.get(name)]
    }
    limits = cluster.limits.model_dump(mode="json")
    changed = {**config, "cluster": {**stored, "limits": limits, "endpoints": endpoints}}
    return launch.extended(changed, launch.manifest.runs)
