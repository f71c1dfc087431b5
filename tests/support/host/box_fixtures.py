"""Fixtures of the runtime: a host on which environments are prepared."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.host.prepared_run import Box, make_box


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it is known by now that the tests' PyTorch computes."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def box(tmp_path: Path, shared_cache: Path) -> Box:
    return make_box(tmp_path / "runs" / "small-abc234", shared_cache)
