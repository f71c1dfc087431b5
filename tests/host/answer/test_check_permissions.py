"""A host's root that other users reach is named with its remedy."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer_runtime.host.answer.check import permissions


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize(
    ("mode", "state", "remedy"),
    [(0o700, "ok", ""), (0o755, "warn", "chmod go-rwx"), (0o777, "fail", "chmod -R go-w")],
)
def test_a_root_that_other_users_reach(folder: Path, mode: int, state: str, remedy: str) -> None:
    root = folder / "trainmaster"
    assert list(permissions(root)) == []
    root.mkdir()
    root.chmod(mode)
    (row,) = permissions(root)
    assert row.state == state
    assert remedy in (row.remedy or "")


def test_a_root_below_a_closed_folder_is_nobody_elses(folder: Path) -> None:
    (folder / "closed" / "root").mkdir(parents=True)
    (folder / "closed" / "root").chmod(0o777)
    (folder / "closed").chmod(0o700)
    (row,) = permissions(folder / "closed" / "root")
    assert row.state == "ok"
