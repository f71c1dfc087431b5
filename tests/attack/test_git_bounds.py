"""Git's files and rules without an end, and repositories of every format, hold up no plan."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.attack.git_configurations import (
    git,
    new_repository,
)

from trainmaster.calls.work import Work, working
from trainmaster.errors.errors import PlanError
from trainmaster.home.paths import Home
from trainmaster.runs.planning.code_folder import read_code
from trainmaster.runs.planning.git.isolated import GitError, isolated_git
from trainmaster.runs.planning.git.working_copy import refuse_endless_rules

pytestmark = pytest.mark.attack
_HOME = Home(Path("/nowhere"))
_LIMIT = 8 << 20
_EARLY_S = 30.0  # git has 60 s


@pytest.mark.parametrize("name", ["HEAD", "index", "config", "packed-refs", "info/exclude"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "garbage"])
def test_odd_files_in_place_of_gits_own_hold_up_nothing(
    tmp_path: Path, name: str, kind: str
) -> None:
    program = new_repository(tmp_path / "program")
    place = program / ".git" / name
    place.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        place.symlink_to("/dev/zero")
    elif kind == "folder":
        place.mkdir()
    else:
        place.write_bytes(bytes(range(256)) * 16)
    try:
        assert [file.name for file in read_code(program, _LIMIT, _HOME).files] == ["train.py"]
    except PlanError as error:
        assert error.code == "CODE_MISSING"


def test_a_pipe_among_the_objects_holds_up_no_plan(tmp_path: Path) -> None:
    program = new_repository(tmp_path / "program")
    commit = git(program, "rev-parse", "HEAD")
    place = program / ".git" / "objects" / commit[:2] / commit[2:]
    place.unlink()
    os.mkfifo(place)
    with working(Work(within_s=_EARLY_S)), pytest.raises(PlanError, match="not a regular file"):
        read_code(program, _LIMIT, _HOME)


def test_indexes_are_copied_within_a_bound(tmp_path: Path) -> None:
    program = new_repository(tmp_path / "program")
    for number in range(50):
        place = program / ".git" / f"sharedindex.{number:040x}"
        place.touch()
        os.truncate(place, 256 << 20)
    with pytest.raises(PlanError, match="indexes have more than 512 MiB"):
        read_code(program, _LIMIT, _HOME)


def test_git_is_given_rules_of_a_bounded_length(tmp_path: Path) -> None:
    """It keeps the whole file in memory."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / ".gitignore").touch()
    refuse_endless_rules(tmp_path, tmp_path)
    os.truncate(tmp_path / "deep" / ".gitignore", 1 << 30)
    with pytest.raises(GitError, match="larger than 4 MiB"):
        refuse_endless_rules(tmp_path, tmp_path)


def test_a_git_that_nobody_ends_any_more_ends_by_its_own_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """We may be killed while it walks a tree without an end."""
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    until_bounded = 'while [ "$(ulimit -t)" = unlimited ]; do :; done; ulimit -t'
    program.write_text(f"#!/bin/sh\n{until_bounded}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with isolated_git(str(tmp_path / "repository")) as isolated:
        assert int(isolated.run(tmp_path)) == 120


@pytest.mark.parametrize("place", [".", "deep/er", "above"])
def test_rules_of_git_that_never_end_hold_up_no_plan(tmp_path: Path, place: str) -> None:
    """Long before the time that git has: such rules are inspected for once it is slow."""
    repository = new_repository(tmp_path / "program")
    program = repository / "program" if place == "above" else repository
    for name in ("train.py", "deep/er/b.py"):
        (program / name).parent.mkdir(parents=True, exist_ok=True)
        (program / name).write_text("one\n")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "two")
    pipe = (repository if place == "above" else program / place) / ".gitattributes"
    os.mkfifo(pipe)
    for name in ("train.py", "deep/er/b.py"):
        (program / name).write_text("two\n")
    with working(Work(within_s=_EARLY_S)):
        code = read_code(program, _LIMIT, _HOME)
        assert any(f"{pipe} is not a regular file" in text for text in code.left)
        pipe.rename(pipe.with_name(".gitignore"))
        with pytest.raises(PlanError, match=r"\.gitignore is not a regular file"):
            read_code(program, _LIMIT, _HOME)
