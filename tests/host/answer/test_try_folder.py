"""Whether a folder can be written: by its permissions, which changes nothing, or by writing."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_runtime.host.answer.try_folder import try_folder


@pytest.mark.parametrize("write", [False, True])
def test_a_folder_that_is_not_there_yet_is_judged_by_the_nearest_above(
    tmp_path: Path, write: bool
) -> None:
    (tmp_path / "file").touch()
    assert try_folder(tmp_path / "deep" / "er", write=write) == {"problem": None}
    for place in (tmp_path / "file" / "deep", Path("/proc/backup")):
        problem = try_folder(place, write=write)["problem"]
        assert str(problem).startswith(f"{place.parent} can't be written: ")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_permissions_are_judged_without_touching_the_folder(tmp_path: Path) -> None:
    before = tmp_path.stat().st_mtime_ns
    try_folder(tmp_path, write=False)
    assert tmp_path.stat().st_mtime_ns == before
