"""A launch that is over, for all tests of this folder."""

from __future__ import annotations

import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from tests.analyses.launches import worsening_launch


@pytest.fixture(scope="session")
def worsening(tmp_path_factory: pytest.TempPathFactory) -> LaunchDirectory:
    """See ``worsening_launch``; not to be changed."""
    return worsening_launch(tmp_path_factory.mktemp("worsening"))
