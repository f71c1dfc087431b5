"""What somebody else may have put in a file's place is not waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainer_runtime.core.files.manifest import ManifestError, read
from trainer_runtime.core.files.regular import read_regular
from trainer_runtime.host.files.files import read_json

pytestmark = pytest.mark.attack


def test_a_pipe_or_a_folder_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(OSError, match=r"regular|directory"):
            read_regular(tmp_path / name, 10)


def test_no_more_is_read_than_one_byte_beyond_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_regular(tmp_path / "file", 10) == b"0123456789"
    assert read_regular(tmp_path / "file", 4) == b"01234"


def test_pipes_in_a_runs_folder_are_no_records(tmp_path: Path) -> None:
    for name in ("exit.json", "manifest.json"):
        os.mkfifo(tmp_path / name)
    assert read_json(tmp_path / "exit.json") is None
    with pytest.raises(ManifestError):
        read(tmp_path)
