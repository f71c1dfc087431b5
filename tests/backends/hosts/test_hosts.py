"""This machine as a host: atomic files, commands with a bound, errors with a remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.runs.running_run import run_async

from trainmaster.backends.hosts import Completed, LocalHost
from trainmaster.errors.errors import HostError

FILES = {
    "train.sh": b"#!/bin/sh\n",
    "train.py": b"pass\n",
    "trainer_runtime/host/processes/hold.py": b"",
}


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    return LocalHost("local", tmp_path / "root")


def test_a_folder_is_put_whole_with_its_permissions(host: LocalHost, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "gpt-abc234"
    run_async(lambda: host.put_folder(str(folder), FILES, frozenset({"train.sh"})))
    written = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert written == FILES
    assert os.access(folder / "train.sh", os.X_OK)
    assert not os.access(folder / "train.py", os.X_OK)
    assert [path.name for path in folder.parent.iterdir()] == ["gpt-abc234"]


def test_a_folder_that_is_there_is_kept_as_it_is(host: LocalHost, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "kept.txt").write_text("kept")
    run_async(lambda: host.put_folder(str(folder), FILES, frozenset()))
    assert [path.name for path in folder.iterdir()] == ["kept.txt"]


def test_a_folder_that_cannot_be_put_leaves_nothing(host: LocalHost, tmp_path: Path) -> None:
    # A file where a folder has to be: the second file can't be written.
    files = {"a": b"1", "a/b": b"2"}
    with pytest.raises(HostError) as caught:
        run_async(lambda: host.put_folder(str(tmp_path / "run"), files, frozenset()))
    assert caught.value.code == "ROOT_NOT_WRITABLE"
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_does_not_end_is_ended_at_its_bound(host: LocalHost, tmp_path: Path) -> None:
    done = run_async(lambda: host.run(["sleep", "60"], folder=str(tmp_path), timeout_s=0.2))
    assert done.code == 124


def test_a_command_returns_its_code_and_both_outputs(host: LocalHost, tmp_path: Path) -> None:
    script = "echo said; echo complained >&2; exit 3"
    done = run_async(lambda: host.run(["sh", "-c", script], folder=str(tmp_path), timeout_s=60))
    assert done == Completed(3, "said\n", "complained\n")


def test_a_program_that_is_not_there_is_reported_as_a_shell_does(
    host: LocalHost, tmp_path: Path
) -> None:
    done = run_async(lambda: host.run(["no-such-program"], folder=str(tmp_path), timeout_s=60))
    assert done.code == 127
    assert "no-such-program" in done.errors


def test_removing_returns_what_was_freed_and_may_be_repeated(
    host: LocalHost, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    run_async(lambda: host.put_folder(str(folder), {"a/b": b"12345", "c": b"6"}, frozenset()))
    assert run_async(lambda: host.remove(str(folder))) == 6
    assert run_async(lambda: host.remove(str(folder))) == 0
