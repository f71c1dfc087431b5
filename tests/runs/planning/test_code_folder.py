"""What travels of a program's folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trainmaster.errors.errors import PlanError
from trainmaster.home.paths import Home
from trainmaster.runs.planning.code_folder import read_code

_HOME = Home(Path("/nowhere"))

_LIMIT = 1 << 20


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    who += ["-c", "protocol.file.allow=always"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A repository with a tracked file, a changed one, a new one, and what is ignored."""
    folder = tmp_path / "program"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "train.py").write_text("print(1)\n")
    (folder / ".gitignore").write_text("data/\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    (folder / "data").mkdir()
    (folder / "data" / "big.bin").write_bytes(bytes(100))
    return folder


def names(folder: Path) -> list[str]:
    return [file.name for file in read_code(folder, _LIMIT, _HOME).files]


def test_what_git_tracks_and_does_not_ignore_travels(program: Path) -> None:
    (program / "new.py").write_text("print(2)\n")
    (program / ".env").write_text("KEY=1\n")
    found = read_code(program, _LIMIT, _HOME)
    assert [file.name for file in found.files] == [".gitignore", "new.py", "train.py"]
    assert found.left == ["1 files with secrets (.env)"]
    assert found.dirty


def test_the_commit_and_the_changes_are_known(program: Path) -> None:
    clean = read_code(program, _LIMIT, _HOME)
    assert (clean.dirty, clean.diff, len(clean.commit or "")) == (False, "", 40)
    (program / "train.py").write_text("print(3)\n")
    changed = read_code(program, _LIMIT, _HOME)
    assert changed.commit == clean.commit
    assert "+print(3)" in changed.diff
    assert changed.digest != clean.digest


def test_a_home_of_trainmaster_in_the_folder_stays(program: Path) -> None:
    home = program / "work" / "home"
    (home / "runs").mkdir(parents=True)
    for name in ("control.db", "metrics.db", "runs/train.log"):
        (home / name).touch()
    found = read_code(program, _LIMIT, _HOME)
    assert [file.name for file in found.files] == [".gitignore", "train.py"]
    assert found.left == ["Trainmaster's own files in work/home"]


def test_without_git_all_but_caches_travel(tmp_path: Path) -> None:
    for name in ("train.py", "lib/model.py", "__pycache__/train.pyc", ".venv/bin/python", "a.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "outside").symlink_to("/etc/hostname")
    found = read_code(tmp_path, _LIMIT, _HOME)
    assert [file.name for file in found.files] == ["lib/model.py", "train.py"]
    assert found.commit is None


@pytest.mark.attack
def test_a_filter_that_the_repository_names_is_not_run(program: Path, tmp_path: Path) -> None:
    git(program, "config", "filter.own.clean", f"touch {tmp_path}/ran; cat")
    git(program, "config", "core.fsmonitor", f"touch {tmp_path}/ran")
    (program / ".gitattributes").write_text("*.py filter=own\n")
    (program / "train.py").write_text("print(4)\n")
    assert read_code(program, _LIMIT, _HOME).dirty
    assert not (tmp_path / "ran").exists()


def test_a_folder_that_is_too_large_is_refused_with_its_largest_files(program: Path) -> None:
    (program / "weights.bin").write_bytes(bytes(2 << 20))
    with pytest.raises(PlanError) as caught:
        read_code(program, _LIMIT, _HOME)
    assert caught.value.code == "CODE_TOO_LARGE"
    assert "weights.bin (2 MiB)" in caught.value.message


def test_a_pointer_of_lfs_is_refused(program: Path) -> None:
    (program / "tokens.bin").write_text("version https://git-lfs.github.com/spec/v1\noid x\n")
    with pytest.raises(PlanError, match=r"tokens.bin is a pointer") as caught:
        read_code(program, _LIMIT, _HOME)
    assert caught.value.code == "CODE_INCOMPLETE"


def test_a_submodule_travels_if_it_is_checked_out_and_is_refused_else(
    program: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    (other / "lib.py").write_text("x = 1\n")
    git(other, "add", ".")
    git(other, "commit", "-q", "-m", "one")
    git(program, "submodule", "add", "-q", str(other), "vendor")
    assert "vendor/lib.py" in names(program)
    git(program, "submodule", "deinit", "-q", "-f", "vendor")
    with pytest.raises(PlanError, match="submodule vendor"):
        read_code(program, _LIMIT, _HOME)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="does not exist") as caught:
        read_code(tmp_path / "nowhere", _LIMIT, _HOME)
    assert caught.value.code == "CODE_MISSING"
