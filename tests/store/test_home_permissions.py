from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from support.store.other_user import needs_root, other_user_id

from trainmaster.errors.errors import StorageError, TrainmasterError
from trainmaster.mcp.definition import OpenWorkspace
from trainmaster.store.private_home import open_home
from trainmaster.sync.workspace import open_workspace

pytestmark = pytest.mark.attack


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "share" / "home"


def _open(root: Path) -> Path:
    return open_home({"TRAINMASTER_HOME": str(root)}).root


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _refusal(root: Path) -> StorageError:
    with pytest.raises(StorageError) as refused:
        _open(root)
    assert refused.value.code == "HOME_NOT_PRIVATE"
    assert str(root) in refused.value.message
    return refused.value


@pytest.mark.parametrize(
    ("named", "code", "what", "remedy"),
    [
        ("~nobody9/home", "BAD_ARGUMENT", "no user is called 'nobody9'", "Give the path"),
        ("{}/" + "n" * 300, "BAD_ARGUMENT", "255 bytes", "Give the path"),
        ("{}/" + "p/" * 2500, "BAD_ARGUMENT", "4,095 in all", "Give the path"),
        ("{}/loop/home", "ROOT_NOT_WRITABLE", "levels of symbolic links", "ls -ld"),
        ("{}/dead", "ROOT_NOT_WRITABLE", "/dead is a link that leads nowhere", "ls -ld"),
        ("{}/dead/home", "ROOT_NOT_WRITABLE", "/dead is a link that leads nowhere", "ls -ld"),
        ("{}/loop", "ROOT_NOT_WRITABLE", "/loop is a link that leads nowhere", "ls -ld"),
        ("{}/file", "ROOT_NOT_WRITABLE", "Not a directory", "ls -ld"),
        ("{}/file/home", "ROOT_NOT_WRITABLE", "Not a directory", "ls -ld"),
        ("/proc/home", "DISK_FULL", "no space is left", "Free disk space"),
    ],
)
def test_a_home_that_can_not_be_made_is_refused_with_its_place_and_what_to_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: str,
    code: str,
    what: str,
    remedy: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dead").symlink_to("nowhere/deep")
    (tmp_path / "file").touch()
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(TrainmasterError) as refused:
        open_home({"TRAINMASTER_HOME": named.replace("{}", str(tmp_path))})
    assert refused.value.code == code
    assert what in refused.value.message
    assert named.replace("{}", str(tmp_path))[:60] in refused.value.message
    assert remedy in refused.value.fix
    assert {path.name for path in tmp_path.iterdir()} == before


def test_a_new_home_and_the_folders_above_it_are_closed_whatever_the_umask(root: Path) -> None:
    before = os.umask(0)
    try:
        with open_workspace({"TRAINMASTER_HOME": str(root)}):
            assert [_mode(place) for place in (root, root.parent)] == [0o700, 0o700]
            files = [path for path in root.iterdir() if path.is_file()]
            assert {path.name for path in files} >= {"control.db", "control.db-wal"}
            assert {_mode(path) for path in files} == {0o600}
    finally:
        os.umask(before)


def test_a_home_that_others_can_read_is_tightened(root: Path) -> None:
    (root / "mirror").mkdir(parents=True)
    (root / "settings.yaml").write_text("{}")
    for place, mode in ((root, 0o755), (root / "mirror", 0o755), (root / "settings.yaml", 0o644)):
        place.chmod(mode)
    _open(root)
    assert [_mode(place) for place in (root, root / "mirror")] == [0o700, 0o700]
    assert _mode(root / "settings.yaml") == 0o600


def test_a_home_in_a_sticky_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    assert _open(tmp_path / "sticky" / "home").is_dir()


def test_a_folder_of_a_group_without_other_members_is_the_users_own(root: Path) -> None:
    root.mkdir(parents=True)
    root.chmod(0o770)
    if os.geteuid() == 0:
        os.chown(root, -1, 0)
    _open(root)
    assert _mode(root) == 0o700


def _writable_home(root: Path) -> None:
    root.chmod(0o777)


def _writable_folder_above(root: Path) -> None:
    root.parent.chmod(0o777)


def _writable_settings(root: Path) -> None:
    root.chmod(0o755)
    (root / "settings.yaml").write_text("{}")
    (root / "settings.yaml").chmod(0o666)


def _link_through_a_writable_folder(root: Path) -> None:
    shared = root.parent.parent / "shared"
    (shared / "home").mkdir(parents=True)
    shared.chmod(0o777)
    root.rmdir()
    root.symlink_to(shared / "home")


@pytest.mark.parametrize(
    "loosen",
    [
        _writable_home,
        _writable_folder_above,
        _writable_settings,
        _link_through_a_writable_folder,
    ],
)
def test_a_home_that_others_can_change_is_refused_with_a_remedy(
    root: Path, loosen: Callable[[Path], None]
) -> None:
    root.mkdir(parents=True)
    loosen(root)
    refusal = _refusal(root)
    assert "chmod" in refusal.fix
    assert "TRAINMASTER_HOME" in refusal.fix


def test_a_server_refuses_a_home_that_others_can_change(root: Path) -> None:
    from contextlib import ExitStack

    root.mkdir(parents=True)
    root.chmod(0o777)
    server = OpenWorkspace({"TRAINMASTER_HOME": str(root)}, ExitStack())
    for use in (server.get, lambda: server.home):
        with pytest.raises(StorageError, match="other users can write"):
            use()


@needs_root
@pytest.mark.parametrize("part", [".", "settings.yaml", "control.db", "keys", "mirror", ".."])
def test_a_home_of_which_another_user_owns_a_part_is_refused(root: Path, part: str) -> None:
    (root / "keys").mkdir(parents=True)
    (root / "mirror").mkdir()
    for name in ("settings.yaml", "control.db"):
        (root / name).touch()
    root.chmod(0o700)
    os.chown(os.path.normpath(root / part), other_user_id(), -1)
    refusal = _refusal(root)
    assert "nobody" in refusal.message
    assert (root / "control.db").stat().st_size == 0


@needs_root
def test_a_link_in_the_home_to_a_folder_of_another_user_is_refused(
    root: Path, tmp_path: Path
) -> None:
    root.mkdir(parents=True, mode=0o700)
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", other_user_id(), -1)
    (root / "mirror").symlink_to(tmp_path / "theirs")
    assert "theirs" in _refusal(root).message
