"""Hosts and folders that would have a fetch write or read elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.runs.fetch_place import Place

from trainmaster.backends import Backend
from trainmaster.backends.debug import DebugBackend
from trainmaster.backends.hosts import Completed, LocalHost
from trainmaster.errors.errors import StorageError, TrainmasterError
from trainmaster.home.paths import Home
from trainmaster.sync.workspace import Workspace

pytestmark = [pytest.mark.attack, pytest.mark.slow]


@pytest.fixture
def place(workspace: Workspace, tmp_path: Path) -> Place:
    return Place(workspace, tmp_path)


def test_a_repository_on_the_box_comes_without_its_git_folder(place: Place) -> None:
    for name in ("repo/.git/config", "repo/.GIT/hooks/post-checkout", "repo/sub/.git", "repo/a.py"):
        (place.box / name).parent.mkdir(parents=True, exist_ok=True)
        (place.box / name).write_text("x")
    answer = place.fetch("repo/**")
    assert place.names() == ["repo/a.py"]
    assert {item.path for item in answer.skipped} == {"repo/.git", "repo/.GIT", "repo/sub/.git"}
    assert all("git's own files" in item.reason for item in answer.skipped)


def test_links_on_the_box_lead_nowhere(place: Place, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("private")
    (place.box / "final" / "key").symlink_to(tmp_path / "private" / "key")
    (place.box / "final" / "all").symlink_to(tmp_path / "private")
    answer = place.fetch("final/**")
    assert {item.path for item in answer.skipped} == {"final/key", "final/all"}
    assert [name for name in place.names() if "key" in name] == []


def test_links_in_the_folder_here_are_not_written_through(place: Place, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    place.folder.mkdir()
    (place.folder / "final").symlink_to(outside)
    error = place.refused("final/**")
    assert (type(error), error.code) == (StorageError, "UNSAFE_NAME")
    assert list(outside.iterdir()) == []


def test_a_link_that_takes_the_place_of_a_folder_meanwhile_is_not_written_through(
    place: Place, tmp_path: Path
) -> None:
    outside, folder = tmp_path / "outside", place.folder / "final"
    outside.mkdir()

    def swap(*_: int) -> None:
        if not folder.is_symlink():
            folder.rename(tmp_path / "moved")
            folder.symlink_to(outside)

    with suppress(TrainmasterError):
        place.fetch("final/**", on_progress=swap)
    assert folder.is_symlink()
    assert list(outside.iterdir()) == []


def test_names_that_some_disks_confuse_are_left_out_and_named(place: Place) -> None:
    for name in ("Notes.txt", "notes.txt", "nul"):
        (place.box / "final" / name).write_text(name)
    answer = place.fetch("final/*")
    assert {item.path for item in answer.skipped} == {"final/notes.txt", "final/nul"}
    assert "final/Notes.txt" in place.names()


class HostileHost(LocalHost):
    """A host that lists whatever it likes; everything else is this machine."""

    row: Any = None

    async def run(
        self, command: Sequence[str], *, folder: str, timeout_s: float, stdin: bytes = b""
    ) -> Completed:
        if "files" in command:
            return Completed(0, f"{json.dumps(self.row)}\n", "")
        return await super().run(command, folder=folder, timeout_s=timeout_s, stdin=stdin)


class HostileWorkspace(Workspace):
    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self.hostile = HostileHost("debug", home.debug_root)

    def backend(self, host: str) -> Backend:
        return DebugBackend(self.hostile)


HOSTILE_ROWS = (
    {"path": "../escaped"},
    {"path": "/tmp/escaped"},
    {"path": "final/../../escaped"},
    {"path": "a//b"},
    {"path": "a/./b"},
    {"path": ""},
    {"path": "a\nb"},
    {"path": "a\x1b[2Jb"},
    {"path": "a\u202eb"},
    {"path": "x" * 300},
    {"path": ".secrets.json"},
    {"path": "a", "size": -1},
    {"path": "a", "size": "many"},
    {"path": "a", "size": 100, "sha256": []},
    {"path": "a", "sha256": 5},
    {"skipped": "a\x1b[2Jb", "reason": "because\x07"},
    {"nothing": 1},
    ["a"],
)


def test_hostile_lists_bring_nothing_and_leave_the_folder_alone(
    place: Place, tmp_path: Path
) -> None:
    before = set(tmp_path.rglob("*"))
    place.workspace = workspace = HostileWorkspace(place.workspace.home)
    for row in HOSTILE_ROWS:
        listed = {"size": 0, "mtime_ns": 0, "sha256": [], **row} if "path" in row else row
        workspace.hostile.row = listed
        answer = place.fetch("hostile")
        assert (answer.files, len(answer.skipped)) == (0, 1), row
        assert answer.skipped[0].path.isprintable() and answer.skipped[0].reason.isprintable()
        assert place.names() == []
    place.workspace.close()
    new = set(tmp_path.rglob("*")) - before
    home = place.workspace.home.root
    assert [path for path in new if path != place.folder and home not in path.parents] == []
    assert not Path("/tmp/escaped").exists()
