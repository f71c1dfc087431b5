"""Files that a machine has already, linked into the trees that are put there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.backends.file_trees import CuttableHost, described, put

from trainmaster.errors.errors import TrainmasterError

MODULE, SCRIPT = "trainer_runtime/sums.py", "train.sh"
RUNTIME = {"trainer_runtime/__init__.py": b"", MODULE: b"def two():\n    return 1 + 1\n"}
RUN = {**RUNTIME, SCRIPT: b"#!/bin/sh\n"}
BYTECODE = f"trainer_runtime/__pycache__/sums.{sys.implementation.cache_tag}.pyc"


@pytest.fixture
def near(tmp_path: Path) -> Path:
    """A runtime that was put on the machine before."""
    put(RUNTIME, tmp_path / "near", whole=True, compiles=True)
    return tmp_path / "near"


def test_what_is_there_is_linked_with_its_bytecode_and_the_rest_sent(
    tmp_path: Path, near: Path
) -> None:
    sent = put(RUN, tmp_path / "run", whole=True, near=str(near))
    assert (sent.sent_files, sent.sent_bytes) == (1, len(RUN[SCRIPT]))
    for name in (MODULE, BYTECODE):
        assert (tmp_path / "run" / name).samefile(near / name)
        assert not (near / name).stat().st_mode & 0o222, "a change would reach every run"
    command = [sys.executable, "-B", "-v", "-c", "import trainer_runtime.sums as sums"]
    done = subprocess.run(command, cwd=tmp_path / "run", capture_output=True, text=True, check=True)
    [loaded] = [line for line in done.stderr.splitlines() if "# code object from" in line][-1:]
    assert BYTECODE in loaded


def changed(near: Path) -> None:
    (near / MODULE).chmod(0o600)
    (near / MODULE).write_bytes(RUNTIME[MODULE].replace(b"1 + 1", b"1 + 2"))
    (near / MODULE).chmod(0o400)


def made_writable(near: Path) -> None:
    (near / MODULE).chmod(0o600)


def replaced_by_a_link(near: Path) -> None:
    (near / MODULE).rename(near / "elsewhere")
    (near / MODULE).symlink_to(near / "elsewhere")


def below_a_link(near: Path) -> None:
    (near / "trainer_runtime").rename(near / "elsewhere")
    (near / "trainer_runtime").symlink_to(near / "elsewhere")


def removed(near: Path) -> None:
    (near / MODULE).unlink()


def anothers(near: Path) -> None:
    os.chown(near / MODULE, 12345, 12345)


@pytest.mark.parametrize(
    "altered", [changed, made_writable, replaced_by_a_link, below_a_link, removed, anothers]
)
def test_what_is_not_exactly_the_same_is_sent(
    tmp_path: Path, near: Path, altered: Callable[[Path], None]
) -> None:
    altered(near)
    put(RUN, tmp_path / "run", whole=True, near=str(near))
    assert {name: (tmp_path / "run" / name).read_bytes() for name in RUN} == RUN
    assert (tmp_path / "run" / MODULE).stat().st_nlink == 1
    assert not (tmp_path / "run" / BYTECODE).exists()


def test_files_that_a_run_may_write_to_are_never_shared(tmp_path: Path) -> None:
    put({SCRIPT: RUN[SCRIPT]}, tmp_path / "near")
    assert put(RUN, tmp_path / "run", near=str(tmp_path / "near")).sent_files == len(RUN)
    assert (tmp_path / "near" / SCRIPT).stat().st_nlink == 1


def test_a_run_stays_whole_when_what_it_was_linked_to_goes(tmp_path: Path, near: Path) -> None:
    put(RUN, tmp_path / "run", near=str(near))
    for path in sorted(near.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    kept = {name: data for name, (data, _, _) in described(tmp_path / "run").items()}
    assert {name: kept[name] for name in RUN} == RUN


def test_a_tree_that_was_cut_between_links_and_the_rest_is_completed(
    tmp_path: Path, near: Path
) -> None:
    files = {**RUN, "config.json": os.urandom(1_000_000)}
    with pytest.raises(TrainmasterError, match="ended too early"):
        put(files, tmp_path / "run", CuttableHost(300_000), whole=True, near=str(near))
    assert not (tmp_path / "run").exists()
    put(files, tmp_path / "run", whole=True, near=str(near))
    assert {name: (tmp_path / "run" / name).read_bytes() for name in files} == files
    assert (tmp_path / "run" / MODULE).samefile(near / MODULE)


def test_modules_that_cannot_be_compiled_arrive_all_the_same(tmp_path: Path) -> None:
    files = {"trainer_runtime/odd.py": b"def (:\n", **RUNTIME}
    put(files, tmp_path / "there", whole=True, compiles=True)
    assert {name: (tmp_path / "there" / name).read_bytes() for name in files} == files
    assert (tmp_path / "there" / BYTECODE).exists()
