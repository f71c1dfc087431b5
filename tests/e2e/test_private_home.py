"""A home and its runs, made by real commands, as another user of the machine finds them."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import small_spec
from support.store.other_user import needs_root, other_user_id, what_another_user_may_do

pytestmark = [needs_root, pytest.mark.slow, pytest.mark.attack]
# Written by the trainer, which has the user's umask, in folders that are closed to others.
_TRAINERS = ("checkpoints", "final", "__pycache__")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike those that pytest makes."""
    folder = Path(tempfile.mkdtemp(prefix="open-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def _command(home: Path, *words: str, umask: int = 0o022) -> tuple[int, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "trainmaster", *words, "--json"],
        env={**os.environ, "TRAINMASTER_HOME": str(home)},
        capture_output=True,
        text=True,
        umask=umask,
        timeout=280,
    )
    return done.returncode, json.loads(done.stdout)


def _everything(home: Path) -> list[Path]:
    return [home, *home.rglob("*")]


@pytest.mark.long
@pytest.mark.parametrize(("umask", "host"), [(0o000, "local"), (0o077, "debug")])
def test_another_user_can_neither_read_lock_nor_change_anything_of_a_home(
    open_folder: Path, umask: int, host: str
) -> None:
    home = open_folder / "share" / "home"
    (open_folder / "out").mkdir()
    spec = open_folder / "spec.yaml"
    spec.write_text(small_spec(open_folder, steps="20", host=host))
    run = _command(home, "launch", str(spec), umask=umask)[1]["run_id"]
    _command(home, "wait", run, "--until", "end", umask=umask)
    _command(home, "tick", umask=umask)
    fetched = open_folder / "out" / "files"
    assert _command(home, "fetch", run, "attempts/*/train.log", str(fetched), umask=umask)[0] == 0

    found = _everything(home)
    names = {path.name for path in found}
    assert {"control.db", "metrics.db", "keeper.json", "keeper.lock"} <= names
    assert {"trainmaster.jsonl", "train.log", "desired.json", "events.jsonl"} <= names
    assert what_another_user_may_do([home.parent, *found]) == []

    ours = [path for path in found if not {*path.relative_to(home).parts} & {*_TRAINERS}]
    loose = [
        str(path)
        for path in ours
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]
    assert loose == []
    # What is fetched is the user's, by their own umask.
    log = next(fetched.rglob("train.log"))
    assert stat.S_IMODE(log.stat().st_mode) == 0o666 & ~umask
    for trained in home.glob("local/runs/*/final"):
        assert stat.S_IMODE(trained.stat().st_mode) == 0o777 & ~umask


def test_a_home_of_another_user_is_refused_by_every_command(open_folder: Path) -> None:
    home = open_folder / "home"
    home.mkdir(0o700)
    os.chown(home, other_user_id(), -1)
    for words in (("runs",), ("tick",), ("stop", "run")):
        code, answer = _command(home, *words)
        assert (code, answer["error"]["code"]) == (1, "HOME_NOT_PRIVATE"), words
        assert str(home) in answer["error"]["message"]
    assert list(home.iterdir()) == []
