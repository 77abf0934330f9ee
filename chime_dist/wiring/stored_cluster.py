"""The cluster that a launch was started with, as far as somebody needs it."""

from __future__ import annotations

import os
from collections.abc import Collection

from chime_dist.adapters.directory.launch_directory import MANIFEST, LaunchDirectory
from chime_dist.config.cluster import ClusterConfig
from chime_dist.config.document import stored_document
from chime_dist.config.interpolation import fill
from chime_dist.config.problems import refuse
from chime_dist.config.validation import validated
from chime_dist.core.episode import Json


def stored_cluster(
    launch: LaunchDirectory, keys: Collection[str], *, endpoints: Collection[str] = ()
) -> ClusterConfig:
    """These keys and endpoints of the stored cluster, secrets read again; the rest has its defaults.

    So a variable that only the rest needs may be unset. A resume may have been told other values. Raises
    ConfigError.
    """
    cluster: dict[str, Json] = launch.manifest.config.get("cluster", {})
    kept = {key: cluster[key] for key in keys if key in cluster}
    known = cluster.get("endpoints", {})
    kept["endpoints"] = {name: known[name] for name in endpoints if name in known}
    place = str(launch.path / MANIFEST)
    filled = fill(stored_document({"cluster": kept}, place), os.environ)
    refuse(filled.problems)
    return validated(ClusterConfig, filled.root["cluster"], place, ("config", "cluster"))
