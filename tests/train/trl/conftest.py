"""A tiny model, pairs of answers, and runs on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.train.preference_data import TrlRun, make_run, pairs, save_tiny_model, write_rows
from support.train.preference_runs import MakeRun


@pytest.fixture(scope="module", autouse=True)
def offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def preferences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("rows") / "pairs.jsonl", pairs(60))


@pytest.fixture
def make(tmp_path: Path, model: Path, preferences: Path) -> MakeRun:
    def one(method: str, name: str = "run", rows: Path = preferences, **changes: Any) -> TrlRun:
        return make_run(tmp_path / name, model, rows, method, **changes)

    return one
